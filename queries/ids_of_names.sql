-- Ids of some texts.
--   ?  JSON list of texts
SELECT string.id
FROM StringIds AS string
WHERE string.value IN (SELECT wanted.value FROM json_each(?) AS wanted)

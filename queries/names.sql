-- Texts of some string ids. The table is never read whole: it also holds environments and output.
--   ?  JSON list of ids
SELECT string.id, string.value
FROM json_each(?) AS wanted
JOIN StringIds AS string ON string.id = wanted.value

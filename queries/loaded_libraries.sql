-- Which of some shared libraries the export names, in paths; no other text is returned. Strings that may be
-- paths of libraries are picked first, so that each is compared with the list once.
--   ?  JSON list of base names
SELECT DISTINCT library.value
FROM StringIds AS string
CROSS JOIN json_each(?) AS library
WHERE string.value LIKE '%.so%' AND instr(string.value, '/' || library.value) > 0

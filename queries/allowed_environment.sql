-- Environment variables of the profiled command, the allowed ones alone: the table holds whole
-- environments, keys and tokens among them.
--   ?  JSON list of the allowed names
SELECT variable.value AS assignment
FROM META_DATA_CAPTURE AS variable
WHERE variable.name LIKE 'PROCESS\_%:ENVIRONMENT\_VARIABLE' ESCAPE '\'
  AND SUBSTR(variable.value, 1, INSTR(variable.value, '=') - 1) IN (
      SELECT allowed.value FROM json_each(?) AS allowed
  )
ORDER BY variable.rowid

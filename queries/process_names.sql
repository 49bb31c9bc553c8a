-- Names of some processes
--   ?  JSON list of global ids
SELECT DISTINCT process.name
FROM json_each(?) AS wanted
JOIN PROCESSES AS process ON process.globalPid = wanted.value
ORDER BY process.name

-- Host name and the environment of the profiler's agent (';'-joined; the allowed names are cut out
-- of it before anything is kept).
SELECT fact.name, fact.value
FROM TARGET_INFO_SYSTEM_ENV AS fact
WHERE fact.name IN ('Hostname', 'DeviceEnvironment')
ORDER BY fact.rowid

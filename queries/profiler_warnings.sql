-- What the profiler itself reports as a warning or an error, the most severe first.
SELECT message.text AS said
FROM DIAGNOSTIC_EVENT AS message
WHERE message.severity >= 2
ORDER BY message.severity DESC, message.rowid
LIMIT 8

-- Whether the profiler says that something in the program, or a key, started the capture.
SELECT COUNT(*) AS starts
FROM DIAGNOSTIC_EVENT AS message
WHERE message.text LIKE 'Profiling started due to%'

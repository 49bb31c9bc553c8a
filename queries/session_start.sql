-- UTC of session time 0, in ns since 1970.
SELECT session.utcEpochNs AS session_start_utc_ns
FROM TARGET_INFO_SESSION_START_TIME AS session
LIMIT 1

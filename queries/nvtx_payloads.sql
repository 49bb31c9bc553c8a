-- Binary payloads of some NVTX rows, as bytes; only as much as a payload of NCCL can have.
--   ?  JSON list of row ids
SELECT event.rowid AS row_id, SUBSTR(CAST(event.binaryData AS BLOB), 1, 8192) AS payload
FROM json_each(?) AS wanted
JOIN NVTX_EVENTS AS event ON event.rowid = wanted.value
WHERE event.binaryData IS NOT NULL

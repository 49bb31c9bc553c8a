-- JSON payloads of some NVTX rows; longer ones are cut, and so no JSON any more.
--   ?  JSON list of row ids
SELECT
    event.rowid AS row_id,
    SUBSTR(CAST(COALESCE(event.jsonText, string.value) AS TEXT), 1, 65536) AS payload
FROM json_each(?) AS wanted
JOIN NVTX_EVENTS AS event ON event.rowid = wanted.value
LEFT JOIN StringIds AS string ON string.id = event.jsonTextId
WHERE COALESCE(event.jsonText, string.value) IS NOT NULL

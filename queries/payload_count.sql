-- Layouts of NVTX payloads that the program registered, and payloads that the export holds.
SELECT
    (SELECT COUNT(*) FROM NVTX_PAYLOAD_SCHEMAS AS layout) AS layouts,
    (
        SELECT COUNT(*)
        FROM NVTX_EVENTS AS event
        WHERE event.binaryData IS NOT NULL
           OR event.jsonText IS NOT NULL
           OR event.jsonTextId IS NOT NULL
    ) AS payloads

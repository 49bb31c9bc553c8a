-- Sizes of NVTX payload schemas, in bytes. Each process repeats them, and no column names the process.
SELECT DISTINCT payload.domainId AS domain, payload.schemaId AS schema, payload.payloadSize AS payload_bytes
FROM NVTX_PAYLOAD_SCHEMAS AS payload

-- Entries of NVTX payload schemas. Each process repeats them, and no column names the process.
SELECT DISTINCT
    entry.domainId AS domain,
    entry.schemaId AS schema,
    entry.idx AS entry_index,
    entry.name,
    entry.type,
    entry."offset" AS offset_bytes,
    entry.flags
FROM NVTX_PAYLOAD_SCHEMA_ENTRIES AS entry

-- Host ranges of NCCL: those in a domain called NCCL and, of processes that name no such domain, those
-- whose registered text is an NCCL function. Domains are numbered anew in each process.
WITH nccl_domain AS (
    SELECT DISTINCT domain.globalTid >> 24 AS process, domain.domainId AS domain
    FROM NVTX_EVENTS AS domain
    LEFT JOIN StringIds AS string ON string.id = domain.textId
    WHERE domain.eventType = 75
      AND COALESCE(domain.text, string.value) = 'NCCL'
)
SELECT
    event.rowid AS row_id,
    event.globalTid AS global_tid,
    event.start AS start_ns,
    event."end" AS end_ns,
    COALESCE(event.text, string.value) AS name
FROM NVTX_EVENTS AS event
LEFT JOIN StringIds AS string ON string.id = event.textId
WHERE event.eventType IN (59, 60)
  AND CASE
      WHEN event.globalTid >> 24 IN (SELECT nccl_domain.process FROM nccl_domain)
      THEN (event.globalTid >> 24, event.domainId) IN (
          SELECT nccl_domain.process, nccl_domain.domain FROM nccl_domain
      )
      ELSE event.domainId <> 0
          AND event.text IS NULL
          AND SUBSTR(string.value, 1, 4) = 'nccl'
          AND SUBSTR(string.value, 5, 1) BETWEEN 'A' AND 'Z'
  END
ORDER BY event.rowid

-- What the profiler said of lost records, by severity. Only known phrases are counted; the texts
-- themselves may name paths and stay where they are.
SELECT
    SUM(message.text LIKE 'CUPTI dropped%'
        OR message.text LIKE '%incomplete CUPTI events dropped%'
        OR message.text LIKE '%CUPTI events were detected incomplete%'
        OR message.text LIKE 'CUPTI buffer allocation limit%'
        OR message.text LIKE '%GPU events were discarded%'
        OR message.text LIKE 'Some events (%were lost%'
        OR message.text LIKE '%Some CUPTI events might be missing%') AS lost_records,
    SUM(message.text LIKE 'Not all CUDA events might have been collected%') AS perhaps_incomplete
FROM DIAGNOSTIC_EVENT AS message

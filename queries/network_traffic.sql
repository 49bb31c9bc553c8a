-- Bytes per second that network cards received and sent inside one window: each sample counts by its time
-- there. Cards serve all processes of the host. Other units than bytes/ms are left out. Exports before
-- schema 3.7 have no table NIC_ID_MAP, and globalId next to the name.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
WITH sample AS (
    SELECT
        COALESCE(card.name, 'card ' || metric.globalId) AS card_name,
        described.name AS metric_name,
        metric.value * 1000.0 AS bytes_per_s,
        MIN(metric."end" - :time_shift_ns, :end_ns)
            - MAX(metric.start - :time_shift_ns, :start_ns) AS inside_ns
    FROM NET_NIC_METRIC AS metric
    JOIN TARGET_INFO_NETWORK_METRICS AS described
        ON described.metricsListId = metric.metricsListId AND described.metricsIdx = metric.metricsIdx
    LEFT JOIN NIC_ID_MAP AS id ON id.globalId = metric.globalId
    LEFT JOIN TARGET_INFO_NIC_INFO AS card ON card.nicId = id.nicId
    WHERE described.name LIKE '%: Bytes %'
      AND LOWER(described.unit) IN ('bytes/ms', 'b/ms')
)
SELECT
    sample.card_name,
    sample.metric_name,
    SUM(sample.bytes_per_s * sample.inside_ns) / SUM(sample.inside_ns) AS bytes_per_s
FROM sample
WHERE sample.inside_ns > 0
GROUP BY sample.card_name, sample.metric_name
ORDER BY bytes_per_s DESC, sample.card_name, sample.metric_name

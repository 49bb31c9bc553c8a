-- Busy and idle time of each rank inside one window, in ns, as wallscope
-- counts them.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
--   busy_ns              length of the union of kernels, copies, fills and
--                        whole-graph rows inside it
--   idle_ns              the rest of the window
--
-- Each row is a rank: a process (global_pid) and the device it calls
-- device_id. Operations are taken in order of their start. Each one counts
-- only the part after the latest end of all earlier ones; busy_ns is the sum
-- of these parts. An export lacks tables without rows: remove their branches
-- from the query.
WITH operation AS (
    SELECT
        kernel.globalPid AS global_pid,
        kernel.deviceId AS device_id,
        kernel.start - :time_shift_ns AS start_ns,
        kernel."end" - :time_shift_ns AS end_ns
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
    UNION ALL
    SELECT copy.globalPid, copy.deviceId, copy.start - :time_shift_ns, copy."end" - :time_shift_ns
    FROM CUPTI_ACTIVITY_KIND_MEMCPY AS copy
    UNION ALL
    SELECT fill.globalPid, fill.deviceId, fill.start - :time_shift_ns, fill."end" - :time_shift_ns
    FROM CUPTI_ACTIVITY_KIND_MEMSET AS fill
    UNION ALL
    SELECT graph.globalPid, graph.deviceId, graph.start - :time_shift_ns, graph."end" - :time_shift_ns
    FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS graph
),
clipped AS (
    SELECT
        operation.global_pid,
        operation.device_id,
        MAX(operation.start_ns, :start_ns) AS start_ns,
        MIN(operation.end_ns, :end_ns) AS end_ns
    FROM operation
    WHERE operation.end_ns >= operation.start_ns
      AND operation.end_ns > :start_ns
      AND operation.start_ns < :end_ns
),
reached AS (
    SELECT
        clipped.global_pid,
        clipped.device_id,
        clipped.start_ns,
        clipped.end_ns,
        MAX(clipped.end_ns) OVER (
            PARTITION BY clipped.global_pid, clipped.device_id
            ORDER BY clipped.start_ns, clipped.end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM clipped
),
fresh AS (
    SELECT
        reached.global_pid,
        reached.device_id,
        MAX(reached.end_ns - MAX(reached.start_ns, COALESCE(reached.reached_ns, reached.start_ns)), 0) AS fresh_ns
    FROM reached
)
SELECT
    fresh.global_pid,
    fresh.device_id,
    SUM(fresh.fresh_ns) AS busy_ns,
    :end_ns - :start_ns - SUM(fresh.fresh_ns) AS idle_ns
FROM fresh
GROUP BY fresh.global_pid, fresh.device_id
ORDER BY fresh.global_pid, fresh.device_id

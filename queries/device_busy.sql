-- Busy and idle time of each rank over the whole capture, in ns, as wallscope counts them.
--   busy_ns    length of the union of kernels, copies, fills and whole-graph rows
--   idle_ns    the rest of the window, from the start of the first row to the end of the last
--
-- Each row is a rank: a process (global_pid) and the device it calls device_id. A span opens a new
-- block where it starts after everything before it has ended; the union is the sum of the blocks.
-- An export lacks the tables that it has no rows for: leave those branches out.
WITH operation AS (
    SELECT kernel.globalPid AS global_pid, kernel.deviceId AS device_id, kernel.start AS start_ns, kernel."end" AS end_ns
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
    UNION ALL
    SELECT copy.globalPid, copy.deviceId, copy.start, copy."end"
    FROM CUPTI_ACTIVITY_KIND_MEMCPY AS copy
    UNION ALL
    SELECT fill.globalPid, fill.deviceId, fill.start, fill."end"
    FROM CUPTI_ACTIVITY_KIND_MEMSET AS fill
    UNION ALL
    SELECT graph.globalPid, graph.deviceId, graph.start, graph."end"
    FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE AS graph
),
timed AS (
    SELECT operation.global_pid, operation.device_id, operation.start_ns, operation.end_ns
    FROM operation
    WHERE operation.end_ns >= operation.start_ns
      AND NOT (operation.start_ns = 0 AND operation.end_ns = 0)
),
reached AS (
    SELECT
        timed.global_pid,
        timed.device_id,
        timed.start_ns,
        timed.end_ns,
        MAX(timed.end_ns) OVER (
            PARTITION BY timed.global_pid, timed.device_id
            ORDER BY timed.start_ns, timed.end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS reached_ns
    FROM timed
),
gap AS (
    SELECT
        reached.global_pid,
        reached.device_id,
        reached.start_ns,
        reached.end_ns,
        MAX(reached.start_ns - COALESCE(reached.reached_ns, reached.start_ns), 0) AS before_ns
    FROM reached
)
SELECT
    gap.global_pid,
    gap.device_id,
    MAX(gap.end_ns) - MIN(gap.start_ns) AS window_ns,
    MAX(gap.end_ns) - MIN(gap.start_ns) - SUM(gap.before_ns) AS busy_ns,
    SUM(gap.before_ns) AS idle_ns
FROM gap
GROUP BY gap.global_pid, gap.device_id
ORDER BY gap.global_pid, gap.device_id

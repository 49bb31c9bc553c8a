-- The gaps of one window in which no compute kernel of a rank ran, the
-- longest first, in ns.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
--   :communication       a pattern (GLOB) for communication kernels, such
--                        as 'nccl*'
--
-- Each row is a gap of a rank: a process (global_pid) and the device it
-- calls device_id. The gaps of a rank sum to the three values of
-- compute_absent in the JSON answer. This needs an export whose kernels all
-- compute or match the pattern, without CUDA graphs traced as a whole. The
-- compute wall differs from the step minus these gaps: a gap before a kernel
-- that was already launched counts as compute, and recomputed work does not.
WITH computing AS (
    SELECT
        kernel.globalPid AS global_pid,
        kernel.deviceId AS device_id,
        MAX(kernel.start - :time_shift_ns, :start_ns) AS start_ns,
        MIN(kernel."end" - :time_shift_ns, :end_ns) AS end_ns
    FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
    JOIN StringIds AS name ON name.id = kernel.shortName
    WHERE kernel."end" - :time_shift_ns > :start_ns
      AND kernel.start - :time_shift_ns < :end_ns
      AND name.value NOT GLOB :communication
),
reached AS (
    SELECT
        computing.global_pid,
        computing.device_id,
        computing.start_ns AS gap_end_ns,
        COALESCE(
            MAX(computing.end_ns) OVER (
                PARTITION BY computing.global_pid, computing.device_id
                ORDER BY computing.start_ns, computing.end_ns
                ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ),
            :start_ns
        ) AS gap_start_ns
    FROM computing
    UNION ALL
    SELECT computing.global_pid, computing.device_id, :end_ns, MAX(computing.end_ns)
    FROM computing
    GROUP BY computing.global_pid, computing.device_id
)
SELECT
    reached.global_pid,
    reached.device_id,
    reached.gap_start_ns,
    reached.gap_end_ns,
    reached.gap_end_ns - reached.gap_start_ns AS gap_ns
FROM reached
WHERE reached.gap_end_ns > reached.gap_start_ns
ORDER BY reached.global_pid, reached.device_id, gap_ns DESC, reached.gap_start_ns

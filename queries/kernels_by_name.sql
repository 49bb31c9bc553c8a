-- Kernels that start inside one window, by name: how many, and their
-- added-up durations (work, not time), in ns.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
--   :name                a pattern (GLOB) of short names: '*' for all,
--                        'nccl*' for those of NCCL
SELECT
    kernel.globalPid AS global_pid,
    kernel.deviceId AS device_id,
    name.value AS kernel_name,
    COUNT(*) AS kernel_count,
    SUM(kernel."end" - kernel.start) AS work_ns
FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
JOIN StringIds AS name ON name.id = kernel.shortName
WHERE kernel.start - :time_shift_ns >= :start_ns
  AND kernel.start - :time_shift_ns < :end_ns
  AND name.value GLOB :name
GROUP BY kernel.globalPid, kernel.deviceId, name.value
ORDER BY global_pid, device_id, work_ns DESC, kernel_name

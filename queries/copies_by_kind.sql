-- Copies that start inside one window, by direction, memory kinds and size:
-- count, bytes, added-up durations in ns.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
--   copy_kind            1 to the device, 2 to the host, 8 inside the
--                        device, 10 between devices
--   source_kind, target_kind   0 pageable, 1 pinned, 2 device memory
--   is_bulk              1 for copies of 64 KiB and more
SELECT
    copy.globalPid AS global_pid,
    copy.deviceId AS device_id,
    copy.copyKind AS copy_kind,
    copy.srcKind AS source_kind,
    copy.dstKind AS target_kind,
    copy.bytes >= 65536 AS is_bulk,
    COUNT(*) AS copy_count,
    SUM(copy.bytes) AS copied_bytes,
    SUM(copy."end" - copy.start) AS work_ns
FROM CUPTI_ACTIVITY_KIND_MEMCPY AS copy
WHERE copy.start - :time_shift_ns >= :start_ns
  AND copy.start - :time_shift_ns < :end_ns
GROUP BY copy.globalPid, copy.deviceId, copy.copyKind, copy.srcKind, copy.dstKind, is_bulk
ORDER BY global_pid, device_id, copied_bytes DESC, copy_kind, source_kind, target_kind

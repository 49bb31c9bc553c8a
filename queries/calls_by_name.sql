-- CUDA API calls that end inside one window, by name: their number, and the
-- time that threads spent in them, in ns.
--   :start_ns, :end_ns   the window: a step's start_ns and end_ns of the
--                        JSON answer
--   :time_shift_ns       time_shift_ns of the input in the JSON answer, 0
--                        for most exports
--   :name                a pattern (GLOB): '*' for all, '*Synchronize*' for
--                        those that wait
--
-- A long call alone is not a stall, because the device may work during the
-- call. The causes show its cost.
SELECT
    call.globalTid AS global_tid,
    name.value AS call_name,
    COUNT(*) AS call_count,
    SUM(call."end" - call.start) AS in_call_ns
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call
JOIN StringIds AS name ON name.id = call.nameId
WHERE call."end" - :time_shift_ns > :start_ns
  AND call."end" - :time_shift_ns <= :end_ns
  AND name.value GLOB :name
GROUP BY call.globalTid, name.value
ORDER BY global_tid, in_call_ns DESC, call_name

-- Processes that issued CUDA calls.
SELECT COUNT(DISTINCT call.globalTid >> 24) AS processes
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call

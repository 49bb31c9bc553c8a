-- GPUs that the profiler's own CUDA calls by this ordinal; right for a process that sees them in the
-- same order. Adapters without multiprocessors are no CUDA devices.
--   ?  CUDA ordinal
SELECT gpu.id
FROM TARGET_INFO_GPU AS gpu
WHERE gpu.cuDevice = ?
  AND gpu.smCount > 0

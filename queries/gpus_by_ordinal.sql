-- GPUs with this CUDA ordinal in the profiler's own process. A process that sees the GPUs in the same order
-- uses the same ordinals. Adapters without multiprocessors are not CUDA devices.
--   ?  CUDA ordinal
SELECT gpu.id
FROM TARGET_INFO_GPU AS gpu
WHERE gpu.cuDevice = ?
  AND gpu.smCount > 0

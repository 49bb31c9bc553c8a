-- Versions of the NVIDIA driver, of the CUDA that it supports, and the folder of the profiler, which names its
-- version.
SELECT fact.name, fact.value
FROM TARGET_INFO_SYSTEM_ENV AS fact
WHERE fact.name IN ('NvDriverVersion', 'CudaDriverVersion', 'TargetInstallDir')
ORDER BY fact.rowid

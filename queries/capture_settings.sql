-- Settings that make a capture cost more or less, of any process. The table holds command lines and
-- environments too: only these names are asked for.
SELECT setting.name, setting.value
FROM META_DATA_CAPTURE AS setting
WHERE setting.name = 'CAPTURE_EVENT_TYPE'
   OR setting.name LIKE '%COLLECT_GPU_MEMORY_USAGE'
   OR setting.name LIKE '%COLLECT\_UVM\_%\_PAGE_FAULTS' ESCAPE '\'
   OR setting.name LIKE '%COLLECT_GPU_CTX_SW_TRACE'
   OR setting.name LIKE '%COLLECT_BACKTRACES'
   OR setting.name LIKE '%COLLECT_IP_BACKTRACE_SAMPLES'
   OR setting.name LIKE '%COLLECT_CPU_CTXSW_TRACE'
   OR setting.name LIKE '%COLLECT_MPI_TRACE'
   OR setting.name LIKE '%CUDA_FLUSH_PERIODICALLY'
   OR setting.name LIKE 'GPU\_METRICS\_OPTIONS:SAMPLING_FREQUENCY' ESCAPE '\'
ORDER BY setting.rowid

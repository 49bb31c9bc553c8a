-- The options of the capture: what was traced, and how CUDA graphs were traced.
SELECT option.name, option.value
FROM META_DATA_CAPTURE AS option
WHERE option.name = 'CAPTURE_EVENT_TYPE'
   OR option.name LIKE '%CUDA_GRAPH_TRACE_OPTIONS:MODE'

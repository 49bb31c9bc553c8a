-- Calls that launched a CUDA graph.
SELECT COUNT(*) AS launches
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call
WHERE call.nameId IN (
    SELECT string.id
    FROM StringIds AS string
    WHERE string.value LIKE 'cudaGraphLaunch%'
       OR string.value LIKE 'cuGraphLaunch%'
)

-- Calls that launched kernels or CUDA graphs.
SELECT COUNT(*) AS launches
FROM CUPTI_ACTIVITY_KIND_RUNTIME AS call
WHERE call.nameId IN (
    SELECT string.id
    FROM StringIds AS string
    WHERE string.value LIKE 'cudaLaunch%'
       OR string.value LIKE 'cuLaunch%'
       OR string.value LIKE 'cudaGraphLaunch%'
       OR string.value LIKE 'cuGraphLaunch%'
)

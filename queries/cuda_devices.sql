-- Which physical GPU a process calls by which CUDA ordinal (schema 3.17 and later).
SELECT device.pid, device.cudaId AS device, device.gpuId AS gpu
FROM TARGET_INFO_CUDA_DEVICE AS device
WHERE device.gpuId IS NOT NULL
ORDER BY device.pid, device.cudaId

-- Which physical GPU a process calls by which CUDA ordinal, where the export has no id of it but its UUID
-- (schema 3.24.14 and later). A part of a GPU (MIG) has a UUID of its own and is not found.
SELECT device.pid, device.cudaId AS device, gpu.id AS gpu
FROM TARGET_INFO_CUDA_DEVICE AS device
INNER JOIN TARGET_INFO_GPU AS gpu ON gpu.uuid = device.uuid
WHERE device.gpuId IS NULL
  AND device.uuid <> '00000000-0000-0000-0000-000000000000'
ORDER BY device.pid, device.cudaId, gpu.id

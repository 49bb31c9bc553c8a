-- Which rank each thread that called MPI belongs to (schema 3.1.7 and later).
SELECT DISTINCT mpi.globalTid AS global_tid, mpi.rank
FROM MPI_RANKS AS mpi
WHERE mpi.globalTid IS NOT NULL
ORDER BY mpi.globalTid, mpi.rank

-- Ranks of the largest MPI communicator: MPI_COMM_WORLD, unless processes were spawned later.
SELECT MAX(communicator.size) AS size
FROM MPI_COMMUNICATORS AS communicator

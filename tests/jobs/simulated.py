"""A simulated job: ranks that meet in every step, one of them slower."""

from fixtures.simulation.program import NULL_STREAM, HostThread, Program, Record, WaitEvent, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import COMMUNICATION, STEPS, all_to_all, behind_compute, gemm
from fixtures.simulation.writing import write_run

RANKS = 4
LATE = 2


def thread(rank, ranks, slow):
    def one(_):
        met = all_to_all(100, participants=tuple(range(ranks)))
        factor = slow if rank == LATE else 1.0
        through = (Record("done", COMMUNICATION), WaitEvent(NULL_STREAM, "done"))
        return gemm(300 * factor), *behind_compute(met), *through, gemm(200 * factor), Work(2_000)

    return (HostThread("python", stepped(STEPS, one)),)


def write_job(folder, ranks=RANKS, slow=1.2):
    folder.mkdir()
    played = run(Program(tuple(thread(rank, ranks, slow) for rank in range(ranks))))
    for rank in range(ranks):
        write_run(played, folder / f"run_rank{rank}.sqlite", ranks=[rank])
    return folder

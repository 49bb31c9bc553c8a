"""Jobs with planted lateness as exports: programs that ranks run, each captured by the clock of its host."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from fixtures.simulation.names import ATTENTION, GEMM, GEMM_2, GROUPED_GEMM
from fixtures.simulation.program import (
    NULL_STREAM,
    Allocate,
    Collective,
    Free,
    HostThread,
    Launch,
    Program,
    Record,
    SyncStream,
    WaitEvent,
    Why,
    Work,
    stepped,
)
from fixtures.simulation.run import run
from fixtures.simulation.story import COMMUNICATION, GRADIENTS, behind_compute
from fixtures.simulation.writing import HostClock, write_run
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options

US, MS = 1_000, 1_000_000
STEPS, LAYERS = 7, 2
TRUE = HostClock()


@dataclass(frozen=True)
class Rank:
    """What is different of a rank in a step: factors of its work, time on the host, more kernels."""

    slow: float = 1.0
    tokens: float = 1.0
    host_us: int = 0
    why: Why = Why.FRAMEWORK
    allocated_us: int = 0
    extra_us: int = 0
    jitter_us: float = 0.0


USUAL = Rank()


def through(collective, event):
    """A collective behind the compute stream, that its next kernel waits for."""
    done = f"{event} done"
    return (
        *behind_compute(collective, event=event),
        Record(done, collective.stream),
        WaitEvent(NULL_STREAM, done),
    )


def kernel(kernel, us):
    return Launch(kernel, round(us * US))


def data_parallel(size, planted, steps=STEPS):
    """Ranks that exchange tokens in each layer and reduce gradients at the end of the step.

    `planted(rank, step)` tells what is different there.
    """
    everyone = tuple(range(size))
    exchange = Collective("all-to-all", "ep", 60 * US, COMMUNICATION, everyone)
    reduction = Collective("all-reduce", "dp-gradient", 90 * US, GRADIENTS, everyone)

    def step(rank, number):
        own = planted(rank, number)
        yield SyncStream()
        if own.host_us:
            yield Work(own.host_us * US, own.why)
        if own.allocated_us:
            yield from (Free(own.allocated_us * US // 2), Allocate(own.allocated_us * US // 2))
        for layer in range(LAYERS):
            yield kernel(ATTENTION, 220 * own.slow + own.jitter_us)
            yield kernel(GEMM, 130 * own.slow)
            if own.extra_us:
                yield kernel(GEMM_2, own.extra_us)
            sent = replace(exchange, sent_bytes=round(own.tokens * (1 << 22)))
            yield from through(sent, f"dispatch {layer}")
            yield kernel(GROUPED_GEMM, 260 * own.slow * own.tokens)
            yield from through(sent, f"combine {layer}")
            yield kernel(GEMM, 60 * own.slow)
        yield from through(reduction, "gradients")
        yield kernel(GEMM_2, 40 * own.slow)
        yield Work(4 * US)

    return program([partial(step, rank) for rank in range(size)], steps)


def pipelined(stages, replicas, planted, micro_batches=4, steps=STEPS):
    """Stages that hand on microbatches; replicas of a stage reduce gradients at the end of the step."""

    def step(rank, number):
        stage, replica = rank % stages, rank // stages
        own = planted(rank, number)
        for place in range(micro_batches):
            if stage:
                yield from through(message(rank - 1, rank), f"came {place}")
            yield kernel(GEMM, 250 * own.slow)
            if own.extra_us:
                yield kernel(GEMM_2, own.extra_us)
            if stage < stages - 1:
                yield from behind_compute(message(rank, rank + 1), event=f"went {place}")
        if stage < stages - 1:
            yield from (Record("all went", PIPELINE), WaitEvent(NULL_STREAM, "all went"))
        if replicas > 1:
            group = tuple(stage + stages * other for other in range(replicas))
            yield from through(
                Collective("all-reduce", "dp-gradient", 90 * US, GRADIENTS, group), f"gradients {replica}"
            )
        yield kernel(GEMM_2, 40 * own.slow)
        yield from (SyncStream(), Work(4 * US))

    return program([partial(step, rank) for rank in range(stages * replicas)], steps)


PIPELINE = 28


def message(sender, receiver):
    return Collective("send-recv", "pp", 20 * US, PIPELINE, (sender, receiver))


def program(ranks, steps):
    return Program(
        tuple(
            (HostThread("python", stepped(steps, lambda number, one=one: tuple(one(number)))),)
            for one in ranks
        )
    )


def jittered(size, us, seed=3):
    """Ranks that differ at random, in every step."""
    draws = np.abs(np.random.default_rng(seed).normal(0, us, (size, 100)))
    return lambda rank, step: Rank(jitter_us=float(draws[rank, step]))


def captured(planted, folder, clocks=None):
    """The exports of a program, one a rank, each by the clock of its host."""
    played = run(planted)
    rng = np.random.default_rng(17)
    for rank in range(len(played.ranks)):
        clock = clocks[rank] if clocks else TRUE
        session = replace(clock, session_ns=-int(rng.integers(MS, 50 * MS)))
        write_run(played, folder / f"run_rank{rank:02d}.sqlite", ranks=[rank], clock=session)
    return sorted(folder.glob("*.sqlite"))


def captured_by_node(planted, folder, clocks, a_node):
    """The exports of a program, one a node, with the ranks of each."""
    played = run(planted)
    for node, clock in enumerate(clocks):
        own = range(node * a_node, (node + 1) * a_node)
        write_run(played, folder / f"node{node}.sqlite", ranks=own, clock=clock)
    return sorted(folder.glob("*.sqlite"))


def judged(planted, folder, clocks=None):
    """What the whole tool says of the job, exports read one by one."""
    return run_job(captured(planted, folder, clocks), Options(), lambda _: None).analysis

"""Random profiles, sound by the schema, for laws."""

import polars as pl
from hypothesis import strategies as st

from wallscope.model.analysis import AnchorUnit
from wallscope.model.capture import GraphTracing
from wallscope.model.enums import Absent, Axis, DeviceState, Wall
from wallscope.model.profile import (
    OPERATION_KEYS,
    PROFILE_STEPS,
    RECOVERABLE,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Communicators,
    Header,
    Profile,
    ProfiledInput,
    Work,
)

OPERATIONS = (
    ("forward", "gemm", "nvjet_128x128", None, None, "bf16", "compute/gemm"),
    ("forward", "attention", "flash_fwd", None, None, None, "compute/attention"),
    ("forward", "gemm", "nvjet_64x256", None, None, "bf16", "compute/gemm"),
    ("", "all-to-all", "ncclDevKernel_SendRecv", "ep", "nccl", None, "communication/ep/unsplit"),
    ("", "host", "cudaStreamSynchronize", None, None, None, "host/framework"),
    ("optimizer", "device-to-host", "", None, None, None, "memory/offload"),
)
UNIT: AnchorUnit = "step"


def work(name: str = "train_step", gpu: str | None = "NVIDIA H100", tokens: int | None = None) -> Work:
    """Steps of one kind on one GPU."""
    sizes = (Communicators(Axis.EP, (8, 16)),)
    return Work("nvtx", UNIT, name, tokens, gpu, 132, 16, GraphTracing.NONE, sizes)


def captured(fingerprint: str) -> ProfiledInput:
    """A capture of that content."""
    return ProfiledInput(fingerprint, "run.sqlite", "2026.2", "node-1", 17, ("one-rank",))


def profile_of(
    fingerprint: str, steps: list[list[int]], work_of: Work | None = None, operations=OPERATIONS
) -> Profile:
    """The profile of steps that last as long as their operations own; each operation runs once a step."""
    keys = pl.DataFrame(
        [(number, *row[:6]) for number, row in enumerate(sorted(operations, key=_by_key))],
        schema=OPERATION_KEYS,
        orient="row",
    )
    causes = [row[6] for row in sorted(operations, key=_by_key)]
    order = [operations.index(row) for row in sorted(operations, key=_by_key)]
    owned, ran, account, by_cause = [], [], [], []
    start_ns = 1_000
    for step, times in enumerate(steps):
        end_ns = start_ns + sum(times)
        walls = dict.fromkeys(Wall, 0)
        for key, place in enumerate(order):
            time_ns = times[place]
            wall = causes[key].split("/")[0]
            walls[Wall(wall)] += time_ns
            owned.append((0, step, key, causes[key], time_ns, 0))
            ran.append((0, step, key, 1, time_ns, None, None))
        sums = {cause: sum(row[4] for row in owned if row[1] == step and row[3] == cause) for cause in causes}
        for cause, time_ns in sums.items():
            state, absent = (
                (DeviceState.COMPUTE, None) if cause[:7] == "compute" else (DeviceState.IDLE, Absent.BLOCKING)
            )
            by_cause.append((0, step, cause, state, absent, time_ns))
        budget = (walls[Wall.COMPUTE], 0, 0, 0, end_ns - start_ns - walls[Wall.COMPUTE])
        account.append((0, step, start_ns, end_ns, True, None, *budget, *walls.values()))
        start_ns = end_ns
    return Profile(
        Header(3, 0, work_of or work(), (captured(fingerprint),)),
        pl.DataFrame(account, schema=PROFILE_STEPS, orient="row"),
        keys,
        pl.DataFrame(ran, schema=STEP_WORK, orient="row"),
        pl.DataFrame(owned, schema=STEP_OWNED, orient="row"),
        pl.DataFrame(by_cause, schema=STEP_CAUSES, orient="row").sort(pl.all(), nulls_last=True),
        pl.DataFrame([(0, "host/framework", 5)], schema=RECOVERABLE, orient="row"),
    )


def _by_key(row: tuple) -> tuple:
    return tuple((part is None, part or "") for part in row[:6])


times = st.lists(
    st.lists(st.integers(0, 10**9), min_size=len(OPERATIONS), max_size=len(OPERATIONS)),
    min_size=1,
    max_size=6,
)


def profiles(fingerprint: str = "a") -> st.SearchStrategy[Profile]:
    """Profiles of one to six steps."""
    return st.builds(profile_of, st.just(fingerprint), times)

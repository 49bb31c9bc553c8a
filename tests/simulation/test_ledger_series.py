"""Simulated series of commits: a fix that a commit makes is recognized, and none is invented.

A series has four commits: the program twice, then with its fix twice, each with other noise. Between like
commits nothing may be recognized, between the second and the third exactly the fix.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from fixtures.simulation.names import ATTENTION, ELEMENTWISE_2, GEMM, NORM, OPTIMIZER, Kernel
from fixtures.simulation.program import (
    Action,
    Allocate,
    Copy,
    Fill,
    Free,
    Graph,
    GraphLaunch,
    Launch,
    Node,
    SyncDevice,
    SyncStream,
    Why,
    Work,
)
from tests.conftest import run_part
from tests.simulation.series import MS, Series, recognize, recognize_series, record_run

MIB = 1 << 20
SIDE_STREAM = 30
FP32_GEMM = Kernel("ampere_sgemm_128x64_nn", "gemm")
BF16_GEMM = Kernel("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "gemm")
COMPUTE = (Launch(GEMM, 4 * MS), Launch(NORM, MS), Launch(GEMM, 4 * MS))


def _series(name: str, before: Sequence[Action], after: Sequence[Action], *fixes: str) -> Series:
    return Series(name, (*COMPUTE, *before), (*COMPUTE, *after), frozenset(fixes))


def _offload(ms: float) -> tuple[Action, ...]:
    time_ns = round(ms * MS)
    return (
        Copy("device-to-host", 64 * MIB, time_ns, is_offload=True),
        Copy("host-to-device", 64 * MIB, time_ns, is_offload=True),
        Launch(GEMM, MS),
    )


_SMALL = tuple(Node(ELEMENTWISE_2, 10_000) for _ in range(40))
_WAIT = (SyncDevice(), Work(5 * MS), Launch(GEMM, MS))
_READ = (Copy("device-to-host", 1_024, 2_000), SyncStream(), Work(5 * MS), Launch(GEMM, MS))
_BATCH = Copy("host-to-device", 64 * MIB, 5 * MS)
SERIES = (
    _series("device-wide wait", _WAIT, (Work(5 * MS), Launch(GEMM, MS)), "no-device-wide-waits"),
    _series("read of a result", _READ, (Work(5 * MS), Launch(GEMM, MS)), "fewer-readbacks"),
    _series("two reads", (*_READ, *_READ), (Launch(GEMM, 2 * MS),), "fewer-readbacks"),
    _series(
        "loader",
        (SyncDevice(), Work(6 * MS, Why.DATA_LOADING), Launch(GEMM, MS)),
        (Launch(GEMM, MS),),
        "data-workers",
    ),
    _series(
        "loader, partly",
        (SyncDevice(), Work(8 * MS, Why.DATA_LOADING), Launch(GEMM, MS)),
        (SyncDevice(), Work(MS, Why.DATA_LOADING), Launch(GEMM, MS)),
        "data-workers",
    ),
    _series(
        "collector",
        (SyncDevice(), Work(4 * MS, Why.GARBAGE_COLLECTION), Launch(GEMM, MS)),
        (Launch(GEMM, MS),),
        "manual-gc",
        "rarer-gc",
    ),
    _series(
        "lock",
        (SyncDevice(), Work(4 * MS, Why.LOCK), Launch(GEMM, MS)),
        (Launch(GEMM, MS),),
        "keep-threads-apart",
    ),
    _series(
        "pageable batch",
        (replace(_BATCH, host_memory="pageable"), Launch(GEMM, MS)),
        (replace(_BATCH, stream=SIDE_STREAM), Launch(GEMM, MS)),
        "pin-batches",
        "prefetch-batches",
    ),
    _series(
        "exposed batch",
        (_BATCH, Launch(GEMM, MS)),
        (replace(_BATCH, stream=SIDE_STREAM), Launch(GEMM, MS)),
        "prefetch-batches",
    ),
    _series(
        "copies on the device",
        (*[Copy("device-to-device", 64 * MIB, MS)] * 5, Launch(GEMM, MS)),
        (Launch(GEMM, MS),),
        "fewer-device-copies",
    ),
    _series(
        "fewer copies on the device",
        (*[Copy("device-to-device", 64 * MIB, MS)] * 6, Launch(GEMM, MS)),
        (Copy("device-to-device", 64 * MIB, MS), Launch(GEMM, MS)),
        "fewer-device-copies",
    ),
    _series("fills", (*[Fill(64 * MIB, MS)] * 4, Launch(GEMM, MS)), (Launch(GEMM, MS),), "fewer-fills"),
    _series(
        "allocator",
        (Free(3 * MS), Allocate(2 * MS), Launch(GEMM, MS)),
        (Launch(GEMM, MS),),
        "expandable-segments",
        "allocate-once",
        "fewer-temporaries",
    ),
    _series(
        "offload",
        _offload(4),
        (Launch(GEMM, MS),),
        "no-offload",
        "smaller-offload",
        "overlap-offload",
    ),
    _series("less offload", _offload(6), _offload(1), "no-offload", "smaller-offload", "overlap-offload"),
    _series(
        "large readback",
        (Copy("device-to-host", 64 * MIB, 5 * MS), SyncStream(), Launch(GEMM, MS)),
        (Copy("device-to-host", 64 * MIB, 5 * MS, SIDE_STREAM), Launch(GEMM, MS)),
        "asynchronous-readback",
    ),
    _series(
        "optimizer",
        (*[Launch(GEMM, 100_000)] * 40, *[Launch(OPTIMIZER, 100_000)] * 30),
        (*[Launch(GEMM, 100_000)] * 40, *[Launch(OPTIMIZER, 150_000)] * 10),
        "fused-optimizer",
        "fused-update",
    ),
    _series(
        "graphs",
        (SyncDevice(), *[Work(150_000), Launch(ELEMENTWISE_2, 10_000)] * 40),
        (SyncDevice(), GraphLaunch(Graph(_SMALL))),
        "cuda-graphs-dense",
        "cuda-graphs-pytorch",
        "cuda-graphs-program",
        "cuda-graphs-more",
        "cuda-graphs-full-iteration",
    ),
    _series(
        "two pools",
        (Free(2 * MS), Allocate(MS), Launch(GEMM, MS), Free(2 * MS), Allocate(MS), Launch(GEMM, MS)),
        (Launch(GEMM, MS), Launch(GEMM, MS)),
        "expandable-segments",
        "allocate-once",
        "fewer-temporaries",
    ),
    Series(
        "precision",
        tuple(Launch(FP32_GEMM, 3 * MS) for _ in range(6)),
        tuple(Launch(BF16_GEMM, MS) for _ in range(6)),
        frozenset({"bf16", "tf32", "fp16"}),
    ),
)


@pytest.mark.parametrize("series", run_part(SERIES, name=lambda series: series.name))
def test_the_fix_of_a_series_is_recognized_and_no_other(series, tmp_path):
    before, fixed, after = recognize_series(series, tmp_path, 1)

    assert before == after == []
    assert len(fixed) == 1
    assert set(fixed) <= series.fixes


SLOWER = {
    "another batch": lambda actions: [
        replace(one, duration_ns=round(one.duration_ns * 0.6)) if isinstance(one, Launch) else one
        for one in actions
    ],
    "a slower host": lambda actions: [*actions, SyncDevice(), Work(3 * MS), Launch(GEMM, MS)],
    "faster attention": lambda actions: [*actions, Launch(ATTENTION, MS)],
}


@pytest.mark.parametrize("change", SLOWER.values(), ids=SLOWER)
@pytest.mark.parametrize("series", run_part(SERIES[::4], name=lambda series: series.name))
def test_other_changes_apply_nothing(series, change, tmp_path):
    base, head = (
        record_run(tmp_path, actions, seed)
        for seed, actions in ((1, series.before), (2, change(series.before)))
    )

    assert recognize(base, head) == []


def test_a_cause_that_vanishes_without_a_recommendation_applies_nothing(tmp_path):
    before = (*COMPUTE, *_WAIT)
    base = record_run(tmp_path, before, 1)
    runs = tuple(tuple(replace(profile, fixes=()) for profile in own) for own in base.runs)

    assert recognize(replace(base, runs=runs), record_run(tmp_path, COMPUTE, 2)) == []

"""Settings, environment and versions joined to the causes that they explain, with evidence alone."""

from dataclasses import replace

import pytest

from tests.profile.random_profiles import captured
from wallscope.compare.explanations import compare_environments, join_settings
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import CauseDelta, Mismatch, OperationChange
from wallscope.model.enums import Wall

MS = 1_000_000
STEP_NS = 100 * MS


def cause(name, delta_ms, half_ms=1):
    delta_ns, half_ns = delta_ms * MS, half_ms * MS
    wall = Wall(name.partition("/")[0])
    return CauseDelta(wall, name, 0, delta_ns, delta_ns, delta_ns - half_ns, delta_ns + half_ns)


LOADING, REDUCING = cause("host/data-loading", -30), cause("communication/dp-gradient/unsplit", 12)
LOADED = describe_cause("host/data-loading")
UNSURE = cause("communication/dp-gradient/unsplit", 12, 20)
GEMM = cause("compute/gemm", -20)
WORKERS = Mismatch("num_workers", "2", "8", "changed", is_setting=True)
NCCL = Mismatch("NCCL_NVLS_ENABLE", "1", "0", "changed", is_setting=True)


@pytest.mark.parametrize(
    ("found", "causes", "expected"),
    [
        pytest.param([WORKERS], [LOADING], [(f"num_workers 2 → 8: {LOADED}", -30)], id="loader"),
        pytest.param([WORKERS], [REDUCING], [], id="nothing that it concerns changed"),
        pytest.param([NCCL], [UNSURE], [], id="a change that may be none"),
        pytest.param([NCCL], [cause("communication/dp-gradient/unsplit", 0.1, 0.05)], [], id="too small"),
        pytest.param([replace(WORKERS, severity="note")], [LOADING], [], id="a note is no setting"),
        pytest.param([replace(WORKERS, is_setting=False)], [LOADING], [], id="what a capture shows"),
        pytest.param(
            [Mismatch("seed", "1", "2", "changed", is_setting=True)],
            [LOADING],
            [],
            id="a setting of no cause",
        ),
        pytest.param(
            [Mismatch("prefetch_factor", "2", "4", "changed", is_setting=True), NCCL, WORKERS],
            [LOADING, REDUCING, GEMM],
            [
                (f"prefetch_factor 2 → 4, num_workers 2 → 8: {LOADED}", -30),
                (f"NCCL_NVLS_ENABLE 1 → 0: {describe_cause(REDUCING.cause)}", 12),
            ],
            id="settings of the same cause together",
        ),
        pytest.param(
            [Mismatch("NVTE_FUSED_ATTN", "0", "1", "changed", is_setting=True)],
            [cause("compute/attention", -9), cause("compute/elementwise", -9)],
            [(f"NVTE_FUSED_ATTN 0 → 1: {describe_cause('compute/attention')}", -9)],
            id="attention, though it is fused",
        ),
    ],
)
def test_a_setting_is_joined_to_causes_that_surely_changed(found, causes, expected):
    joined = join_settings(found, causes, (), STEP_NS)

    assert [entry.message[: len(text)] for entry, (text, _) in zip(joined, expected, strict=True)] == [
        text for text, _ in expected
    ]
    assert [entry.delta_ns for entry in joined] == [delta_ms * MS for _, delta_ms in expected]


def operation(kind, category, delta_ms):
    return OperationChange(
        kind, "", category, category, "b", "a", Wall.COMPUTE, delta_ms * MS, 1, 1, 5, 5, 1, 1
    )


@pytest.mark.parametrize(
    ("operations", "is_joined"),
    [
        pytest.param([operation("replaced", "gemm", 5)], True, id="other kernels of a library"),
        pytest.param([operation("changed", "gemm", 5)], False, id="the same kernels"),
        pytest.param([operation("replaced", "elementwise", 5)], False, id="kernels of no library"),
    ],
)
def test_another_version_of_cuda_is_joined_to_kernels_of_its_libraries(operations, is_joined):
    version = Mismatch("CUDA version of the driver", "12.2", "12.8", "note")
    joined = join_settings([version], (), operations, STEP_NS)

    assert [entry.code for entry in joined] == ["version-changed"] * is_joined
    assert join_settings([], (), operations, STEP_NS) == ()


def test_environments_are_compared_where_both_are_known():
    base = replace(captured("a"), environment=(("NCCL_NVLS_ENABLE", "1"), ("OMP_NUM_THREADS", "8")))
    head = replace(captured("b"), environment=(("NCCL_NVLS_ENABLE", "0"), ("OMP_NUM_THREADS", "8")))

    assert compare_environments(base, head) == (NCCL,)
    assert compare_environments(base, captured("b")) == ()
    assert compare_environments(base, None) == ()

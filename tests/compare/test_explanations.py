from dataclasses import replace
from fractions import Fraction

import pytest

from tests.compare.test_compare import diff, steps
from tests.profile.random_profiles import profile_of, work
from wallscope.compare.comparability import find_mismatches
from wallscope.compare.explanations import explain_changes
from wallscope.compare.operation_changes import pair_operations
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep
from wallscope.compare.wall_deltas import communication_changes
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.enums import Wall

STEP = diff(profile_of("a", steps(9)), profile_of("b", steps(9, seed=2))).step
GEMM = Key("mlp", "gemm", "nvjet_qq_128x128_TNT", None, None, "fp8")
BF16 = GEMM._replace(name="nvjet_tst_64x64_TNN", precision="bf16")
FUSED = Key("mlp", "elementwise", "triton_poi_fused_silu_mul", None, None, None)
SILU = FUSED._replace(name="silu_kernel")
MUL = FUSED._replace(name="mul_kernel")
DISPATCH = Key("layer_#f-layer_#b / moe", "all-to-all", "ncclDevKernel_SendRecv", "ep", "nccl", None)
DEEP = DISPATCH._replace(
    path="moe", category="dispatch", name="deep_ep::internode::dispatch", backend="deep-ep"
)
GRAPH = Key("", "graph", "graph", None, None, None)
READ = Key("", "device-to-host", "", None, None, None)
DRAIN = "host/queue-drained/cudaStreamSynchronize"
HOST = Key("mlp", "host", "cudaStreamSynchronize", None, None, None)


def step(*rows, graphs="none"):
    """A typical step from key, cause, owned time, count, and of communication exposed time and bytes."""
    owned, ran, causes = {}, {}, {}
    for key, cause, owned_ns, count, *known in rows:
        owned[cause, key] = owned_ns
        causes[cause] = causes.get(cause, 0) + owned_ns
        exposed, size = known or (None, None)
        if key.category != "host":
            exposed_ns = None if exposed is None else Fraction(exposed)
            ran[key] = OperationWork(
                Fraction(count), Fraction(100), exposed_ns, None if size is None else Fraction(size)
            )
    walls = {wall: sum(ns for cause, ns in causes.items() if find_wall(cause) == wall) for wall in Wall}
    return TypicalStep(sum(walls.values()), walls, causes, owned, ran), replace(work(), graphs=graphs)


def codes(base, head, of_step=STEP):
    found = find_mismatches((base[1], base[0]), (head[1], head[0]))
    traffic = [one.row for one in communication_changes(base[0], head[0])]
    return [entry.code for entry in explain_changes(base[0], head[0], traffic, found, of_step)]


PRODUCT = (GEMM, "compute/gemm", 500, 10)
HIDDEN = (DISPATCH, "communication/ep/unsplit", 20, 4, 20, 1_000)
SHOWN = (DISPATCH._replace(path="moe"), "communication/ep/unsplit", 90, 4, 90, 1_000)
LAUNCHES = (HOST, "host/launch-call", 60, 0)


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        pytest.param(step(PRODUCT, HIDDEN), step(PRODUCT, HIDDEN), [], id="nothing"),
        pytest.param(step(PRODUCT, HIDDEN), step(PRODUCT, SHOWN), ["ep-overlap-lost"], id="EP overlap off"),
        pytest.param(step(PRODUCT, SHOWN), step(PRODUCT, HIDDEN), ["ep-overlap-gained"], id="EP overlap on"),
        pytest.param(
            step(PRODUCT, graphs="node"), step(PRODUCT, LAUNCHES), ["cuda-graphs-gone"], id="graphs gone"
        ),
        pytest.param(
            step(PRODUCT, LAUNCHES), step(PRODUCT, graphs="node"), ["cuda-graphs-new"], id="graphs new"
        ),
        pytest.param(
            step(PRODUCT),
            step((GRAPH, "unattributed/opaque-graph", 400, 1), graphs="graph"),
            ["opaque-graphs", "cuda-graphs-new"],
            id="kernels hidden in graphs are no lost precision",
        ),
        pytest.param(
            step(PRODUCT, (FUSED, "compute/elementwise", 10, 4)),
            step(PRODUCT, (SILU, "compute/elementwise", 12, 4), (MUL, "compute/elementwise", 12, 4)),
            ["fusion-lost"],
            id="fusion off",
        ),
        pytest.param(
            step(PRODUCT, (FUSED, "compute/elementwise", 10, 4)),
            step(PRODUCT, (SILU, "compute/elementwise", 12, 4)),
            [],
            id="another kernel as often is no lost fusion",
        ),
        pytest.param(
            step(PRODUCT), step((BF16, "compute/gemm", 900, 10)), ["low-precision-lost"], id="FP8 lost"
        ),
        pytest.param(
            step(PRODUCT, SHOWN),
            step(PRODUCT, (DEEP, "communication/ep/unsplit", 30, 4, 90, 1_000)),
            ["dispatcher-changed"],
            id="dispatcher changed",
        ),
        pytest.param(
            step(PRODUCT, SHOWN),
            step(PRODUCT, (*SHOWN[:5], 2_000)),
            ["ep-volume"],
            id="twice the bytes",
        ),
        pytest.param(
            step(PRODUCT),
            step(PRODUCT, (HOST, "host/queue-drained/cudaStreamSynchronize", 50, 0)),
            ["queue-drain-new"],
            id="a call that drains the queue",
        ),
        pytest.param(
            step(PRODUCT, (READ, "memory/small-copy", 2, 5, None, 40), (HOST, DRAIN, 100, 0)),
            step(PRODUCT, (READ, "memory/small-copy", 1, 3, None, 24), (HOST, DRAIN, 65, 0)),
            ["queue-drain-fewer"],
            id="fewer reads",
        ),
        pytest.param(
            step(PRODUCT, (READ, "memory/small-copy", 1, 3, None, 24), (HOST, DRAIN, 65, 0)),
            step(PRODUCT, (READ, "memory/small-copy", 2, 5, None, 40), (HOST, DRAIN, 100, 0)),
            ["queue-drain-more"],
            id="more reads",
        ),
        pytest.param(
            step(PRODUCT, (READ, "memory/small-copy", 2, 5, None, 40), (HOST, DRAIN, 100, 0)),
            step(PRODUCT, (READ, "memory/small-copy", 1, 3, None, 24), (HOST, DRAIN, 95, 0)),
            [],
            id="fewer reads that were not waited for",
        ),
        pytest.param(
            step(PRODUCT, (READ, "memory/small-copy", 2, 5, None, 5 << 20), (HOST, DRAIN, 100, 0)),
            step(PRODUCT, (READ, "memory/small-copy", 2, 3, None, 3 << 20), (HOST, DRAIN, 65, 0)),
            [],
            id="fewer copies of data",
        ),
    ],
)
def test_changes_are_recognised(base, head, expected):
    assert codes(base, head) == expected


@pytest.mark.parametrize(
    ("compiled", "severity"), [("triton_poi_fused_gelu", "changed"), ("gelu_kernel", "incomparable")]
)
def test_a_program_that_a_compiler_fused_stays_comparable(compiled, severity):
    eager = [(SILU._replace(name=f"eager_{letter}"), "compute/elementwise", 9, 20) for letter in "abcd"]
    base = step(PRODUCT, *eager)
    head = step(PRODUCT, (SILU._replace(name=compiled), "compute/elementwise", 9, 2))
    for ours, theirs in ((base, head), (head, base)):
        (found,) = (
            entry
            for entry in find_mismatches((ours[1], ours[0]), (theirs[1], theirs[0]))
            if entry.what == "kernels of the step"
        )
        assert found.severity == severity


def test_a_program_whose_attention_and_update_are_fused_stays_comparable():
    def run(category, name, count):
        return (Key("", category, name, None, None, None), f"compute/{category}", 10 * count, count)

    product = run("gemm", "nvjet_tst_64x64_TNN", 12)
    base = step(product, run("reduction", "softmax_warp_forward<float>", 24), run("elementwise", "mul", 90),
                run("optimizer", "adam", 60))  # fmt: skip
    head = step(product, run("attention", "flash_fwd_kernel", 24), run("optimizer", "multi_tensor_adam", 2))
    other = step(run("gemm", "nvjet_tst_64x64_TNN", 40), run("attention", "flash_fwd_kernel", 24),
                 run("optimizer", "multi_tensor_adam", 2))  # fmt: skip

    assert [_judge_kernels(*sides) for sides in ((base, head), (head, base))] == ["changed", "changed"]
    assert _judge_kernels(base, other) == "incomparable"


def _judge_kernels(base, head):
    (found,) = (
        entry
        for entry in find_mismatches((base[1], base[0]), (head[1], head[0]))
        if entry.what == "kernels of the step"
    )
    return found.severity


def test_fixes_that_were_undone_come_before_the_rest():
    drain = (HOST, "host/queue-drained/cudaStreamSynchronize", 5_000, 0)

    assert codes(step(PRODUCT, HIDDEN), step(PRODUCT, SHOWN, drain)) == ["ep-overlap-lost", "queue-drain-new"]


def test_periodic_slow_steps_are_said_though_the_typical_step_leaves_them_out():
    slow = steps(20, seed=2)
    for number in range(0, 20, 5):
        slow[number] = [2 * time_ns for time_ns in slow[number]]
    found = diff(profile_of("a", steps(20)), profile_of("b", slow))

    assert (found.step.base_slow_steps, found.step.head_slow_steps) == (0, 4)
    assert found.step.head_mean_ns > 1.15 * found.step.base_mean_ns
    assert [entry.code for entry in found.explanations] == ["slow-steps"]
    assert abs(found.step.ratio - 1) < 0.03


@pytest.mark.parametrize(
    ("base", "head", "matched_by"),
    [
        pytest.param(GEMM, GEMM, ["name"], id="the same"),
        pytest.param(
            BF16, BF16._replace(name="nvjet_tst_256x128_TNN"), ["family"], id="other tile in the range"
        ),
        pytest.param(GEMM, GEMM._replace(path="moe"), ["name, other range"], id="moved"),
        pytest.param(
            BF16,
            BF16._replace(path="moe", name="nvjet_tst_256x128_TNN"),
            ["family, other range"],
            id="moved and retuned",
        ),
        pytest.param(
            GEMM, GEMM._replace(name="cutlass_gemm"), ["range and category"], id="another library's"
        ),
        pytest.param(
            GEMM._replace(path=""),
            GEMM._replace(path="", name="cutlass_gemm"),
            ["only in base", "only in head"],
            id="nothing says that it is the same",
        ),
    ],
)
def test_operations_are_matched_across_names_and_ranges(base, head, matched_by):
    ours, theirs = step((base, "compute/gemm", 10, 10))[0], step((head, "compute/gemm", 20, 10))[0]

    assert [pair.matched_by for pair in pair_operations(ours, theirs)] == matched_by


def test_what_runs_half_as_often_is_not_the_same_by_its_place_alone():
    ours = step((GEMM, "compute/gemm", 10, 10))[0]
    theirs = step((GEMM._replace(name="cutlass_gemm"), "compute/gemm", 10, 5))[0]

    assert [pair.matched_by for pair in pair_operations(ours, theirs)] == ["only in base", "only in head"]

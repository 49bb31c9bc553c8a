"""Ranges of NVTX with shapes of operators: FLOPs as those of a trace with the same operators."""

from collections import Counter

import pytest

from fixtures.export import ExportWriter
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.shapes import find_operator
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from tests.conftest import slow
from tests.summary.speed_of_light.test_laws import check_laws
from wallscope.model.capture import Options
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.speed_of_light import BelowPeak
from wallscope.pipeline import analyze

GEMM, GROUPED, ATTENTION = ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.ATTENTION


def sum_flops(found):
    """Executed FLOPs by category."""
    sums = Counter()
    for one in found.matrices:
        sums[one.category] += one.executed_flops + one.repeated_flops
    return sums


@pytest.mark.parametrize("seed", [3, *slow(0, 1, 2, 4, 5, 6)])
def test_ranges_and_traces_with_the_same_operators_have_the_same_flops(seed, tmp_path):
    played = run(random_program(seed))
    write_run(played, tmp_path / "run.sqlite", has_shapes=True)
    answer = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)
    traced = analyze(write_torch_run(played, tmp_path / "t.json", has_shapes=True), Options(), lambda _: None)
    rank, other = answer.ranks[0], traced.ranks[0]
    found, of_trace = sum_flops(rank.speed_of_light), sum_flops(other.speed_of_light)
    steady = [step.index for step in rank.steps if step.steady]
    known = Counter()
    for operation in played.ranks[0].operations:
        operator = find_operator(operation)
        if operator is not None and operation.step in steady:
            known[operation.action.kernel.category] += operator.flops

    check_laws(answer)
    assert rank.speed_of_light.source == "shapes"
    for category in (GEMM, GROUPED):
        assert found[category] == pytest.approx(of_trace[category], abs=2)
        assert found[category] == pytest.approx(known[category] / len(steady), abs=2)
    assert found[GEMM] > 0


def test_markers_of_functions_and_traces_have_the_same_flops(tmp_path):
    played = run(random_program(3))
    write_run(played, tmp_path / "run.sqlite", has_markers=True)
    answer = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)
    traced = analyze(write_torch_run(played, tmp_path / "t.json", has_shapes=True), Options(), lambda _: None)
    found, of_trace = (sum_flops(one.ranks[0].speed_of_light) for one in (answer, traced))

    check_laws(answer)
    assert found == {GEMM: pytest.approx(of_trace[GEMM], abs=2)}


def mark(op, *shapes, mod="torch", dtype="float16", **named):
    """The name of a range of DLProf: a function with tensors, and further arguments by name."""
    args = [{"name": "", "type": "tensor", "shape": one, "dtype": dtype} for one in shapes]
    args += [{"name": name, "type": type(one).__name__, "value": one} for name, one in named.items()]
    return str({"mod": mod, "op": op, "args": args})


LINEAR = "torch.nn.functional"
PLACED = [  # values of a convolution in the order of its arguments
    {"name": "", "type": "tensor", "shape": (2, 3, 8, 8), "dtype": "float16"},
    {"name": "", "type": "tensor", "shape": (4, 3, 3, 3), "dtype": "float16"},
    {"name": "", "type": "NoneType", "value": None},
    {"name": "", "type": "tuple", "value": (2, 1)},
    {"name": "", "type": "int", "value": 1},
]
MARKERS = [
    pytest.param(mark("matmul", (32, 6), (6, 10)), 32 * 6 * 10, id="matrices"),
    pytest.param(mark("matmul", (4, 8, 6), (6, 10)), 4 * 8 * 6 * 10, id="rows of batches"),
    pytest.param(mark("matmul", (4, 8, 6), (6,)), 4 * 8 * 6, id="vector"),
    pytest.param(mark("matmul", (6,), (6, 10)), 6 * 10, id="vector first"),
    pytest.param(mark("matmul", (6,), (6,)), 6, id="vectors"),
    pytest.param(mark("__matmul__", (3, 1, 8, 6), (4, 6, 10), mod="Tensor"), 12 * 8 * 6 * 10, id="batches"),
    pytest.param(mark("mm", (32, 6), (6, 10)), 32 * 6 * 10, id="mm"),
    pytest.param(mark("bmm", (4, 8, 6), (4, 6, 10)), 4 * 8 * 6 * 10, id="bmm"),
    pytest.param(mark("addmm", (10,), (32, 6), (6, 10), beta=1, alpha=1.5), 32 * 6 * 10, id="addmm"),
    pytest.param(mark("addmm", (32, 6), (6, 10), beta=0), 32 * 6 * 10, id="addmm of a number"),
    pytest.param(mark("baddbmm", (4, 8, 10), (4, 8, 6), (4, 6, 10)), 4 * 8 * 6 * 10, id="baddbmm"),
    pytest.param(mark("linear", (4, 8, 6), (10, 6), (10,), mod=LINEAR), 4 * 8 * 6 * 10, id="linear"),
    pytest.param(mark("linear", (4, 8, 6), (10, 6), mod=LINEAR, bias=None), 4 * 8 * 6 * 10, id="no bias"),
    pytest.param(
        mark("conv2d", (2, 3, 8, 8), (4, 3, 3, 3), mod=LINEAR), 2 * 6 * 6 * 4 * 3 * 9, id="convolution"
    ),
    pytest.param(
        mark("conv2d", (2, 3, 8, 8), (4, 3, 3, 3), mod=LINEAR, stride=(2, 1), padding=1),
        2 * 4 * 8 * 4 * 3 * 9,
        id="convolution with values by name",
    ),
    pytest.param(
        str({"mod": LINEAR, "op": "conv2d", "args": PLACED}),
        2 * 4 * 8 * 4 * 3 * 9,
        id="convolution with values in order",
    ),
    pytest.param(
        mark("conv1d", (2, 3, 16), (4, 3, 3), mod=LINEAR, stride=(2,), dilation=(2,)),
        2 * 6 * 4 * 3 * 3,
        id="convolution of one dimension",
    ),
    pytest.param(
        mark("conv_transpose2d", (2, 3, 8, 8), (3, 4, 3, 3), mod=LINEAR, stride=2),
        2 * 64 * 3 * 4 * 9,
        id="transposed convolution",
    ),
]
NO_MARKERS = [
    pytest.param(mark("matmul", (32, 6), (7, 10)), id="sizes that do not fit"),
    pytest.param(mark("matmul", (32, 6), (6, 10), dtype="complex64"), id="complex"),
    pytest.param(mark("matmul", (32, 6), (6, 10))[:-2], id="cut"),
    pytest.param(mark("matmul", (32, 6), (6, 10)) + ".real", id="more after it"),
    pytest.param(mark("matmul", (32, -6), (-6, 10)), id="negative"),
    pytest.param(mark("matmul", (2**40, 2**40), (2**40, 1)), id="too large"),
    pytest.param(mark("matmul", ("32", "a"), (6, 10)), id="a text"),
    pytest.param(mark("matmul", (32, 6)), id="one matrix"),
    pytest.param(mark("add", (32, 6), (32, 6)), id="no multiplication"),
    pytest.param(mark("matmul", (32, 6), (6, 10), mod="numpy"), id="another module"),
    pytest.param(mark("conv2d", (2, 3, 8, 8), (4, 3, 3, 3), mod=LINEAR, padding="same"), id="same padding"),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [{}]}", id="no members"),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [{[1]: 2}]}", id="no literal"),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [1or 2]}", id="an expression"),
    pytest.param(
        "{'mod': 'torch', 'op': 'matmul', 'args': [__import__('os').getcwd()]}", id="what would be run"
    ),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [" + "(" * 3_000 + ")" * 3_000 + "]}", id="long"),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [" + "(" * 1_900 + ")" * 1_900 + "]}", id="deep"),
    pytest.param("{'mod': 'torch', 'op': 'matmul', 'args': [" + "1 " * 1_900 + "]}", id="no commas"),
]
PRODUCT, LENGTH_NS = "nvjet_hsh_128x128_64x6_1x2_h_bz_coopA_TNT", 10_000


def write_marked(path, text):
    """An export with a product inside a range."""
    with ExportWriter(path) as writer:
        writer.gpu(0)
        writer.range(text, 1_000, 6_000)
        call = writer.call("cudaLaunchKernel", 2_000, 3_000)
        writer.kernel(PRODUCT, 10_000, 10_000 + LENGTH_NS, pid=1_000, correlation=call)
    return path


@pytest.mark.parametrize(("text", "products"), MARKERS)
def test_arguments_of_functions_give_their_flops(text, products, tmp_path):
    path = write_marked(tmp_path / "run.sqlite", text)
    (one,) = analyze(path, Options(), lambda _: None).ranks[0].speed_of_light.matrices

    assert (one.executed_flops, one.precision) == (2 * products, Precision.FP16)


@pytest.mark.parametrize("text", NO_MARKERS)
def test_other_texts_give_no_flops(text, tmp_path, recwarn):
    path = write_marked(tmp_path / "run.sqlite", text)
    found = analyze(path, Options(), lambda _: None).ranks[0].speed_of_light

    assert (found.matrices, found.executed_flops) == ((), None)
    assert not recwarn.list


def test_autocast_may_convert_the_arguments_of_a_function(tmp_path):
    """The name of the kernel shows FP16, and bytes of FP32 are not known to be read."""
    path = write_marked(tmp_path / "run.sqlite", mark("matmul", (2, 4096), (4096, 4096), dtype="float32"))
    found = analyze(path, Options(), lambda _: None).ranks[0].speed_of_light
    typed = write_marked(tmp_path / "typed.sqlite", mark("matmul", (2, 4096), (4096, 4096)))
    other = analyze(typed, Options(), lambda _: None).ranks[0].speed_of_light

    assert [one.precision for one in found.matrices] == [Precision.FP16]
    below, stated = (
        {each.reason for one in ledger.lines for each in one.explained_by} for ledger in (found, other)
    )
    assert BelowPeak.FEW_ROWS not in below
    assert BelowPeak.FEW_ROWS in stated


def test_attention_has_no_flops_without_the_values_of_its_mask(tmp_path):
    write_run(run(random_program(3)), tmp_path / "run.sqlite", has_shapes=True)
    found = analyze(tmp_path / "run.sqlite", Options(), lambda _: None).ranks[0].speed_of_light

    assert ATTENTION not in {one.category for one in found.matrices}
    assert {one.category for one in found.uncounted} == {ATTENTION}
    assert found.covered < 1

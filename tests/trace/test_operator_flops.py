"""FLOPs of operators beside loops that count every multiplication, and whose kernels do them."""

import itertools
from math import prod

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixtures.torch_trace import BASE_NS, H100, TraceWriter
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.model.capture import Options
from wallscope.model.diagnosis import StepFacts
from wallscope.pipeline import analyze
from wallscope.preparation import read_trace
from wallscope.summary.tables import build_kernel_table
from wallscope.trace.operator_flops import FLOP_FORMULAS, count_flops
from wallscope.views.sections.words import describe_throughput

SIZES = st.integers(1, 4)
GEMM = "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_TNT"


def loop(*sizes):
    """How many times the body of loops inside each other runs."""
    return sum(1 for _ in itertools.product(*map(range, sizes)))


@given(st.tuples(SIZES, SIZES, SIZES, SIZES))
def test_products_of_matrices_take_a_multiplication_for_each_triple(sizes):
    batch, rows, inner, columns = sizes
    one, other = [rows, inner], [inner, columns]

    for name in ("aten::mm", "aten::_scaled_mm"):
        assert count_flops(name, [one, other], None, None) == 2 * loop(rows, inner, columns)
    assert count_flops("aten::addmm", [[columns], one, other, [], []], None, None) == 2 * loop(*sizes[1:])
    assert count_flops("aten::bmm", [[batch, *one], [batch, *other]], None, None) == 2 * loop(*sizes)
    assert count_flops("aten::mv", [one, [inner]], None, None) == 2 * loop(rows, inner)


@given(
    st.tuples(SIZES, st.integers(1, 2), SIZES, SIZES),
    st.tuples(st.integers(4, 7), st.integers(4, 7)),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(1, 2), st.integers(0, 1)),
)
@settings(max_examples=40)
def test_convolutions_lay_the_filter_on_every_output(channels, image, kernel, moves):
    batch, groups, inside, outside = channels
    stride, padding = moves
    outputs = [
        len(range(0, size + 2 * padding - width + 1, stride))
        for size, width in zip(image, kernel, strict=True)
    ]
    data, weight = [batch, inside * groups, *image], [outside * groups, inside, *kernel]
    values = ["", "", "", f"[{stride}, {stride}]", f"[{padding}, {padding}]", "[1, 1]", "False", "[0, 0]"]
    forward = count_flops("aten::convolution", [data, weight, []], None, [*values, str(groups)])
    multiplied = loop(batch, outside * groups, *outputs, inside, *kernel)
    gradient = [batch, outside * groups, *outputs]
    backward = ["", "", "", "[1]", *values[3:], str(groups), "[True, True, False]"]

    assert forward == 2 * multiplied
    shapes = [gradient, data, weight]
    assert count_flops("aten::convolution_backward", shapes, None, backward) == 4 * multiplied
    backward[-1] = "[False, True, True]"
    assert count_flops("aten::convolution_backward", shapes, None, backward) == 2 * multiplied


def test_a_transposed_convolution_lays_the_filter_on_every_input():
    values = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]
    shapes = [[2, 3, 5, 5], [3, 4, 2, 2], []]

    assert count_flops("aten::convolution", shapes, None, values) == 2 * loop(2, 5, 5, 3, 4, 2, 2)


@given(st.tuples(SIZES, SIZES, SIZES, SIZES, SIZES, SIZES), st.booleans())
def test_attention_multiplies_the_pairs_that_its_mask_leaves(sizes, causal):
    batch, heads, queries, keys, size, value_size = sizes
    pairs = sum(1 for i in range(queries) for j in range(keys) if j <= i or not causal)
    shapes = [
        [batch, heads, queries, size], [batch, 1, keys, size], [batch, 1, keys, value_size], [], [], [], [],
    ]  # fmt: skip
    forward = 2 * batch * heads * pairs * (size + value_size)
    scores_again = 2 * batch * heads * pairs * size
    values = ["", "", "", "0.", str(causal), "False", ""]
    found = count_flops("aten::_scaled_dot_product_flash_attention", shapes, None, values)
    way_back = [*[""] * 11, str(causal), "", "", ""]
    back = "aten::_scaled_dot_product_flash_attention_backward"

    assert found == forward
    assert count_flops(back, [shapes[0], *shapes], None, way_back) == 2 * forward + scores_again


@given(st.tuples(SIZES, SIZES, SIZES, SIZES))
def test_grouped_multiplications_take_every_row_once(sizes):
    groups, rows, inner, columns = sizes
    one, other = [rows, inner], [inner, columns]
    for name in ("aten::_grouped_mm", "aten::_scaled_grouped_mm"):
        in_batches = count_flops(name, [[groups, *one], [groups, *other], [], []], None, None)
        rows_divided = count_flops(name, [[groups * rows, inner], [groups, *other], [groups]], None, None)
        inner_divided = count_flops(name, [[rows, groups * inner], [groups * inner, columns]], None, None)
        columns_divided = count_flops(name, [[groups, *one], [inner, groups * columns]], None, None)

        assert in_batches == rows_divided == inner_divided == columns_divided == 2 * loop(*sizes)


@given(st.tuples(SIZES, SIZES, SIZES, SIZES))
def test_operators_of_transformer_engine_multiply_the_input_with_the_weight_that_fits(sizes):
    length, batch, inner, outer = sizes[0], sizes[1], sizes[2] + 10, sizes[3] + 20
    data, weight = [length, batch, inner], [outer, inner]
    once = 2 * loop(length, batch, inner, outer)
    back = [inner, outer]

    assert count_flops("_Linear", [weight, data, [outer]], None, None) == once
    assert count_flops("_LayerNormLinear", [data, [inner], [], weight, []], None, None) == once
    assert count_flops("_GroupedLinear", [data, [], [], weight, weight, weight], None, None) == once
    shapes = [data, [inner], [inner], weight, [outer], [], back, [inner]]
    assert count_flops("_LayerNormMLP", shapes, None, None) == 2 * once


@pytest.mark.parametrize(("first", "is_first"), [([5, 3], "True"), ([3, 5], "False")])
@pytest.mark.parametrize(("second", "is_second"), [([4, 3], "False"), ([3, 4], "True")])
def test_stored_matrices_of_transformer_engine_are_transposed_as_told(first, is_first, second, is_second):
    shapes = [first, [1], [], [], [], second, [1], [], [], [], [4, 5]]
    values = ["", "", "0", "1", is_first, "", "", "0", "1", is_second]

    assert count_flops("tex_ts::te_gemm_ts", shapes, None, values) == 2 * loop(4, 3, 5)


@given(st.tuples(SIZES, SIZES, st.integers(0, 6), st.integers(0, 6), SIZES, SIZES), st.data())
def test_flash_attention_multiplies_the_pairs_that_mask_and_window_leave(sizes, data):
    batch, heads, queries, keys, size, value_size = sizes
    causal, left, right = data.draw(st.tuples(st.booleans(), st.integers(-1, 4), st.integers(-1, 4)))
    last = 0 if causal else right  # the mask ends at the last key
    pairs = sum(
        1
        for i in range(queries)
        for j in range(keys)
        if (left < 0 or j >= i + keys - queries - left) and (last < 0 or j <= i + keys - queries + last)
    )
    shapes = [[batch, queries, heads, size], [batch, keys, 1, size], [batch, keys, 1, value_size]]
    mask = [str(causal), str(left), str(right), "0.0", "", "False"]
    forward = 2 * batch * heads * pairs * (size + value_size)
    backward = 2 * forward + 2 * batch * heads * pairs * size
    found = count_flops("flash_attn::_flash_attn_forward", shapes, None, ["", "", "", "0.0", "0.1", *mask])
    back = [*[""] * 9, "0.0", "0.1", *mask]

    assert found == forward
    shapes = [shapes[0], *shapes, *[[]] * 5]
    assert count_flops("flash_attn::_flash_attn_backward", shapes, None, back) == backward


@pytest.mark.parametrize(("sequences", "expected"), [(1, 2 * 3 * 10 * (8 + 8)), (2, None)])
def test_sequences_in_one_tensor_are_known_if_there_is_one(sequences, expected):
    packed, lengths = [[4, 3, 8]] * 3, [[sequences + 1]] * 2
    values = [*[""] * 5, "4", "4", "0.0", "0.1", "True", "-1", "-1", "0.0", "", "False"]

    assert (
        count_flops("flash_attn::_flash_attn_varlen_forward", [*packed, *lengths], None, values) == expected
    )
    values = [*[""] * 5, "4", "4", "0.0", "True", "False", "", "", ""]
    assert count_flops("aten::_flash_attention_forward", [*packed, *lengths], None, values) == expected


@pytest.mark.parametrize(
    ("gradients", "sequence", "expected"),
    [
        pytest.param(2, 7, 2, id="of input and weight"),
        pytest.param(1, 7, 1, id="of the weight alone"),
        pytest.param(3, 7, None, id="an odd number of kernels"),
        pytest.param(2, 8, None, id="of another operator"),
    ],
)
def test_backward_operators_take_as_much_for_each_gradient(gradients, sequence, expected, tmp_path):
    writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
    shapes = {"Input Dims": [[64, 32], [16, 32]], "Sequence number": 7, "Fwd thread id": 0}
    operator(writer, "_Linear", 0, 10_000, **shapes)
    args = {"Input Dims": [[16, 64]], "Sequence number": sequence, "Fwd thread id": 1}
    operator(writer, "_LinearBackward", 20_000, 40_000, tid=2, **args)
    for number in range(gradients + 1):
        at, tid = (1_000, 1) if not number else (20_000 + number * 1_000, 2)
        writer.call("cudaLaunchKernel", at, at + 100, 2 * number, tid=tid)
        writer.kernel(GEMM, at + 50_000, at + 50_500, 2 * number)
        writer.call("cudaLaunchKernel", at + 200, at + 300, 2 * number + 1, tid=tid)
        writer.kernel("cast_kernel", at + 50_500, at + 50_600, 2 * number + 1)
    found = read_trace_capture(writer.write(tmp_path / "t.json"), lambda _: None).kernel_flops
    once = 2 * 16 * 32 * 64

    by_operator = sorted(found.unique("operator")["flops"].to_list())
    assert by_operator == sorted([once, *([] if expected is None else [expected * once])])


@pytest.mark.parametrize(
    ("name", "shapes", "types", "values"),
    [
        pytest.param("aten::mm", [[2, 3], [4, 5]], None, None, id="sizes that do not fit"),
        pytest.param("aten::mm", [[2, 3]], None, None, id="no other matrix"),
        pytest.param("aten::mm", None, None, None, id="no shapes"),
        pytest.param("aten::mm", [[2, -3], [-3, 5]], None, None, id="negative"),
        pytest.param("aten::mm", [[2, 3], [3, 4]], ["c10::complex<float>"] * 2, None, id="complex"),
        pytest.param("aten::mm", [[2**40, 2**40], [2**40, 2]], None, None, id="too large"),
        pytest.param("aten::convolution", [[1, 1, 4], [1, 1, 2]], None, None, id="no stride"),
        pytest.param(
            "aten::convolution",
            [[1, 1, 4], [1, 1, 2]],
            None,
            ["", "", "", "[0]", "[0]", "[1]", "False"],
            id="a stride of nothing",
        ),
        pytest.param(
            "aten::convolution",
            [[1, 1, 4], [1, 1, 2]],
            None,
            ["", "", "", ["1"], 0, None, "False"],
            id="values that are no texts",
        ),
        pytest.param("aten::_grouped_mm", [[2, 3, 4], [3, 4, 5]], None, None, id="other numbers of groups"),
        pytest.param("_LayerNormLinear", [[2, 3], [3], [], [5, 4]], None, None, id="no weight that fits"),
        pytest.param(
            "aten::_scaled_dot_product_flash_attention", [[1, 1, 4, 2]] * 3, None, None, id="no mask"
        ),
    ],
)
def test_what_arguments_do_not_tell_is_unknown(name, shapes, types, values):
    assert count_flops(name, shapes, types, values) is None


@given(st.sampled_from(sorted(FLOP_FORMULAS)), st.data())
def test_any_arguments_end_in_a_number_or_in_none(name, data):
    odd = st.one_of(
        st.none(), st.integers(-1, 3), st.lists(st.integers(-1, 3), max_size=5), st.text(max_size=5)
    )
    lists = st.one_of(st.none(), st.lists(odd, max_size=12))
    found = count_flops(name, data.draw(lists), data.draw(lists), data.draw(lists))

    assert found is None or found >= 0


def operator(writer, name, start_ns, end_ns, tid=1, **args):
    writer.span("cpu_op", name, start_ns, end_ns, tid=tid, args=args)


@st.composite
def programs(draw):
    """Operators on two threads (start, end, thread, shapes), some inside another, and launches in between."""
    operators, launches = [], []
    for tid in (1, 2):
        at = 0
        for _ in range(draw(st.integers(1, 5))):
            at += draw(st.integers(1, 5)) * 1_000
            end = at + draw(st.integers(1, 6)) * 1_000
            sizes = draw(st.tuples(SIZES, SIZES, SIZES))
            operators.append((at, end, tid, sizes if draw(st.booleans()) else None))
            if end - at > 2_000 and draw(st.booleans()):
                operators.append((at + 500, end - 500, tid, (1, 1, 1)))
            at = end
        launches += [(one * 1_000 + 250, tid) for one in draw(st.sets(st.integers(0, 60), max_size=12))]
    return operators, launches


@given(programs())
@settings(max_examples=2 * settings.default.max_examples, deadline=None)
def test_kernels_belong_to_the_outermost_operator_with_shapes_that_issues_them(tmp_path_factory, program):
    operators, launches = program
    writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
    for start, end, tid, sizes in operators:
        shapes = {} if sizes is None else {"Input Dims": [list(sizes[:2]), list(sizes[1:])]}
        operator(writer, "aten::mm", start, end, tid, **shapes)
    writer.call("cudaLaunchKernel", 200_000, 200_100, 999)
    writer.kernel(GEMM, 200_200, 200_300, 999)
    for number, (at, tid) in enumerate(launches, 1):
        writer.call("cudaLaunchKernel", at, at + 100, number, tid=tid)
        writer.kernel(GEMM, 100_000 + number * 1_000, 100_500 + number * 1_000, number)
    expected = {}
    for number, (at, tid) in enumerate(launches, 1):
        around = [one for one in operators if one[2] == tid and one[0] <= at < one[1] and one[3] is not None]
        outermost = min(around, key=lambda one: one[0], default=None)
        if outermost is not None:
            expected[number] = 2 * prod(outermost[3])
    found = read_trace_capture(writer.write(tmp_path_factory.mktemp("flops") / "t.json"), lambda _: None)
    calls = found.operations.join(found.kernel_flops, on="op").select("flops", pl.col("call").cast(pl.UInt32))
    told = calls.join(found.calls, on="call").select("correlation", "flops")

    assert dict(told.iter_rows()) == expected


def steps(path, *, lacking=(), stray=False):
    """Four steps of 10 ms, two products each of 4096 x 4096 matrices that run for 4 ms."""
    writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
    number = 0
    for step in range(4):
        begin = step * 10_000_000
        writer.span("user_annotation", f"ProfilerStep#{step}", begin, begin + 10_000_000)
        for place in range(2):
            number += 1
            at = begin + 100_000 + place * 5_000_000
            shapes = {"Input Dims": [[4096, 4096], [4096, 4096]]}
            operator(writer, "aten::mm", at, at + 50_000, **({} if (step, place) in lacking else shapes))
            writer.call("cudaLaunchKernel", at + 10_000, at + 20_000, number)
            writer.kernel(GEMM, at + 30_000, at + 4_030_000, number)
        if stray:
            writer.call("cudaLaunchKernel", begin + 9_300_000, begin + 9_310_000, 90 + step)
            writer.kernel("flash_fwd_kernel", begin + 9_400_000, begin + 9_600_000, 90 + step)
    return analyze(writer.write(path / "t.json"), Options(), lambda _: None)


FLOPS = 2 * 4096**3


def test_shapes_give_the_rates_of_step_and_category(tmp_path):
    found = steps(tmp_path)
    rank, told = found.ranks[0], found.diagnosis.throughput
    gemm = next(one for one in rank.compute if one.category == "gemm")

    assert rank.compute_details.flops == 2 * FLOPS
    assert gemm.flops_per_s == pytest.approx(FLOPS / 4e-3)
    assert told.flops_source == "shapes"
    assert told.flops_per_s == pytest.approx(2 * FLOPS * 1e9 / rank.typical.step_ns)
    assert told.mfu == pytest.approx(told.flops_per_s / 989.4e12)


def test_a_step_of_which_one_operator_lacks_shapes_has_at_least_the_flops_of_the_others(tmp_path):
    found = steps(tmp_path, lacking={(2, 1)})
    rank, told = found.ranks[0], found.diagnosis.throughput
    counted = sum(step.steady for step in rank.steps)
    known = 2 * counted - 1  # all but one product of the steady steps

    assert rank.compute_details.flops is None
    assert rank.compute_details.known_flops == round(known * FLOPS / counted)
    assert told.flops_share == rank.compute_details.flops_share == pytest.approx(known / (2 * counted))
    assert told.mfu == pytest.approx(rank.compute_details.known_flops * 1e9 / told.step_ns / 989.4e12)
    (gemm,) = rank.compute
    assert (gemm.flops_per_s, gemm.flops_share) == (pytest.approx(FLOPS / 4e-3), told.flops_share)
    assert any(
        "at least" in line and "GEMM and convolution time" in line for line in describe_throughput(told)
    )


def test_a_step_of_which_most_lacks_shapes_has_no_rate(tmp_path):
    found = steps(tmp_path, lacking={(step, place) for step in range(4) for place in range(2)} - {(2, 1)})

    assert found.diagnosis.throughput is None
    assert 0 < found.ranks[0].compute_details.flops_share < 0.5


def test_kernels_have_the_rate_of_the_operators_that_they_alone_do(tmp_path):
    """A first kernel runs twice for each operator, a second for another; of two names neither is known."""
    writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
    runs = {  # (operator with shapes, lengths of its kernels in us by name)
        "split": (True, [(GEMM, 1_000), (GEMM, 1_000), ("splitKreduce_kernel", 50)]),
        "bare": (False, [(GEMM, 500)]),
        "mixed": (True, [("cutlass_80_simt_sgemm_128x64", 300), (f"{GEMM}_other", 400)]),
        "whole": (True, [(f"{GEMM}_whole", 4_000)]),
    }
    number = 0
    for step in range(4):
        begin = at = step * 10_000_000
        writer.span("user_annotation", f"ProfilerStep#{step}", begin, begin + 9_900_000)
        for has_shapes, kernels in runs.values():
            shapes = {"Input Dims": [[4096, 4096], [4096, 4096]]} if has_shapes else {}
            operator(writer, "aten::mm", at, at + 80_000, **shapes)
            start = at + 100_000
            for place, (name, length_us) in enumerate(kernels):
                number += 1
                writer.call("cudaLaunchKernel", at + place * 10_000, at + place * 10_000 + 5_000, number)
                writer.kernel(name, start, start + length_us * 1_000, number)
                start += length_us * 1_000
            at = start
    path = writer.write(tmp_path / "t.json")
    table = build_kernel_table(read_trace(path, Options(), lambda _: None))
    found = dict(zip(table["name"], table.select("flops_per_s", "peak_share").rows(), strict=True))
    listed = analyze(path, Options(), lambda _: None).ranks[0].compute_details.kernel_rates

    split, whole = FLOPS / 2e-3, FLOPS / 4e-3
    assert found.pop(GEMM) == pytest.approx((split, split / 989.4e12))
    assert found.pop(f"{GEMM}_whole") == pytest.approx((whole, whole / 989.4e12))
    assert set(found.values()) == {(None, None)}
    assert [rate.flops_per_s for rate in listed] == pytest.approx([whole, split])


def test_attention_without_shapes_leaves_the_rate_of_products(tmp_path):
    found = steps(tmp_path, stray=True)
    rank = found.ranks[0]
    by_category = {str(one.category): (one.flops_per_s, one.flops_share) for one in rank.compute}

    assert rank.compute_details.flops is None
    assert by_category["gemm"] == (pytest.approx(FLOPS / 4e-3), 1)
    assert by_category["attention"] == (None, 0)
    assert rank.compute_details.flops_share == pytest.approx(8 / 8.2)


def test_the_count_of_the_user_goes_before_that_of_shapes(tmp_path):
    path = tmp_path / "t.json"
    steps(tmp_path)
    options = Options(step_facts=StepFacts(flops=1e12))
    told = analyze(path, options, lambda _: None).diagnosis.throughput

    assert (told.flops_source, told.flops_per_s) == ("user", pytest.approx(1e12 * 1e9 / told.step_ns))

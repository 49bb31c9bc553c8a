"""Which operators are of the backward pass, whose they are, and which forward work runs in them again."""

import json

import polars as pl
import pytest

from fixtures.torch_trace import BASE_NS, H100, TraceWriter, spell_us
from wallscope.kineto.load_trace import read_trace_capture
from wallscope.model.capture import Options
from wallscope.model.enums import Pass
from wallscope.model.schemas import PASSES
from wallscope.pipeline import analyze
from wallscope.preparation import read_trace
from wallscope.trace.forward_backward import mark_autograd_ranges

GEMM = "nvjet_tst_128x128_64x6_1x2_h_bz_coopA_TNT"
MAIN, AUTOGRAD, OTHER = 1, 2, 3


class Program:
    """Operators of a trace, each of which issues a kernel."""

    def __init__(self):
        self.writer = TraceWriter(deviceProperties=[{"id": 0, **H100}], baseTimeNanoseconds=BASE_NS)
        self.kernels = 0

    def annotate(self, name, start_ns, end_ns, tid=MAIN):
        self.writer.span("user_annotation", name, start_ns, end_ns, tid=tid)

    def operator(self, name, start_ns, end_ns, tid=MAIN, *, number=None, thread_of=0, issues=True):  # noqa: PLR0913  # what an operator records
        args = {} if number is None else {"Sequence number": number, "Fwd thread id": thread_of}
        self.writer.span("cpu_op", name, start_ns, end_ns, tid=tid, args=args)
        if issues:
            self.kernels += 1
            self.writer.call("cudaLaunchKernel", start_ns + 10, start_ns + 20, self.kernels, tid=tid)
            at_ns = 1_000_000 + self.kernels * 1_000
            self.writer.kernel(GEMM, at_ns, at_ns + 100 * self.kernels, self.kernels)

    def flow(self, code, number, at_ns, tid):
        row = {
            "ph": code,
            "cat": "fwdbwd",
            "name": "fwdbwd",
            "id": number,
            "pid": self.writer.pid,
            "tid": tid,
        }
        self.writer.event(json.dumps(row)[:-1] + f', "ts": {spell_us(at_ns)}}}')

    def write(self, path):
        return self.writer.write(path / "t.json")

    def links(self, path):
        """Names of operators, of the forward ones that they belong to, and whether they run again."""
        found = read_trace_capture(self.write(path), lambda _: None)
        named = found.ranges.join(found.range_names, on="name").select("range", "text")
        return (
            found.autograd_ranges.join(named, on="range")
            .join(named.rename({"range": "forward", "text": "of"}), on="forward", how="left")
            .sort("range")
            .select("text", "of", "is_replay")
            .rows()
        )


def test_a_backward_operator_belongs_to_the_latest_forward_one_with_its_number(tmp_path):
    program = Program()
    program.operator("aten::linear", 0, 1_000, number=7)
    program.operator("aten::addmm", 200, 900, number=7)
    program.operator("aten::relu", 1_200, 1_500, number=8)
    program.operator("ReluBackward0", 5_000, 5_500, AUTOGRAD, number=8, thread_of=1)
    program.operator("AddmmBackward0", 6_000, 6_500, AUTOGRAD, number=7, thread_of=1)
    program.operator("aten::mm", 6_100, 6_200, AUTOGRAD)

    assert program.links(tmp_path) == [
        ("ReluBackward0", "aten::relu", False),
        ("AddmmBackward0", "aten::addmm", False),
    ]


def test_numbers_of_several_forward_threads_are_kept_apart(tmp_path):
    program = Program()
    for place, (tid, name) in enumerate(((MAIN, "aten::mm"), (OTHER, "aten::add"))):
        for number in range(3 - place):
            program.operator(
                f"{name}{number}", 1_000 * number + place * 100, 1_000 * number + 90, tid, number=number
            )
    program.operator("B0", 9_000, 9_100, AUTOGRAD, number=2, thread_of=1)
    program.operator("B1", 9_200, 9_300, AUTOGRAD, number=1, thread_of=1)

    assert program.links(tmp_path) == [("B0", "aten::mm2", False), ("B1", "aten::mm1", False)]


def test_flows_link_operators_without_numbers(tmp_path):
    program = Program()
    program.operator("aten::linear", 0, 1_000)
    program.operator("aten::addmm", 0, 900)
    program.operator("engine", 5_000, 6_000, AUTOGRAD)
    program.operator("AddmmBackward0", 5_000, 5_900, AUTOGRAD)
    program.flow("s", 4, 0, MAIN)
    program.flow("f", 4, 5_000, AUTOGRAD)
    program.flow("s", 5, 0, MAIN)  # its end is not in the trace

    assert program.links(tmp_path) == [("AddmmBackward0", "aten::addmm", False)]


def test_a_backward_operator_whose_forward_is_not_in_the_trace_is_backward(tmp_path):
    program = Program()
    program.operator("aten::mm", 9_000, 9_500, number=7)  # of the next step
    program.operator("MmBackward0", 5_000, 5_500, AUTOGRAD, number=7, thread_of=1)

    assert program.links(tmp_path) == [("MmBackward0", None, False)]


@pytest.mark.parametrize(
    ("has_backward", "expected"),
    [pytest.param(False, True, id="recomputed"), pytest.param(True, False, id="gradient of a gradient")],
)
def test_numbered_work_inside_the_backward_pass_is_recomputed_unless_it_has_a_backward(
    has_backward, expected, tmp_path
):
    program = Program()
    program.operator("aten::mm", 0, 1_000, number=7)
    program.operator("MmBackward0", 5_000, 7_000, AUTOGRAD, number=7, thread_of=1)
    program.operator("aten::gelu", 5_100, 5_500, AUTOGRAD, number=9)
    program.operator("aten::mul", 5_600, 5_800, AUTOGRAD)
    if has_backward:
        program.operator("GeluBackward0", 8_000, 8_500, AUTOGRAD, number=9, thread_of=2)

    assert (("aten::gelu", None, True) in program.links(tmp_path)) is expected


def test_kernels_of_linked_operators_are_of_the_backward_pass_and_replays_are_told(tmp_path):
    program = Program()
    program.annotate("block", 0, 3_000)
    program.operator("aten::mm", 0, 1_000, number=7)
    program.operator("custom::fused", 5_000, 7_000, AUTOGRAD, number=7, thread_of=1)
    program.operator("aten::gelu", 5_100, 5_500, AUTOGRAD, number=9)
    parts = read_trace(program.write(tmp_path), Options(), lambda _: None)
    untold = pl.DataFrame([(op, None, None, -1) for op in range(3)], schema=PASSES, orient="row")
    found = mark_autograd_ranges(
        untold, parts.projected, parts.range_tree.tree, parts.capture.autograd_ranges
    )

    assert found.select("pass", "replay").rows() == [
        (None, None), (Pass.BACKWARD, None), (Pass.BACKWARD, "inferred"),
    ]  # fmt: skip
    assert mark_autograd_ranges(untold, parts.projected, parts.range_tree.tree, None) is untold


def test_a_range_has_the_device_time_of_the_backward_pass_of_what_ran_inside(tmp_path):
    program = Program()
    program.annotate("block", 0, 3_000)
    program.operator("aten::mm", 0, 1_000, number=7)
    program.operator("aten::relu", 1_200, 1_500, number=8)
    program.operator("aten::norm", 3_500, 3_700, number=9)
    program.operator("NormBackward0", 4_000, 4_500, AUTOGRAD, number=9, thread_of=1)  # 400 ns
    program.operator("ReluBackward0", 5_000, 5_500, AUTOGRAD, number=8, thread_of=1)  # 500 ns
    program.operator("MmBackward0", 6_000, 6_500, AUTOGRAD, number=7, thread_of=1)  # 600 ns
    program.operator("aten::mm", 6_100, 6_300, AUTOGRAD)  # 700 ns, inside it
    (rank,) = analyze(program.write(tmp_path), Options(), lambda _: None).ranks
    backward = {entry.path: entry.backward_gpu_ns for entry in rank.ranges}

    assert backward["block"] == 500 + 600 + 700
    assert backward["block / aten::mm"] == 600 + 700
    assert backward["aten::norm"] == 400
    assert backward["MmBackward0"] == 0

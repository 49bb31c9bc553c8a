from collections.abc import Iterable
from pathlib import Path

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.model.schemas import CLASSIFIED, NAMES, PASSES, WINDOWS
from wallscope.nsys import read_capture
from wallscope.trace.forward_backward import find_recompute, identify_passes, mark_autograd_threads
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_shipped_kernel_rules
from wallscope.trace.ranges import nest_ranges, project_ranges

FORWARD = "nabcgdefgh"  # one letter a kernel, g multiplies
WINDOW = pl.DataFrame([(0, 0, 0, 100_000)], schema=WINDOWS, orient="row")


def told(*parts: tuple[str, str | None]) -> str:
    """Parts of (kernels, pass) one after the other, with the first letter of how each is told; else `.`."""
    rows = [(letter, of) for kernels, of in parts for letter in kernels]
    operations = pl.DataFrame(
        [
            {
                "op": op,
                "rank_id": 0,
                "stream": 0,
                "start_ns": 10 * op,
                "end_ns": 10 * op + 5,
                "name": ord(letter),
                "class": "compute",
                "category": "gemm" if letter == "g" else "elementwise",
            }
            for op, (letter, _) in enumerate(rows)
        ],
        schema=CLASSIFIED,
    )
    of_passes = pl.DataFrame(
        [{"op": op, "pass": of, "replay": None, "scope": -1} for op, (_, of) in enumerate(rows)],
        schema=PASSES,
    )
    names = pl.DataFrame(
        [(ord(letter), letter) for letter in sorted({row[0] for row in rows})], schema=NAMES, orient="row"
    )
    return shown(find_recompute(operations, WINDOW, names, of_passes).rows(), len(rows))


def shown(rows: Iterable[tuple[int, str]], count: int) -> str:
    how = dict(rows)
    return "".join(how.get(op, ".")[0] for op in range(count))


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        pytest.param(FORWARD + "uvwxyzuvwxyz", "iiiiiiiiii............", id="a layer again"),
        pytest.param("uvwx" + FORWARD[1:9] + "uvwxyz", "....iiiiiiii......", id="eight kernels of it"),
        pytest.param("uvwx" + FORWARD[1:8] + "uvwxyz", ".................", id="seven kernels of it"),
        pytest.param("uvwx" + FORWARD[::-1] + "uvwxyz", "....................", id="in another order"),
        pytest.param("uvwx" + FORWARD[:5] + "u" + FORWARD[5:] + "uv", ".................", id="interrupted"),
        pytest.param("hgfedgcbanuvwxyz" * 2, "." * 32, id="a backward pass that merely resembles"),
        pytest.param("uvwxyz", "......", id="nothing alike"),
    ],
)
def test_kernels_of_the_backward_pass_that_repeat_the_forward_pass_are_recomputed(backward, expected):
    found = told((FORWARD, "forward"), (backward, "backward"))

    assert found == "." * len(FORWARD) + expected


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        pytest.param("nabcdefhij", "nabcdefhij", id="without a multiplication"),
        pytest.param("ggggggggaa", "ggggggggaa", id="of two different kernels"),
        pytest.param("gggggggggggg", "gggggggggggg", id="of one kernel"),
    ],
)
def test_a_repeated_run_needs_a_multiplication_and_four_kernels(forward, backward):
    backward += "u" * 20

    assert told((forward, "forward"), (backward, "backward")) == "." * len(forward + backward)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param(
            [(FORWARD, "backward"), (FORWARD, "forward"), ("u" * 20, "backward")],
            "." * 40,
            id="a model has to come first",
        ),
        pytest.param(
            [(FORWARD, "optimizer"), (FORWARD + "u" * 10, "backward")],
            "." * 30,
            id="the optimizer is no model",
        ),
        pytest.param(
            [(FORWARD, None), (FORWARD + "u" * 10, "backward")],
            "." * 10 + "i" * 10 + "." * 10,
            id="what no range claims is, where none names the forward pass",
        ),
        pytest.param(
            [("zzz", "forward"), (FORWARD, None), (FORWARD + "u" * 10, "backward")],
            "." * 33,
            id="it is not where one does",
        ),
        pytest.param(
            [("uvgwxyzt" * 4, None), ("uvgwxyzt" * 4, "backward")],
            "." * 64,
            id="a backward pass without ranges before one with them",
        ),
    ],
)
def test_models_of_replays_are_earlier_work_of_the_forward_pass(parts, expected):
    assert told(*parts) == expected


ENGINE = "autograd::engine::evaluate_function: "


class Program:
    """Ranges and kernels of one thread, one kernel every 10 ns of host time."""

    def __init__(self, writer: ExportWriter) -> None:
        self.writer, self.at_ns = writer, 0

    def kernels(self, letters: str) -> None:
        for letter in letters:
            number = self.writer.call("cudaLaunchKernel", self.at_ns + 1, self.at_ns + 3)
            name = "nvjet_tst_g" if letter == "g" else f"void at::native::elementwise_kernel<{letter}>"
            self.writer.kernel(name, 10_000 + self.at_ns, 10_005 + self.at_ns, correlation=number)
            self.at_ns += 10

    def within(self, name: str, *inside: object) -> None:
        start_ns = self.at_ns
        self.at_ns += 1
        for part in inside:
            if isinstance(part, str):
                self.kernels(part)
            else:
                self.within(*part)
        self.at_ns += 1
        self.writer.range(name, start_ns, self.at_ns)


def explicit(path: Path, *ranges: tuple) -> str:
    """What is told of each kernel in order, for a program of nested ranges."""
    with ExportWriter(path) as writer:
        program = Program(writer)
        for of_range in ranges:
            program.within(*of_range)
    capture = read_capture(path, lambda _: None)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    tree, paths, labels = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    projected = project_ranges(capture.operations, capture.calls, tree, capture.threads)
    found = find_recompute(operations, WINDOW, capture.names, identify_passes(projected, tree, paths, labels))
    return shown(found.rows(), len(operations))


@pytest.mark.parametrize(
    ("backward", "expected"),
    [
        pytest.param(
            (f"{ENGINE}CheckpointFunctionBackward", "nag", (f"{ENGINE}MmBackward0", "uv"), "w"),
            "eee...",
            id="what ran before the first backward range inside",
        ),
        pytest.param(
            (f"{ENGINE}CheckpointFunctionBackward", "nabcg", "uvwx"),
            "eeeee....",
            id="the prefix that repeats",
        ),
        pytest.param(
            (f"{ENGINE}CheckpointFunctionBackward", "uv", "nabcg"),
            ".......",
            id="a repetition that is no prefix",
        ),
        pytest.param(
            (f"{ENGINE}CheckpointFunctionBackward", "naug", "uvwx"), "........", id="a prefix of two alike"
        ),
        pytest.param(("recompute", "xyz"), "eee", id="a range of the user"),
        pytest.param(("save_checkpoint", "xyz"), "...", id="saved to a file"),
        pytest.param((f"{ENGINE}MmBackward0", ("layer.forward", "xyz"), "u"), "iii.", id="forward inside"),
        pytest.param(
            (
                f"{ENGINE}CheckpointFunctionBackward",
                "n",
                (
                    f"{ENGINE}CheckpointFunctionBackward",
                    "a",
                    (f"{ENGINE}MmBackward0", "u"),
                ),
                (f"{ENGINE}MmBackward0", "v"),
            ),
            "ee..",
            id="one inside the other",
        ),
    ],
)
def test_ranges_of_a_checkpoints_backward_are_split_into_replay_and_backward(backward, expected, tmp_path):
    found = explicit(
        tmp_path / "run.sqlite", ("forward", ("CheckpointFunction", FORWARD)), ("backward", backward)
    )

    assert found == "." * len(FORWARD) + expected


def of_export(path: Path, *, autograd: bool = True) -> tuple[pl.DataFrame, pl.DataFrame]:
    """`PASSES` and `RECOMPUTE` of a real export, the whole of it one window."""
    capture = read_capture(path, lambda _: None)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    tree, paths, labels = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    projected = project_ranges(capture.operations, capture.calls, tree, capture.threads)
    of_passes = identify_passes(projected, tree, paths, labels)
    if autograd:
        of_passes = mark_autograd_threads(of_passes, operations, capture.calls, capture.threads)
    windows = pl.DataFrame([(0, 0, 0, 2**60)], schema=WINDOWS, orient="row")
    return of_passes, find_recompute(operations, windows, capture.names, of_passes)


def test_a_real_run_that_keeps_its_activations_recomputes_nothing(traces):
    """15,580 backward kernels of the ranges, the others of the autograd thread in the warm-up."""
    ranged, found = of_export(traces / "cs336_tianshi_result.sqlite", autograd=False)
    of_passes, found_with_threads = of_export(traces / "cs336_tianshi_result.sqlite")

    assert ranged["pass"].value_counts().sort("pass", nulls_last=True).rows()[0] == ("forward", 8_095)
    assert (of_passes["pass"] == "backward").sum() > (ranged["pass"] == "backward").sum()
    assert found.is_empty()
    assert found_with_threads.is_empty()


def test_wrapped_modules_of_a_real_forward_pass_are_no_replay(traces):
    of_passes, found = of_export(traces / "nsysai_mfu_before.sqlite")

    assert (of_passes["pass"] == "forward").sum() == 1_902
    assert found.is_empty()

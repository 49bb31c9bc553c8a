"""Steps that no known name marks: ranges of any name, short sequences, streams in turn, fragments."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fixtures.export import ExportWriter
from tests.answered_once import analyze_once
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options
from wallscope.pipeline import analyze
from wallscope.trace.repeat_unit import find_repetition, is_alike, measure_likeness

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
STEP_NS = 200_000
BODY = [f"nvjet_{letter}" for letter in "abcdefghij"]


class Story:
    """Launches kernels of a main thread and marks ranges."""

    def __init__(self, writer: ExportWriter) -> None:
        self.writer = writer

    def launch(self, name: str, at_ns: int, stream: int = 7) -> None:
        number = self.writer.call("cudaLaunchKernel_v7000", at_ns, at_ns + 2_000)
        self.writer.kernel(name, at_ns + 7_000, at_ns + 11_000, stream=stream, correlation=number)

    def run(self, names: list[str], at_ns: int, stream: int = 7) -> int:
        for place, name in enumerate(names):
            self.launch(name, at_ns + 9_000 * place, stream)
        return at_ns + 9_000 * len(names)

    def mark(self, text: str, start_ns: int, end_ns: int, thread: int | None = None) -> None:
        self.writer.range(text, start_ns, end_ns, thread=thread)


def told(path: Path, tell: Callable[[Story], None]) -> Analysis:
    with ExportWriter(path) as writer:
        tell(Story(writer))
    return analyze(path, Options(), lambda _: None)


def messages(found: Analysis) -> dict[str, str]:
    return {finding.code: finding.message for finding in found.capture.findings}


def tokens(story: Story, count: int = 8, *, kernels: Callable[[int], list[str]] = lambda _: BODY) -> None:
    for index in range(count):
        at = (index + 1) * STEP_NS
        end = story.run(kernels(index), at)
        story.mark(f"token_{index}_processing", at - 1_000, end)
        story.mark("whole body", at - 500, end - 500)


def test_a_range_of_any_name_that_holds_the_work_marks_the_steps(tmp_path):
    def tell(story: Story) -> None:
        tokens(story)
        story.mark("main", 100_000, 9 * STEP_NS)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.name, found.anchor.steps) == ("nvtx", "token_#_processing", 8)
    assert [step.start_ns for step in found.ranks[0].steps] == [(i + 1) * STEP_NS - 1_000 for i in range(8)]
    assert "Ranges named token_#_processing are used as steps" in messages(found)["inferred-steps"]


def test_ranges_that_recur_otherwise_are_named(tmp_path):
    def tell(story: Story) -> None:
        tokens(story)
        for index in range(8):
            for part in range(5):
                at = (index + 1) * STEP_NS + 18_000 * part
                story.mark("half", at - 10, at + 17_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert found.anchor.name == "token_#_processing"
    assert "half (40 times)" in messages(found)["inferred-steps"]


def test_a_known_name_is_trusted_more(tmp_path):
    def tell(story: Story) -> None:
        tokens(story)
        for index in range(8):
            at = (index + 1) * STEP_NS
            story.mark(f"iteration {index}", at, at + 50_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert found.anchor.name == "iteration #"
    assert "inferred-steps" not in messages(found)


def test_the_range_of_a_worker_beside_is_no_step(tmp_path):
    def tell(story: Story) -> None:
        story.run(["alpha"], 1_000)
        for index in range(8):
            at = (index + 1) * STEP_NS
            story.run([*BODY, f"own_{index}", f"more_{index}"], at)
            story.mark("[Loader] Run", at - 90_000, at + 105_000, thread=5)

    found = told(tmp_path / "run.sqlite", tell)

    assert found.anchor.name is None


def test_ranges_of_unlike_kernels_are_fragments_and_named_where_no_step_is_found(tmp_path):
    def tell(story: Story) -> None:
        tokens(story, 6, kernels=lambda index: [f"kernel_{index}_{place}" for place in range(10)])

    found = told(tmp_path / "run.sqlite", tell)

    assert found.anchor.kind == "whole-trace"
    assert "token_#_processing (6 times)" in messages(found)["no-steps"]


def test_ranges_inside_a_step_of_the_optimizer_are_parts_of_it(tmp_path):
    def tell(story: Story) -> None:
        for index in range(8):
            at = (index + 1) * 4 * STEP_NS
            for part in range(3):
                end = story.run(BODY, at + part * STEP_NS)
                story.mark("accumulate", at + part * STEP_NS - 10, end)
            story.run(["multi_tensor_apply_kernel<AdamFunctor>"] * 2, at + 3 * STEP_NS)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.steps) == ("optimizer", 7)
    assert "accumulate (24 times)" in messages(found)["unmarked-steps"]


def test_of_few_outer_ranges_the_inner_one_is_the_step(tmp_path):
    def tell(story: Story) -> None:
        tokens(story, 12)
        for part in range(3):
            story.mark("serve", (4 * part + 1) * STEP_NS - 2_000, (4 * part + 5) * STEP_NS - 3_000)

    assert told(tmp_path / "run.sqlite", tell).anchor.name == "token_#_processing"


def test_phases_of_any_name_make_a_step_that_begins_with_the_first(tmp_path):
    def tell(story: Story) -> None:
        for index in range(6):
            at = (index + 1) * STEP_NS
            for part, (name, kernels) in enumerate(
                (("ask", BODY[:3]), ("think", BODY[3:6]), ("say", BODY[6:]))
            ):
                begin = at + 50_000 * part
                story.mark(name, begin - 10, story.run(kernels, begin))

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.name, found.anchor.steps) == ("nvtx", "ask", 6)


def test_a_fused_optimizer_of_one_kernel_ends_a_step(tmp_path):
    def tell(story: Story) -> None:
        for index in range(6):
            story.run(
                [*BODY, *BODY, *BODY, "multi_tensor_apply_kernel<AdamFunctor>"], (index + 1) * 2 * STEP_NS
            )
            story.run(["nvjet_last"], (index + 1) * 2 * STEP_NS + 300_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.steps) == ("optimizer", 6)


def test_an_optimizer_that_runs_much_between_its_kernels_ends_one_step(tmp_path):
    adam, small = "multi_tensor_apply_kernel<AdamFunctor>", [f"small_{place}" for place in range(25)]

    def tell(story: Story) -> None:
        for index in range(6):
            story.run([*BODY * 12, adam, adam, *small, adam, adam, "nvjet_last"], (index + 1) * 10 * STEP_NS)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.steps) == ("optimizer", 6)


def test_few_kernels_that_repeat_without_exception_are_windows_though_they_change_streams(tmp_path):
    def tell(story: Story) -> None:
        for index in range(12):
            story.run(["seed", "rank", "link", "mark"], (index + 1) * STEP_NS, stream=7 if index < 6 else 13)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.unit, found.anchor.steps) == ("kernel-sequence", "window", 12)


def test_two_kernels_in_turn_are_windows_and_no_steps(tmp_path):
    found = told(tmp_path / "run.sqlite", lambda story: story.run(["add", "mul"] * 30, STEP_NS) and None)

    assert (found.anchor.kind, found.anchor.unit, found.anchor.steps) == ("kernel-sequence", "window", 30)


def test_one_kernel_repeated_is_no_unit(tmp_path):
    found = told(tmp_path / "run.sqlite", lambda story: story.run(["add"] * 60, STEP_NS) and None)

    assert found.anchor.kind == "whole-trace"


def test_equal_kernels_of_unequal_length_are_steps(tmp_path):
    def tell(story: Story) -> None:
        for index in range(10):
            story.run(BODY, (10 if index > 4 else 1) * (index + 1) * STEP_NS)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.steps) == ("kernel-sequence", 10)


def start_up_and_steps(layers: int, steps: int) -> tuple[list[int], int]:
    """Start-up of as many kernels as the steps, in units as long as a layer; the steps begin behind it."""
    layer = list(range(20, 42))
    step = [1, 2, *layer * layers, 3]
    start_up = [kind for kind in range(4, 18) for _ in range(22 * layers * steps // 14)]
    return start_up + step * steps, len(start_up)


@pytest.mark.parametrize(("layers", "steps"), [(8, 10), (32, 10), (12, 20)])
def test_steps_behind_a_start_up_of_as_many_kernels_are_found_and_not_their_layers(layers, steps):
    kernels, first = start_up_and_steps(layers, steps)
    symbols = np.array(kernels)

    found = find_repetition(symbols, np.where(symbols == 1, 9_000, 0))

    assert found is not None
    assert found.is_layered
    assert np.unique(np.diff(found.starts)).tolist() == [22 * layers + 3]
    assert (found.starts.size, found.starts[0]) == (steps, first)


def dull_likeness(one: list[int], other: list[int]) -> float:
    common = sum(min(one.count(name), other.count(name)) for name in set(one))
    return common / max(len(one), len(other))


@given(
    st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=6), min_size=2, max_size=8), st.integers(0, 7)
)
def test_likeness_equals_counting_names_in_each_pair(units, model):
    model %= len(units)
    symbols = np.array([name for unit in units for name in unit])
    starts = np.cumsum([0, *map(len, units)])[:-1]
    cut = [*units[:-1], units[-1][: len(units[-2])]]

    alone = measure_likeness(symbols, starts, model)
    before = measure_likeness(symbols, starts)

    assert alone == pytest.approx([dull_likeness(unit, cut[model]) for unit in cut])
    assert before[1:] == pytest.approx([dull_likeness(b, a) for a, b in pairwise(cut)])


def test_windows_of_other_kernels_half_the_time_are_not_alike():
    assert not is_alike(np.array([1, 1, 2, 2] * 10), np.arange(0, 40, 2))
    assert is_alike(np.array([1, 2] * 20), np.arange(0, 40, 2))


@pytest.mark.parametrize(
    ("stem", "kind", "name", "steps"),
    [
        ("nvfuser_v100_fusion", "nvtx", "test", 1000),
        ("nvfuser_v100_report2", "nvtx", "test", 1000),
        ("llama3_real", "nvtx", "token_#_processing", 64),
        ("mobilenet_infer_overlap", "nvtx", "MobileNetV3", 4),  # the fifth is captured as a graph
        ("clue_r3", "kernel-sequence", None, 20),
        ("cs336_tianshi_small", "kernel-sequence", None, 10),
        ("nersc_sc21_baseline", "nvtx", "step #", 29),
        ("nersc_sc23_dali", "nvtx", "step #", 31),
    ],
)
def test_steps_of_real_captures_are_what_recurs_in_them(stem, kind, name, steps):
    path = TRACES / f"{stem}.sqlite"
    if not path.exists():
        pytest.skip("no real exports here: ../shared/traces is absent")
    anchor = analyze_once(path).anchor

    assert (anchor.kind, anchor.name, anchor.steps) == (kind, name, steps)


def test_three_ranges_around_half_of_the_kernels_are_no_steps(tmp_path):
    def tell(story: Story) -> None:
        tokens(story, 3)
        for index in range(3, 6):
            story.run([f"other_{index}_{place}" for place in range(10)], (index + 1) * STEP_NS)

    assert told(tmp_path / "run.sqlite", tell).anchor.kind == "whole-trace"


def test_where_most_of_a_capture_is_before_the_steps_the_verdict_says_so(tmp_path):
    def tell(story: Story) -> None:
        story.launch("warm", 1_000)
        for index in range(6):
            story.run(BODY, (index + 20) * STEP_NS)

    found = told(tmp_path / "run.sqlite", tell)
    (rank,) = found.ranks

    assert (rank.outside_ns, rank.outside_idle_ns) == (20 * STEP_NS - 1_000, 20 * STEP_NS - 5_000)
    assert (
        "the 4.0 ms before the first window. This time is longer than all windows together"
        in found.diagnosis.verdict
    )


def test_requests_of_different_length_are_steps(tmp_path):
    def tell(story: Story) -> None:
        for index in range(8):
            at = (index + 1) * 4 * STEP_NS
            end = story.run(BODY * (1 + index % 3), at)
            story.mark("request", at - 1_000, end)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.name, found.anchor.steps) == ("request", 8)


def test_ranges_that_run_different_kernels_each_time_are_no_steps(tmp_path):
    def tell(story: Story) -> None:
        for index in range(8):
            at = (index + 1) * 4 * STEP_NS
            end = story.run([f"{name}_{index}" for name in BODY], at)
            story.mark("job", at - 1_000, end)

    assert told(tmp_path / "run.sqlite", tell).anchor.name != "job"

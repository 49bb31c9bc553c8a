"""Step stories: what marks the steps, and the windows that follow from it, to the nanosecond."""

from collections.abc import Callable
from pathlib import Path

import pytest

from fixtures.export import ExportWriter
from wallscope.errors import StepRangeError
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

STEP_NS, LAUNCH_LAG_NS = 100_000, 7_000
KERNELS = [
    "nvjet_a",
    "flash_fwd_kernel",
    "layer_norm_b",
    "nvjet_c",
    "softmax_d",
    "nvjet_e",
    "gelu_f",
    "nvjet_g",
    "nvjet_h",
]
ADAM = "multi_tensor_apply_kernel<AdamFunctor>"


class Story:
    """Writes steps of ten kernels; each begins on the device 7 µs after its first launch."""

    def __init__(self, writer: ExportWriter, *, pid: int = 1000, device: int = 0) -> None:
        self.writer, self.pid, self.device = writer, pid, device

    def step(self, at_ns: int, *, names: list[str] | None = None, spacing_ns: int = 9_000) -> None:
        for index, name in enumerate(["embedding_start", *KERNELS] if names is None else names):
            self.launch(name, at_ns + index * spacing_ns, spacing_ns // 2)

    def launch(self, name: str, at_ns: int, duration_ns: int = 4_000, stream: int = 7) -> None:
        number = self.writer.call("cudaLaunchKernel_v7000", at_ns, at_ns + 2_000, pid=self.pid)
        start_ns = at_ns + LAUNCH_LAG_NS
        where = {"pid": self.pid, "device": self.device, "stream": stream, "correlation": number}
        self.writer.kernel(name, start_ns, start_ns + duration_ns, **where)

    def mark(self, text: str, start_ns: int, end_ns: int, thread: int | None = None) -> None:
        self.writer.range(text, start_ns, end_ns, pid=self.pid, thread=thread)


def told(path: Path, tell: Callable[[Story], None], step_range: str | None = None) -> Analysis:
    with ExportWriter(path) as writer:
        tell(Story(writer))
    return analyze(path, Options(step_range=step_range), lambda _: None)


def windows(analysis: Analysis, rank: int = 0) -> list[tuple[int, int, bool]]:
    return [(step.start_ns, step.end_ns, step.steady) for step in analysis.ranks[rank].steps]


def starts(*at_ns: int) -> list[int]:
    return [at + LAUNCH_LAG_NS for at in at_ns]


def chained(
    at_ns: list[int], last_ns: int, unsteady: frozenset[int] = frozenset()
) -> list[tuple[int, int, bool]]:
    edges = [*starts(*at_ns), last_ns]
    last = len(at_ns) - 1
    return [(edges[i], edges[i + 1], i != last and i not in unsteady) for i in range(len(at_ns))]


def marked(at_ns: list[int], unsteady: frozenset[int] = frozenset()) -> list[tuple[int, int, bool]]:
    """The windows of steps that `mark_step` marks: they begin with their ranges, and the last one ends so."""
    edges = [*(at - 10 for at in at_ns), at_ns[-1] + 95_000]
    return [(edges[i], edges[i + 1], i < len(at_ns) - 1 and i not in unsteady) for i in range(len(at_ns))]


def mark_step(story: Story, index: int, at_ns: int) -> None:
    story.mark(f"training_step_{index}", at_ns - 10, at_ns + 95_000)


def last_end(at_ns: int) -> int:
    return at_ns + 9 * 9_000 + LAUNCH_LAG_NS + 4_500


def plain(story: Story, marks: Callable[[Story, int, int], None], count: int = 6) -> list[int]:
    at = [index * STEP_NS for index in range(1, count + 1)]
    for index, begin_ns in enumerate(at):
        story.step(begin_ns)
        marks(story, index, begin_ns)
    return at


SIX = [index * STEP_NS for index in range(1, 7)]


@pytest.mark.parametrize(
    ("marks", "step_range", "kind", "name"),
    [
        pytest.param(
            lambda story, index, at: story.mark(f"a.b.training_step_{index}", at - 10, at + 95_000),
            None,
            "nvtx",
            "a.b.training_step_#",
            id="training_step_N",
        ),
        pytest.param(
            lambda story, index, at: story.mark(f"my turn {index}", at - 10, at + 95_000),
            "^my turn",
            "user",
            "my turn #",
            id="the user's range",
        ),
        pytest.param(
            lambda story, _, at: (
                story.mark("forward", at - 10, at + 40_000),
                story.mark("backward", at + 41_000, at + 95_000),
            ),
            None,
            "nvtx",
            "forward",
            id="forward and backward alone",
        ),
        pytest.param(
            lambda story, _, at: story.mark("iteration", at - 10, at + 95_000),
            None,
            "nvtx",
            "iteration",
            id="iteration",
        ),
        pytest.param(lambda *_: None, None, "kernel-sequence", None, id="no range at all"),
        pytest.param(
            lambda story, _, at: [
                story.mark("layer", at + part * 30_000, at + part * 30_000 + 20_000) for part in range(3)
            ],
            None,
            "kernel-sequence",
            None,
            id="ranges of layers alone",
        ),
    ],
)
def test_windows_begin_with_the_ranges_or_the_first_kernels_of_steps(marks, step_range, kind, name, tmp_path):
    found = told(tmp_path / "run.sqlite", lambda story: plain(story, marks), step_range)

    assert (found.anchor.kind, found.anchor.name) == (kind, name)
    is_marked = kind in {"user", "nvtx"}
    assert windows(found) == (marked(SIX) if is_marked else chained(SIX, last_end(SIX[-1])))
    assert found.ranks[0].steps[-1].reason == "ends with the capture"


def test_of_gradient_accumulation_the_optimizer_tells_the_step(tmp_path):
    begins = [index * 400_000 for index in range(1, 6)]

    def tell(story: Story) -> None:
        for at in begins:
            for microbatch in range(3):
                story.step(at + microbatch * STEP_NS)
                story.mark("forward", at + microbatch * STEP_NS - 10, at + microbatch * STEP_NS + 40_000)
                story.mark("backward", at + microbatch * STEP_NS + 41_000, at + microbatch * STEP_NS + 95_000)
            story.step(at + 300_000, names=[ADAM] * 3)
            story.mark("optimizer", at + 300_000 - 10, at + 350_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.kind, found.anchor.name, found.anchor.steps) == ("nvtx", "optimizer", 5)
    assert [start for start, _, _ in windows(found)] == [at - 10 for at in begins]


def test_without_ranges_a_burst_of_optimizer_kernels_ends_a_step(tmp_path):
    def tell(story: Story) -> None:
        for index, at in enumerate(range(1_000_000, 6_000_000, 1_000_000)):
            names = [f"nvjet_{(7 * index * part) % 11}" for part in range(40 + index)]
            story.step(at, names=names)
            story.step(at + 600_000, names=[ADAM] * 4)

    found = told(tmp_path / "run.sqlite", tell)

    assert found.anchor.kind == "optimizer"
    assert [start for start, _, _ in windows(found)] == starts(2_000_000, 3_000_000, 4_000_000, 5_000_000)


def test_an_evaluation_in_between_makes_one_long_step_and_no_other(tmp_path):
    at = [100_000, 200_000, 300_000, 900_000, 1_000_000, 1_100_000]

    def tell(story: Story) -> None:
        for index, begin_ns in enumerate(at):
            story.step(begin_ns)
            mark_step(story, index, begin_ns)
        story.mark("evaluate", 400_000, 880_000)
        for begin_ns in (410_000, 520_000):
            story.step(begin_ns, names=["nvjet_eval"] * 8)

    assert windows(told(tmp_path / "run.sqlite", tell)) == marked(at)


def test_a_slow_start_and_modules_loaded_are_warm_up_with_their_reasons(tmp_path):
    at = [100_000, 400_000, 550_000, 650_000, 750_000, 850_000]

    def tell(story: Story) -> None:
        for index, begin_ns in enumerate(at):
            story.step(begin_ns)
            mark_step(story, index, begin_ns)
        story.writer.call("cuModuleLoadData", 150_000, 160_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert windows(found) == marked(at, frozenset({0, 1}))
    assert [(drop.index, drop.reason) for drop in found.anchor.dropped] == [
        (0, "warm-up: it loads modules"),
        (1, "warm-up: 1.5 times the median of the later windows"),
        (5, "ends with the capture"),
    ]


def test_a_slow_step_in_the_middle_stays_steady(tmp_path):
    at = [100_000, 200_000, 300_000, 900_000, 1_000_000, 1_100_000]

    def tell(story: Story) -> None:
        for index, begin_ns in enumerate(at):
            story.step(begin_ns)
            mark_step(story, index, begin_ns)

    assert [steady for *_, steady in windows(told(tmp_path / "run.sqlite", tell))] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("cudaProfilerStop_v4000", "the profiler was started or stopped in it"),
        ("cudaStreamBeginCapture_v10000", "a CUDA graph was captured in it"),
        ("cuStreamBeginCapture_v2_ptsz", "a CUDA graph was captured in it"),
        ("cudaStreamBeginRecaptureToGraph_ptsz_v13010", "a CUDA graph was captured in it"),
        ("cuGraphInstantiateWithParams_ptsz", "a CUDA graph was captured in it"),
    ],
)
def test_steps_that_the_profiler_or_a_capture_touched_are_not_steady(call, reason, tmp_path):
    def tell(story: Story) -> None:
        plain(story, mark_step)
        story.writer.call(call, SIX[3] + 50_000, SIX[3] + 51_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert [step.reason for step in found.ranks[0].steps] == [
        None,
        None,
        None,
        reason,
        None,
        "ends with the capture",
    ]


def test_steps_that_all_capture_a_graph_are_steady(tmp_path):
    def tell(story: Story) -> None:
        plain(story, mark_step)
        for at in SIX:
            story.writer.call("cudaStreamBeginCapture_v10000", at + 50_000, at + 51_000)

    assert windows(told(tmp_path / "run.sqlite", tell)) == marked(SIX)


def test_two_ranks_in_one_file_have_steps_of_their_own(tmp_path):
    later = [at + 30_000 for at in SIX]
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        for pid, device, begins in ((101, 0, SIX), (102, 1, later)):
            story = Story(writer, pid=pid, device=device)
            for index, at in enumerate(begins):
                story.step(at)
                mark_step(story, index, at)

    found = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)

    assert windows(found, 0) == marked(SIX)
    assert windows(found, 1) == marked(later)


def test_a_step_begins_when_the_work_of_the_step_before_has_ended(tmp_path):
    """The host runs ahead: it enters the next step, and copies its batch, while the device computes."""

    def tell(story: Story) -> None:
        for index, at in enumerate(SIX):
            story.step(at)
            story.launch("nvjet_tail", at + 90_000, 9_000)
            number = story.writer.call("cudaMemcpyAsync_v3020", at + 95_010, at + 95_020)
            story.writer.copy("host-to-device", at + 95_030, at + 96_000, 64, stream=15, correlation=number)
            story.mark(f"training_step_{index}", at - 4_995, at + 94_995)

    begins = [start for start, _, _ in windows(told(tmp_path / "run.sqlite", tell))]
    assert begins == [SIX[0] - 4_995, *(at + 90_000 + LAUNCH_LAG_NS + 9_000 for at in SIX[:-1])]


def test_a_collective_that_a_step_issues_first_belongs_to_it(tmp_path):
    def tell(story: Story) -> None:
        for index, at in enumerate(SIX):
            story.launch("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", at - 2_000, 8_000, stream=20)
            story.step(at)
            story.mark(f"training_step_{index}", at - 2_010, at + 95_000)

    begins = [start for start, _, _ in windows(told(tmp_path / "run.sqlite", tell))]
    assert begins == [at - 2_010 for at in SIX]


def test_work_that_outlasts_the_begin_of_a_step_does_not_delay_it(tmp_path):
    """A copy of the step before still runs when the first kernel of the next one starts."""

    def tell(story: Story) -> None:
        for index, at in enumerate(SIX):
            story.step(at)
            number = story.writer.call("cudaMemcpyAsync_v3020", at + 80_000, at + 80_010)
            story.writer.copy("device-to-host", at + 90_000, at + 130_000, 64, stream=15, correlation=number)
            mark_step(story, index, at)

    begins = [start for start, _, _ in windows(told(tmp_path / "run.sqlite", tell))]
    assert begins == [SIX[0] - 10, *starts(*SIX[1:])]


def test_work_of_another_thread_inside_the_range_counts(tmp_path):
    def tell(story: Story) -> None:
        for index, at in enumerate(SIX):
            story.step(at)
            story.mark(f"training_step_{index}", at - 10, at + 95_000, thread=4_711)

    assert windows(told(tmp_path / "run.sqlite", tell)) == marked(SIX)


def test_time_before_the_first_step_has_no_window_and_is_stated(tmp_path):
    def tell(story: Story) -> None:
        story.step(-150_000, names=["nvjet_init"])
        plain(story, mark_step)

    found = told(tmp_path / "run.sqlite", tell)

    assert found.ranks[0].outside_ns == SIX[0] - 10 + 150_000 - LAUNCH_LAG_NS  # from the first kernel on
    assert "outside-steps" in {finding.code for finding in found.capture.findings}


def test_time_after_the_last_step_has_no_window_and_is_stated(tmp_path):
    def tell(story: Story) -> None:
        plain(story, mark_step)
        story.step(SIX[-1] + 2 * STEP_NS, names=["nvjet_validation"])

    found = told(tmp_path / "run.sqlite", tell)
    (said,) = (one.message for one in found.capture.findings if one.code == "outside-steps")

    assert found.ranks[0].after_ns == 2 * STEP_NS + LAUNCH_LAG_NS + 4_500 - 95_000
    assert "the 116.5 µs from the last step to the last device operation" in said


def test_a_disagreement_of_two_anchors_is_reported(tmp_path):
    def tell(story: Story) -> None:
        at = plain(story, lambda *_: None, count=12)
        for index in range(0, 12, 2):
            story.mark(f"training_step_{index}", at[index] - 10, at[index + 1] + 95_000)

    found = told(tmp_path / "run.sqlite", tell)

    assert (found.anchor.steps, found.anchor.cross_check.steps, found.anchor.cross_check.agrees) == (
        6,
        12,
        False,
    )
    assert "anchors-disagree" in {finding.code for finding in found.capture.findings}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        pytest.param("(", "is not a valid regular expression", id="broken"),
        pytest.param("no such", "finds no range — the most frequent are: iteration", id="finds nothing"),
    ],
)
def test_a_pattern_that_finds_nothing_is_refused_with_the_names_there_are(pattern, said, tmp_path):
    def tell(story: Story) -> None:
        plain(story, lambda story, _, at: story.mark("iteration", at - 10, at + 95_000))

    with pytest.raises(StepRangeError, match=said):
        told(tmp_path / "run.sqlite", tell, pattern)


def test_a_single_step_that_the_user_names_is_as_long_as_its_range(tmp_path):
    def tell(story: Story) -> None:
        plain(story, lambda story, index, at: story.mark(f"turn {index}", at - 10, at + 95_000))

    found = told(tmp_path / "run.sqlite", tell, "^turn 3$")

    assert windows(found) == [(SIX[3] - 10, SIX[3] + 95_000, True)]


def test_a_single_mark_lasts_until_the_work_that_it_issued_is_done(tmp_path):
    def tell(story: Story) -> None:
        plain(story, lambda story, index, at: story.mark(f"turn {index}", at - 10, at + 20_000))

    found = told(tmp_path / "run.sqlite", tell, "^turn 3$")
    ((start_ns, end_ns, is_steady),) = windows(found)

    assert (start_ns, is_steady) == (SIX[3] - 10, True)
    assert SIX[3] + 20_000 < end_ns <= last_end(SIX[3])


@pytest.mark.parametrize(
    ("name", "is_step"), [("training_step_0", True), ("iteration", True), ("epoch", False)]
)
def test_a_single_range_with_a_known_name_around_most_work_is_the_step(name, is_step, tmp_path):
    def tell(story: Story) -> None:
        story.mark(name, SIX[0] - 50_000, last_end(SIX[-1]) + 70_000)
        plain(story, lambda *_: None)

    found = windows(told(tmp_path / "run.sqlite", tell))

    assert (found == [(SIX[0] - 50_000, last_end(SIX[-1]) + 70_000, True)]) is is_step


def test_a_single_range_with_a_known_name_around_little_work_is_no_step(tmp_path):
    def tell(story: Story) -> None:
        plain(
            story, lambda story, index, at: story.mark("step", at - 10, at + 95_000) if index == 3 else None
        )

    assert len(windows(told(tmp_path / "run.sqlite", tell))) > 1


@pytest.mark.parametrize(
    ("inner", "unit", "name"),
    [
        pytest.param("forward", "microbatch", "forward", id="forward passes"),
        pytest.param("microbatch {}", "microbatch", "microbatch #", id="microbatches by name"),
        pytest.param("layer_{}", "layer", "layer_#", id="layers"),
        pytest.param("something else", None, None, id="ranges of no known unit"),
    ],
)
def test_of_few_steps_the_unit_inside_tells_how_much_varies(inner, unit, name, tmp_path):
    def tell(story: Story) -> None:
        for index in range(3):
            at = 1_000_000 * (index + 1)
            story.mark(f"training_step_{index}", at - 10, at + 950_000)
            for part in range(5):
                begin_ns = at + part * (STEP_NS + 1_000 * part)
                story.step(begin_ns)
                story.mark(inner.format(part), begin_ns - 5, begin_ns + 90_000)

    found = told(tmp_path / "run.sqlite", tell).anchor.inner

    if unit is None:
        assert found is None
        return
    lengths = sorted([101_000, 103_000, 105_000, 107_000] * 3)
    assert (found.unit, found.name, found.count) == (unit, name, 12)
    assert (found.median_ns, found.p10_ns, found.p90_ns) == (104_000, lengths[0], lengths[-1])


def test_steps_of_the_capture_command_come_first_and_its_guard_shows_where_the_last_one_ends(tmp_path):
    def mark(story: Story, index: int, at: int) -> None:
        is_guard = index in {0, 5}
        story.mark("wallscope_guard" if is_guard else f"wallscope_step_{index + 10}", at - 10, at + 95_000)
        story.mark(f"training_step_{index}", at - 5, at + 94_000)

    found = told(tmp_path / "run.sqlite", lambda story: plain(story, mark))

    assert (found.anchor.kind, found.anchor.name) == ("nvtx", "wallscope_step_#")
    assert windows(found) == marked(SIX[1:])


def test_a_single_step_of_the_capture_command_is_steady_if_a_guard_follows(tmp_path):
    def mark(story: Story, index: int, at: int) -> None:
        if index in {3, 4}:
            story.mark("wallscope_guard" if index == 4 else "wallscope_step_13", at - 10, at + 95_000)

    found = told(tmp_path / "run.sqlite", lambda story: plain(story, mark))

    assert windows(found) == marked(SIX[3:5])

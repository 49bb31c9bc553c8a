"""What recurs once per step on the host: the ranges that divide a capture into steps.

The order of precedence is: the user's pattern; the steps that `wallscope capture` marks; Megatron Bridge's
`training_step_<n>`; ranges called step, iteration or similar; a cycle of phases (forward, backward,
optimizer). The rarest phase marks the step, so that microbatches do not count as steps.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, mark_numbers
from wallscope.errors import StepRangeError
from wallscope.model.analysis import AnchorKind
from wallscope.records import dataclass
from wallscope.thresholds.steps import FEWEST_ANCHOR_COUNT, MOST_ANCHOR_NAMES_COUNT
from wallscope.trace.intervals import Times

_CAPTURED_STEP, _GUARD = r"^wallscope_step_\d+$", r"^wallscope_guard$"
_TRAINING_STEP = r"(^|[./:])training_step_\d+$"
STEP = (
    r"(?i)(^|[./: _])(train_?step|train_?batch|train_?iter(ation)?|step|iter|iteration|ProfilerStep)"
    r"( ?[#_:= -]*\d*)$"
)
NO_STEP = (
    r"(?i)(optim|sched|micro|accum|eval|valid|test|ema|scaler|metric|log|zero_grad|lr[_. ]|grad[_. ]"
    r"|sub_?step|warm[ _-]?up[_ ]step)"
)
FORWARD = r"(?i)^(model[ ._])?(forward|fwd|forward[ _]pass)$"
_PHASES = {
    "forward": FORWARD,
    "backward": r"(?i)^(loss[ ._])?(backward|bwd|backward[ _]pass)$",
    "optimizer": r"(?i)^(optimizer|optimizer[ _.]?step|opt[ _]?step|optim)$",
}
_KNOWN = "|".join(
    f"(?:{known})" for known in (_CAPTURED_STEP, _GUARD, _TRAINING_STEP, STEP, *_PHASES.values())
)
_SHOWN_NAMES = 8


@dataclass(frozen=True, slots=True)
class MarkerRanges:
    """Host spans of one process, one per step, in order of time, and their name.

    `kind` is `user` or `nvtx`; `name` is the folded name.
    """

    kind: AnchorKind
    name: str
    start_ns: Times
    end_ns: Times


def label_ranges(
    ranges: pl.DataFrame,
    names: pl.DataFrame,
    threads: pl.DataFrame,
    paths: pl.DataFrame,
    folded_names: pl.DataFrame,
) -> pl.DataFrame:
    """Ranges (`NESTED`) with `process`, `text`, `like` and `folded`, from `RANGE_NAMES` and `THREADS`.

    `PATHS` and their names define what is folded.
    """
    if ranges.is_empty():
        nothing = (threads["process"], names["text"], names["like"], folded_names["text"].alias("folded"))
        return ranges.hstack([values.clear() for values in nothing])
    label = paths["name"].to_numpy()[ranges["path"].to_numpy()]
    return ranges.hstack(
        [
            threads["process"].gather(ranges["thread"]),
            *names["text", "like"][ranges["name"].to_numpy()],
            folded_names["text"][label].alias("folded"),
        ]
    )


def check_pattern(pattern: str | None, ranges: pl.DataFrame) -> None:
    """Refuse an invalid pattern, or one that matches none of the ranges (`text`, `folded`).

    Raises:
        StepRangeError: says which names there are.
    """
    if pattern is None:
        return
    try:
        is_found = match_texts(ranges, pattern, "name").any()
    except pl.exceptions.ComputeError as error:
        raise StepRangeError(
            f"--step-range {pattern!r} — is not a valid regular expression — check brackets and escapes"
        ) from error
    if not is_found:
        most = ranges.group_by("folded").agg(pl.len()).sort("len", "folded", descending=[True, False])
        shown = ", ".join(most["folded"].str.slice(0, 60).head(_SHOWN_NAMES))
        there = f"the most frequent are: {shown}" if shown else "the export has no NVTX range"
        raise StepRangeError(f"--step-range {pattern!r} — finds no range — {there}")


def select_marker_ranges(ranges: pl.DataFrame, pattern: str | None) -> pl.DataFrame:
    """The ranges among which `find_markers` finds all that it finds among these, of any process."""
    return filter_by_text(ranges, _KNOWN) if pattern is None else filter_by_text(ranges, pattern, "name")


def find_markers(ranges: pl.DataFrame, pattern: str | None) -> Iterator[MarkerRanges]:
    """What may divide a process into steps, the most trusted first, from `NESTED` with `text` and `folded`.

    With a pattern, the ranges whose text it finds and nothing else; without, the known forms that occur
    at least twice, and last those that occur once, the outermost first.
    """
    if ranges["crosses"].any():
        ranges = ranges.filter(~pl.col("crosses"))
    if pattern is not None:
        yield from _of_pattern(filter_by_text(ranges, pattern, "name"), pattern)
        return
    yield from _find_captured(ranges)
    yield from find_recurring_ranges(filter_by_text(ranges, _TRAINING_STEP))
    steps = _select_steps(filter_by_text(ranges, STEP))
    yield from find_recurring_ranges(steps)
    yield from _cycle(ranges)
    yield from _list_single(_select_steps(filter_by_text(ranges, f"{_TRAINING_STEP}|{STEP}")))


def _select_steps(ranges: pl.DataFrame) -> pl.DataFrame:
    """The ranges whose names are those of no part of a step, such as that of a scheduler."""
    return ranges[np.flatnonzero(~match_texts(ranges, NO_STEP))]


def _list_single(ranges: pl.DataFrame) -> Iterator[MarkerRanges]:
    """Each name that occurs once on a thread, the longest range first."""
    single = ranges.filter(pl.len().over("folded", "thread") == 1)
    longest = single.sort(pl.col("end_ns") - pl.col("start_ns"), descending=True, maintain_order=True)
    for row in longest.head(MOST_ANCHOR_NAMES_COUNT).rows(named=True):
        yield MarkerRanges("nvtx", row["folded"], np.array([row["start_ns"]]), np.array([row["end_ns"]]))


def filter_by_text(ranges: pl.DataFrame, pattern: str, by: str = "like") -> pl.DataFrame:
    """The ranges whose text a pattern finds, as `match_texts`."""
    return ranges[np.flatnonzero(match_texts(ranges, pattern, by))]


def match_texts(ranges: pl.DataFrame, pattern: str, by: str = "like") -> Flags:
    """Whether a pattern finds the text of each range (`text`), asked once for each number in the column `by`.

    Names that are `like` each other have one answer. A user's pattern may ask for numbers: it needs `name`.
    """
    name = ranges[by].to_numpy()
    one = np.full(int(name.max(initial=0)) + 1, -1)
    one[name] = np.arange(name.size)
    named = np.flatnonzero(one >= 0)
    is_found = ranges["text"][one[named]].str.contains(pattern).to_numpy()
    found: Flags = mark_numbers(named[is_found], one.size)[name]
    return found


def _find_captured(ranges: pl.DataFrame) -> Iterator[MarkerRanges]:
    """The steps that `wallscope capture` marks.

    The guard behind the last of them is one more, which shows where that one ends. It is unsteady itself.
    """
    for steps in _of_pattern(filter_by_text(ranges, _CAPTURED_STEP), _CAPTURED_STEP):
        guards = filter_by_text(ranges, _GUARD)
        behind = guards.filter(pl.col("start_ns") >= int(steps.end_ns[-1])).sort("start_ns").head(1)
        yield MarkerRanges(
            "nvtx",
            steps.name,
            np.append(steps.start_ns, behind["start_ns"].to_numpy()),
            np.append(steps.end_ns, behind["end_ns"].to_numpy()),
        )


def _of_pattern(ranges: pl.DataFrame, pattern: str) -> Iterator[MarkerRanges]:
    """All the ranges on the thread that holds most of their time, whatever their names."""
    if ranges.is_empty():
        return
    covered = (
        ranges.group_by("thread")
        .agg(covered=(pl.col("end_ns") - pl.col("start_ns")).sum())
        .sort("covered", "thread", descending=[True, False])
    )
    own = ranges.filter(pl.col("thread") == covered["thread"][0])
    names = own["folded"].unique()
    start_ns, end_ns = find_outer(own)
    yield MarkerRanges("user", names[0] if len(names) == 1 else pattern, start_ns, end_ns)


def find_recurring_ranges(ranges: pl.DataFrame) -> Iterator[MarkerRanges]:
    """Each name that recurs on a thread, those that cover most host time first."""
    rows_of: dict[tuple[str, int], list[int]] = {}
    for row, key in enumerate(ranges["folded", "thread"].iter_rows()):
        rows_of.setdefault(key, []).append(row)
    start_ns, end_ns = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    covered_ns = end_ns - start_ns
    by_name = sorted(
        (-int(covered_ns[rows].sum()), int(start_ns[rows].min()), name, rows)
        for (name, _), rows in rows_of.items()
        if len(rows) >= FEWEST_ANCHOR_COUNT
    )
    for *_, name, rows in by_name[:MOST_ANCHOR_NAMES_COUNT]:
        outer = find_outer(ranges[rows])
        if outer[0].size >= FEWEST_ANCHOR_COUNT:
            yield MarkerRanges("nvtx", name, *outer)


def find_outer(ranges: pl.DataFrame) -> tuple[Times, Times]:
    """Bounds of the ranges that no other of them holds, in order of time."""
    start_ns, end_ns = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
    order = np.lexsort((-end_ns, start_ns))
    start_ns, end_ns = start_ns[order], end_ns[order]
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))[: order.size]
    return start_ns[start_ns >= before], end_ns[start_ns >= before]


def _cycle(ranges: pl.DataFrame) -> Iterator[MarkerRanges]:
    """Phases in turn: a step reaches from the first phase behind the last one's end to that end.

    The rarest phase is the last of a step if it is rarer than the others (one optimizer after many
    microbatches). Of equally frequent phases, the first in time begins the step, and the last one ends it.
    """
    found = {name: filter_by_text(ranges, known) for name, known in _PHASES.items()}
    phases = {name: find_outer(of_phase) for name, of_phase in found.items()}
    phases = {name: bounds for name, bounds in phases.items() if bounds[0].size >= FEWEST_ANCHOR_COUNT}
    if not phases:
        return
    fewest = min(start_ns.size for start_ns, _ in phases.values())
    rarest = [name for name, (start_ns, _) in phases.items() if start_ns.size == fewest]
    if len(rarest) == len(phases):
        first = min(rarest, key=lambda name: int(phases[name][0][0]))
        start_ns, end_ns = phases[first]
        for others_ns, ends_ns in phases.values():
            step = np.searchsorted(start_ns, others_ns, side="right") - 1
            np.maximum.at(end_ns, step[step >= 0], ends_ns[step >= 0])
        yield MarkerRanges("nvtx", found[first]["folded"][0], start_ns, end_ns)
        return
    last = max(rarest, key=lambda name: int(phases[name][0][0]))
    end_ns = phases[last][1]
    begins = np.sort(np.concatenate([start_ns for start_ns, _ in phases.values()]))
    behind = np.concatenate(([np.iinfo(np.int64).min], end_ns[:-1]))
    start_ns = begins[np.searchsorted(begins, behind, side="left")]
    yield MarkerRanges("nvtx", found[last]["folded"][0], start_ns, end_ns)

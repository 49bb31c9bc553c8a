"""What recurs once per step on the host: the ranges that divide a capture into steps.

Asked in this order: the user's pattern; Megatron Bridge's `training_step_<n>`; ranges called step,
iteration or the like; a cycle of phases (forward, backward, optimizer), whose rarest member tells the
step, so that microbatches do not count as steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.errors import StepRangeError
from wallscope.model.analysis import AnchorKind
from wallscope.timeline.folding import folded
from wallscope.timeline.spans import Times

_TRAINING_STEP = r"(^|[./:])training_step_\d+$"
_STEP = (
    r"(?i)(^|[./: _])(train_?step|train_?batch|train_?iter(ation)?|step|iter|iteration|ProfilerStep)"
    r"( ?[#_:= -]*\d*)$"
)
_NO_STEP = (
    r"(?i)(optim|sched|micro|accum|eval|valid|test|ema|scaler|metric|log|zero_grad|lr[_. ]|grad[_. ]"
    r"|sub_?step|warm[ _-]?up[_ ]step)"
)
FORWARD = r"(?i)^(model[ ._])?(forward|fwd|forward[ _]pass)$"
_PHASES = {
    "forward": FORWARD,
    "backward": r"(?i)^(loss[ ._])?(backward|bwd|backward[ _]pass)$",
    "optimizer": r"(?i)^(optimizer|optimizer[ _.]?step|opt[ _]?step|optim)$",
}
_FEWEST = 2
_SHOWN_NAMES = 8
_MOST_NAMES = 8


@dataclass(frozen=True, slots=True)
class AnchorRanges:
    """Host spans of one process, one a step, in order of time, and what they are called.

    `kind` is `user` or `nvtx`; `name` is the folded name.
    """

    kind: AnchorKind
    name: str
    start_ns: Times
    end_ns: Times


def labelled(ranges: pl.DataFrame, names: pl.DataFrame, threads: pl.DataFrame) -> pl.DataFrame:
    """Ranges (`NESTED`) with the columns `process`, `text` and `folded`, from `NAMES` and `THREADS`."""
    texts = names.with_columns(folded=folded(names["text"]))
    return ranges.join(
        threads.select("thread", "process"), on="thread", how="left", maintain_order="left"
    ).join(texts, on="name", how="left", maintain_order="left")


def check_pattern(pattern: str | None, ranges: pl.DataFrame) -> None:
    """Refuse a pattern that is no pattern, or that finds none of the ranges (`text`, `folded`).

    Raises:
        StepRangeError: says which names there are.
    """
    if pattern is None:
        return
    try:
        is_found = ranges["text"].str.contains(pattern).any()
    except pl.exceptions.ComputeError as error:
        raise StepRangeError(f"--step-range {pattern!r} — is no regular expression — mend it") from error
    if not is_found:
        most = ranges.group_by("folded").agg(pl.len()).sort("len", "folded", descending=[True, False])
        shown = ", ".join(most["folded"].str.slice(0, 60).head(_SHOWN_NAMES))
        there = f"the most frequent are: {shown}" if shown else "the export holds none at all"
        raise StepRangeError(f"--step-range {pattern!r} — finds no range — {there}")


def named_anchors(ranges: pl.DataFrame, pattern: str | None) -> Iterator[AnchorRanges]:
    """What may divide a process into steps, the most trusted first, from `NESTED` with `text` and `folded`.

    With a pattern, the ranges whose text it finds and nothing else; without, the known forms that occur
    at least twice.
    """
    ranges = ranges.filter(~pl.col("crosses"))
    if pattern is not None:
        yield from _of_pattern(ranges.filter(pl.col("text").str.contains(pattern)), pattern)
        return
    yield from outermost(ranges.filter(pl.col("text").str.contains(_TRAINING_STEP)))
    is_step = pl.col("text").str.contains(_STEP) & ~pl.col("text").str.contains(_NO_STEP)
    yield from outermost(ranges.filter(is_step))
    yield from _cycle(ranges)


def _of_pattern(ranges: pl.DataFrame, pattern: str) -> Iterator[AnchorRanges]:
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
    start_ns, end_ns = _outer(own)
    yield AnchorRanges("user", names[0] if len(names) == 1 else pattern, start_ns, end_ns)


def outermost(ranges: pl.DataFrame) -> Iterator[AnchorRanges]:
    """Each name that recurs on a thread, those that cover most host time first."""
    by_name = (
        ranges.group_by("folded", "thread")
        .agg(pl.len(), covered=(pl.col("end_ns") - pl.col("start_ns")).sum(), first=pl.col("start_ns").min())
        .filter(pl.col("len") >= _FEWEST)
        .sort("covered", "first", "folded", descending=[True, False, False])
    )
    for name, thread in by_name.select("folded", "thread").head(_MOST_NAMES).iter_rows():
        start_ns, end_ns = _outer(ranges.filter((pl.col("folded") == name) & (pl.col("thread") == thread)))
        if start_ns.size >= _FEWEST:
            yield AnchorRanges("nvtx", name, start_ns, end_ns)


def _outer(ranges: pl.DataFrame) -> tuple[Times, Times]:
    """Bounds of the ranges that no other of them holds, in order of time."""
    own = ranges.sort("start_ns", "end_ns", descending=[False, True])
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))
    return start_ns[start_ns >= before], end_ns[start_ns >= before]


def _cycle(ranges: pl.DataFrame) -> Iterator[AnchorRanges]:
    """Phases in turn: a step reaches from the first phase behind the last one's end to that end.

    The rarest phase is the last of a step where it is rarer than the others (one optimizer behind many
    microbatches); of equally frequent ones the first in time begins the step.
    """
    found = {name: ranges.filter(pl.col("text").str.contains(known)) for name, known in _PHASES.items()}
    phases = {name: _outer(of_phase) for name, of_phase in found.items()}
    phases = {name: bounds for name, bounds in phases.items() if bounds[0].size >= _FEWEST}
    if not phases:
        return
    fewest = min(start_ns.size for start_ns, _ in phases.values())
    rarest = [name for name, (start_ns, _) in phases.items() if start_ns.size == fewest]
    if len(rarest) == len(phases):
        first = min(rarest, key=lambda name: int(phases[name][0][0]))
        yield AnchorRanges("nvtx", found[first]["folded"][0], *phases[first])
        return
    last = max(rarest, key=lambda name: int(phases[name][0][0]))
    end_ns = phases[last][1]
    begins = np.sort(np.concatenate([start_ns for start_ns, _ in phases.values()]))
    behind = np.concatenate(([np.iinfo(np.int64).min], end_ns[:-1]))
    start_ns = begins[np.searchsorted(begins, behind, side="left")]
    yield AnchorRanges("nvtx", found[last]["folded"][0], start_ns, end_ns)

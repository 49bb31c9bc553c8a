"""What recurs once per step on the host: the ranges that divide a capture into steps.

Asked in this order: the user's pattern; Megatron Bridge's `training_step_<n>`; ranges called step,
iteration or the like; a cycle of phases (forward, backward, optimizer), whose rarest member tells the
step, so that microbatches do not count as steps.
"""

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
_PHASES = {
    "forward": r"(?i)^(model[ ._])?(forward|fwd|forward[ _]pass)$",
    "backward": r"(?i)^(loss[ ._])?(backward|bwd|backward[ _]pass)$",
    "optimizer": r"(?i)^(optimizer|optimizer[ _.]?step|opt[ _]?step|optim)$",
}
_FEWEST = 2
_SHOWN_NAMES = 8


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


def named_anchor(ranges: pl.DataFrame, pattern: str | None) -> AnchorRanges | None:
    """The ranges that divide a process into steps, from columns of `NESTED` with `text` and `folded`.

    With a pattern, the ranges whose text it finds and no others; without, the first of the known forms
    that occurs at least twice.
    """
    if pattern is not None:
        return _outermost("user", ranges.filter(pl.col("text").str.contains(pattern)), fewest=1)
    for known in (_TRAINING_STEP, _STEP):
        found = _outermost("nvtx", ranges.filter(pl.col("text").str.contains(known)), fewest=_FEWEST)
        if found is not None:
            return found
    return _cycle(ranges)


def _outermost(kind: AnchorKind, ranges: pl.DataFrame, fewest: int) -> AnchorRanges | None:
    """Of the ranges of one name those that no other of them holds; the name that covers most host time."""
    if ranges.is_empty():
        return None
    covered = pl.col("end_ns") - pl.col("start_ns")
    best = (
        ranges.group_by("folded", "thread")
        .agg(pl.len(), covered=covered.sum(), first=pl.col("start_ns").min())
        .filter(pl.col("len") >= fewest)
        .sort("covered", "first", "folded", descending=[True, False, False])
    )
    if best.is_empty():
        return None
    name, thread = best["folded"][0], best["thread"][0]
    own = ranges.filter((pl.col("folded") == name) & (pl.col("thread") == thread)).sort("start_ns")
    start_ns, end_ns = own["start_ns"].to_numpy(), own["end_ns"].to_numpy()
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(end_ns)[:-1]))
    outer = start_ns >= before
    return AnchorRanges(kind, name, start_ns[outer], end_ns[outer])


def _cycle(ranges: pl.DataFrame) -> AnchorRanges | None:
    """Phases in turn: a step reaches from the first phase behind the last one's end to that end.

    The rarest phase is the last of a step where it is rarer than the others (one optimizer behind many
    microbatches); of equally frequent ones the first in time begins the step.
    """
    phases = {name: ranges.filter(pl.col("text").str.contains(known)) for name, known in _PHASES.items()}
    counts = {name: len(found) for name, found in phases.items() if len(found) >= _FEWEST}
    if not counts:
        return None
    begin_ns = {name: int(phases[name]["start_ns"].to_numpy().min()) for name in counts}
    fewest = min(counts.values())
    rarest = [name for name, count in counts.items() if count == fewest]
    if len(rarest) == len(counts):
        first = min(rarest, key=begin_ns.__getitem__)
        return _outermost("nvtx", phases[first], _FEWEST)
    last = max(rarest, key=begin_ns.__getitem__)
    end_ns = phases[last].sort("start_ns")["end_ns"].to_numpy()
    begins = np.sort(pl.concat([phases[name]["start_ns"] for name in counts]).to_numpy())
    behind = np.concatenate(([np.iinfo(np.int64).min], end_ns[:-1]))
    start_ns = begins[np.searchsorted(begins, behind, side="left")]
    return AnchorRanges("nvtx", phases[last]["folded"][0], start_ns, end_ns)

"""A capture prepared for attribution: its trace, the windows of its ranks, and their slices."""

from dataclasses import field, replace

import polars as pl

from wallscope.attribution.attribute import Evidence, OperationFacts, attribute_rank
from wallscope.attribution.totals import TypicalWork, make_typical_work, select_typical_steps
from wallscope.columns import split_by_rank
from wallscope.model.capture import Capture, Selection
from wallscope.model.schemas import SLICES
from wallscope.records import dataclass
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.ranges import RangeTree
from wallscope.trace.steps import Steps


@dataclass(frozen=True, slots=True)
class Trace:
    """A capture with its operations classified (`CLASSIFIED`), projected and divided into windows.

    `operations` are whole, and all those of the ranks; `waits` are those of the whole capture, and `steps` is
    its division. `windows` are those in the selection, with the columns of `STEPS` and `BUDGETS`, and those
    of `select_windows`. `projected` follows `PROJECTION`. `shown` are the ids of the ranks that the user
    selects. `left_out` counts those without a selected window. `may_communicate` is the evidence that kernels
    with unrecognized names may communicate, `None` without any.
    """

    capture: Capture
    operations: pl.DataFrame
    waits: Dependencies
    steps: Steps
    windows: pl.DataFrame
    projected: pl.DataFrame
    range_tree: RangeTree
    selection: Selection
    shown: frozenset[int]
    left_out: int
    may_communicate: str | None

    def places_without_marker(self) -> frozenset[int]:
        """Return the indices of ranks without the step marker of the others, from 0 among `capture.ranks`."""
        numbers = enumerate(self.capture.ranks["rank_id"])
        return frozenset(place for place, number in numbers if number in self.steps.unmarked)

    def restrict_to_selection(self) -> "Trace":
        """Return the trace of the ranks that the user selects."""
        ranks = self.capture.ranks
        is_shown = pl.col("rank_id").is_in(sorted(self.shown))
        if ranks.select(is_shown.all()).item():
            return self
        return replace(
            self,
            capture=replace(self.capture, ranks=ranks.filter(is_shown)),
            operations=self.operations.filter(is_shown),
            windows=self.windows.filter(is_shown),
        )


@dataclass(frozen=True, slots=True)
class RankWindows:
    """A rank with its operations (`CLASSIFIED`), its windows (`STEPS`, in order), and typical ones."""

    rank_id: int
    operations: pl.DataFrame
    windows: pl.DataFrame
    typical: pl.DataFrame


def list_rank_windows(trace: Trace) -> list[RankWindows]:
    """Return the ranks with their operations and windows."""
    operations, windows = split_by_rank(trace.operations), split_by_rank(trace.windows)
    return [
        RankWindows(rank_id, operations[rank_id], windows[rank_id], select_typical_steps(windows[rank_id]))
        for rank_id in trace.capture.ranks["rank_id"]
    ]


def select_rank_windows(trace: Trace, rank_id: int) -> RankWindows:
    """Return one rank with its operations and windows."""
    windows = split_by_rank(trace.windows)[rank_id]
    operations = split_by_rank(trace.operations)[rank_id]
    return RankWindows(rank_id, operations, windows, select_typical_steps(windows))


def measure_rank_work(trace: Trace, rank_id: int) -> TypicalWork:
    """Return the operations of a rank in the steps of its typical step."""
    own = select_rank_windows(trace, rank_id)
    return make_typical_work(own.operations, own.typical)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All inputs of a time breakdown: the first stage of every command.

    They are about the ranks that the user selects, but for `evidence`. `whole` is the same about all ranks,
    with which the selected ones are replayed; `None` where all are selected. The slices of a rank are
    computed on first use. `keeps_slices` caches them for later uses, at 60 bytes per slice. Several threads
    may request ranks at once.
    """

    trace: Trace
    facts: OperationFacts
    evidence: Evidence
    keeps_slices: bool = False
    whole: "Prepared | None" = None
    _kept: dict[int, pl.DataFrame] = field(default_factory=dict)

    def restrict_to_selection(self) -> "Prepared":
        """Return the inputs about the ranks that the user selects."""
        trace = self.trace.restrict_to_selection()
        if trace is self.trace:
            return self
        return replace(self, trace=trace, facts=self.facts.select(trace.operations["op"]), whole=self)

    def slices_of_rank(self, own: RankWindows) -> pl.DataFrame:
        """Return the slices of a rank, as `attribute_rank` does."""
        slices = self._kept.get(own.rank_id)
        if slices is None:
            slices = attribute_rank(self.evidence, own.operations, own.windows)
            if self.keeps_slices:
                self._kept[own.rank_id] = slices
        return slices

    def slices(self) -> pl.DataFrame:
        """Return the slices (`SLICES`) of all ranks."""
        of_ranks = (self.slices_of_rank(own).cast(SLICES) for own in list_rank_windows(self.trace))
        return pl.concat([SLICES.to_frame(), *of_ranks])

"""The tables of `model.exported`, made one by one from an answer and its parts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from wallscope.errors import UnknownWordError
from wallscope.model.analysis import Analysis
from wallscope.model.exported import TABLES, Table
from wallscope.walls import exported_answer
from wallscope.walls.accounting import Divided, all_slices
from wallscope.walls.attribution import Evidence
from wallscope.walls.evidence import OperationFacts
from wallscope.walls.exported_gaps import gaps
from wallscope.walls.named import Named
from wallscope.walls.tables import kernel_table, range_table
from wallscope.walls.traced import Traced

_DECLARED = {table.name: table for table in TABLES}
_WHO = ("rank", "pid", "device")
_LENGTH = pl.col("end_ns") - pl.col("start_ns")


@dataclass(frozen=True)
class Exported:
    """Makes tables on demand, those of the selected steps and time; the slices are kept between calls.

    `path` finds a rank, by its id, and the critical paths of its steps (`SHOWN_PATH`).
    """

    analysis: Analysis
    parts: Divided
    evidence: Evidence
    facts: OperationFacts
    path: Callable[[], tuple[int, pl.DataFrame]] | None = None

    def frame(self, name: str) -> pl.DataFrame:
        """The table of that name, with the columns and types of its declaration.

        Raises:
            UnknownWordError: there is no such table; says which there are.
        """
        table = declared(name)
        if name in _OF_ANSWER:
            return answer_frame(self.analysis, name)
        return _OF_PARTS[name](self).select(table.schema.names()).cast(table.schema)

    @cached_property
    def _slices(self) -> pl.DataFrame:
        found = all_slices(self.parts, self.evidence)
        chosen = self.parts.windows.filter(pl.col("selected")).select("rank_id", "step")
        return found.join(chosen, on=["rank_id", "step"], how="semi").sort("rank_id", "start_ns")

    def traced(self) -> Traced:
        """The same as tracks of a trace."""
        path = None if self.path is None else self.path()
        return Traced(self.parts, self._slices, self._named, path)

    @cached_property
    def _named(self) -> Named:
        return Named(self.parts)

    def _who(self, rows: pl.DataFrame) -> pl.DataFrame:
        ranks = self.parts.capture.ranks.select("rank_id", *_WHO)
        return rows.join(ranks, on="rank_id", how="left", maintain_order="left")

    def slices(self) -> pl.DataFrame:
        """`slices`: numbers of what takes part, and its names."""
        rows, named = self._slices, self._named
        numbers = [
            pl.when(pl.col(name) >= 0).then(pl.col(name)).alias(name)
            for name in ("op", "next_op", "gap", "call")
        ]
        return (
            self._who(rows)
            .with_columns(
                *numbers,
                duration_ns=_LENGTH,
                link=pl.col("kind").cast(pl.String),
                name=named.operations(rows["op"]),
                call_name=named.calls(rows["call"]),
                path=named.paths(rows["range"]),
                tid=named.tids(rows["thread"]),
            )
            .rename({"gap": "gap_op"})
        )

    def step_causes(self) -> pl.DataFrame:
        """`step_causes`: the slices of each step added up."""
        keys = ("rank_id", "step", "wall", "cause", "state", "absent")
        return self._who(self._slices.group_by(keys).agg(owned_ns=_LENGTH.sum()).sort(keys, nulls_last=True))

    def gaps(self) -> pl.DataFrame:
        """`gaps`, in order of rank and time."""
        return self._who(gaps(self._slices, self.parts, self._named))

    def operations(self) -> pl.DataFrame:
        """`operations`: those that run in the selected steps and time, all without such a selection."""
        rows, named = self._named.shown_operations, self._named
        op = rows["op"]
        projected = self.parts.projected
        return self._who(rows).with_columns(
            duration_ns=_LENGTH,
            stream=named.streams("number", rows["stream"]),
            context=named.streams("context", rows["stream"]),
            name=named.operations(op),
            axis=named.at(self.facts.axes, "axis", op),
            call=pl.when(pl.col("call") >= 0).then("call"),
            call_start_ns=named.call_starts(rows["call"]),
            path=named.paths(projected["range"].gather(op)),
            path_by=projected["how"].gather(op).cast(pl.String),
        )

    def collectives(self) -> pl.DataFrame:
        """`collectives`: each operation that has an axis, known or not."""
        named, facts = self._named, self.facts.collectives.drop("operation")
        rows = (
            named.shown_operations.drop("bytes", "operation", strict=False)
            .join(self.facts.axes, on="op", maintain_order="left")
            .join(facts, on="op", how="left", maintain_order="left")
        )
        communicator = rows["communicator"].to_list()
        return self._who(rows).with_columns(
            pl.Series(
                "communicator", [None if one is None else f"{one:#x}" for one in communicator], pl.String
            ),
            duration_ns=_LENGTH,
            name=named.operations(rows["op"]),
        )

    def calls(self) -> pl.DataFrame:
        """`calls` of the processes of the selected ranks."""
        rows, named = self._named.shown_calls, self._named
        return rows.with_columns(
            duration_ns=_LENGTH,
            pid=named.pids(rows["thread"]),
            tid=named.tids(rows["thread"]),
            name=self.parts.capture.call_names["text"].gather(rows["name"]),
        )

    def ranges(self) -> pl.DataFrame:
        """`ranges` of the processes of the selected ranks."""
        rows, named = self._named.shown_ranges, self._named
        return rows.with_columns(
            duration_ns=_LENGTH,
            pid=named.pids(rows["thread"]),
            tid=named.tids(rows["thread"]),
            name=self.parts.capture.range_names["text"].gather(rows["name"]),
            path=named.paths(rows["range"]),
            parent=pl.when(pl.col("parent") >= 0).then("parent"),
        )


def answer_frame(analysis: Analysis, name: str) -> pl.DataFrame:
    """One of `ANSWER_TABLES`, for which the answer alone is enough.

    Raises:
        UnknownWordError: there is no such table among them; says which there are.
    """
    if name not in _OF_ANSWER:
        raise UnknownWordError(f"{name} — is no table of an answer — these are {', '.join(ANSWER_TABLES)}")
    return _OF_ANSWER[name](analysis)


def declared(name: str) -> Table:
    """The declaration of a table.

    Raises:
        UnknownWordError: there is none of that name; says which there are.
    """
    if name not in _DECLARED:
        raise UnknownWordError(f"{name} — is no table — the tables are {', '.join(_DECLARED)}")
    return _DECLARED[name]


_OF_ANSWER: Mapping[str, Callable[[Analysis], pl.DataFrame]] = {
    "ranks": exported_answer.ranks,
    "steps": exported_answer.steps,
    "causes": exported_answer.causes,
    "communication": exported_answer.communication,
    "copies": exported_answer.copies,
    "compute": exported_answer.compute,
    "blocking_calls": exported_answer.blocking_calls,
    "gpu_metrics": exported_answer.gpu_metrics,
    "opportunities": exported_answer.opportunities,
    "fixes": exported_answer.fixes,
    "settings": exported_answer.settings,
    "preconditions": exported_answer.preconditions,
    "findings": exported_answer.findings,
}
ANSWER_TABLES = tuple(_OF_ANSWER)
"""The tables that stand in an answer, also in that of a whole job."""

_OF_PARTS: Mapping[str, Callable[[Exported], pl.DataFrame]] = {
    "step_causes": Exported.step_causes,
    "slices": Exported.slices,
    "gaps": Exported.gaps,
    "operations": Exported.operations,
    "calls": Exported.calls,
    "ranges": Exported.ranges,
    "range_work": lambda made: range_table(made.parts),
    "kernels": lambda made: kernel_table(made.parts),
    "collectives": Exported.collectives,
}

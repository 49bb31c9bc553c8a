"""The tables of `model.exported` that stand in the answer itself."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import polars as pl

from wallscope.model.analysis import Analysis, Budget, Rank, Walls
from wallscope.model.exported import TABLES
from wallscope.model.frames import BUDGET_PARTS
from wallscope.model.kinds import Wall

_SCHEMAS = {table.name: table.schema for table in TABLES}
_TOLD_APART = "; "

Row = Mapping[str, Any]


def ranks(analysis: Analysis) -> pl.DataFrame:
    """`ranks`, with the typical step of each."""
    return _frame("ranks", (_rank(analysis, rank) for rank in analysis.ranks))


def _rank(analysis: Analysis, rank: Rank) -> Row:
    gpu = analysis.inputs[rank.input].gpu(rank.gpu)
    return {
        **_who(rank),
        "rank_source": rank.rank_source,
        "gpu": None if gpu is None else gpu.name,
        "steps": len(rank.steps),
        "steady_steps": sum(step.steady for step in rank.steps),
        "typical_step_ns": rank.typical.step_ns,
        "outside_ns": rank.outside_ns,
        **_times(rank.typical.budget, rank.typical.walls),
    }


def steps(analysis: Analysis) -> pl.DataFrame:
    """`steps` of all ranks."""
    return _frame(
        "steps",
        (
            {
                **_who(rank),
                "step": step.index,
                "start_ns": step.start_ns,
                "end_ns": step.end_ns,
                "duration_ns": step.end_ns - step.start_ns,
                **_times(step.budget, step.walls),
                "launch_starved_ns": step.compute_absent.launch_starved,
                "blocking_ns": step.compute_absent.blocking,
                "dependency_stalled_ns": step.compute_absent.dependency_stalled,
                "steady": step.steady,
                "reason": step.reason,
            }
            for rank in analysis.ranks
            for step in rank.steps
        ),
    )


def causes(analysis: Analysis) -> pl.DataFrame:
    """`causes` of all ranks."""
    return _frame(
        "causes",
        (
            {
                **_who(rank),
                "wall": str(entry.wall),
                "cause": entry.cause,
                "typical_ns": entry.typical_ns,
                "step_share": entry.share,
                "recoverable_ns": entry.recoverable_ns,
                "unresolved_ns": entry.unresolved_ns,
            }
            for rank in analysis.ranks
            for entry in rank.causes
        ),
    )


def communication(analysis: Analysis) -> pl.DataFrame:
    """`communication` of all ranks."""
    return _frame("communication", _of(analysis, lambda rank: rank.communication.operations))


def copies(analysis: Analysis) -> pl.DataFrame:
    """`copies` of all ranks."""
    return _frame("copies", _of(analysis, lambda rank: rank.memory.copies))


def compute(analysis: Analysis) -> pl.DataFrame:
    """`compute` of all ranks."""
    return _frame(
        "compute",
        (row | {"work_share": row["share"]} for row in _of(analysis, lambda rank: rank.compute)),
    )


def blocking_calls(analysis: Analysis) -> pl.DataFrame:
    """`blocking_calls` of the ranks whose calls are known."""
    return _frame(
        "blocking_calls",
        _of(analysis, lambda rank: () if rank.host_details is None else rank.host_details.blocking_calls),
    )


def gpu_metrics(analysis: Analysis) -> pl.DataFrame:
    """`gpu_metrics` of the ranks whose GPU was sampled."""
    return _frame(
        "gpu_metrics",
        _of(analysis, lambda rank: () if rank.gpu_metrics is None else rank.gpu_metrics.means),
    )


def opportunities(analysis: Analysis) -> pl.DataFrame:
    """`opportunities`, as ranked."""
    return _frame("opportunities", map(_row, analysis.opportunities))


def fixes(analysis: Analysis) -> pl.DataFrame:
    """`fixes`, as ranked."""
    found = enumerate(analysis.fixes or (), start=1)
    return _frame("fixes", (_row(fix) | {"place": place, "fix": fix.id} for place, fix in found))


def settings(analysis: Analysis) -> pl.DataFrame:
    """`settings` of all fixes."""
    return _frame(
        "settings", (_row(one) | {"fix": fix.id} for fix in analysis.fixes or () for one in fix.settings)
    )


def preconditions(analysis: Analysis) -> pl.DataFrame:
    """`preconditions` of all fixes."""
    return _frame(
        "preconditions",
        (
            _row(one) | {"fix": fix.id, "precondition": one.id}
            for fix in analysis.fixes or ()
            for one in fix.preconditions
        ),
    )


def findings(analysis: Analysis) -> pl.DataFrame:
    """`findings` of the capture."""
    return _frame("findings", map(_row, analysis.capture.findings))


def _of(analysis: Analysis, entries: Any) -> Iterator[dict[str, Any]]:
    for rank in analysis.ranks:
        for entry in entries(rank):
            yield _who(rank) | _row(entry)


def _frame(table: str, rows: Iterable[Row]) -> pl.DataFrame:
    schema = _SCHEMAS[table]
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema)


def _row(noun: Any) -> dict[str, Any]:
    """The fields of a noun; several texts in one cell are told apart by semicolons."""
    values = {name: getattr(noun, name) for name in noun.__slots__}
    return {
        name: _TOLD_APART.join(map(str, value))
        if isinstance(value, tuple)
        else str(value)
        if isinstance(value, str)
        else value
        for name, value in values.items()
    }


def _who(rank: Rank) -> dict[str, Any]:
    return {"rank": rank.rank, "pid": rank.pid, "device": rank.device}


def _times(budget: Budget, walls: Walls) -> dict[str, int]:
    of_budget = zip(BUDGET_PARTS, budget.parts(), strict=True)
    of_walls = zip((f"{wall}_wall_ns" for wall in Wall), walls.parts(), strict=True)
    return dict((*of_budget, *of_walls))

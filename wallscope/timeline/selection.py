"""A part of a capture: some ranks, some steps, a stretch of time. What straddles a bound is clipped."""

from dataclasses import dataclass

import polars as pl

from wallscope.errors import SelectionError
from wallscope.units import seconds


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked at; `None` is everything.

    `steps` are numbers of windows, both included; `time_ns` is a half-open stretch of session time.
    """

    rank: int | None = None
    device: int | None = None
    steps: tuple[int, int] | None = None
    time_ns: tuple[int, int] | None = None


def selected_ranks(ranks: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The ranks (`RANKS`) of that number and device.

    Raises:
        SelectionError: there is none; says which there are.
    """
    found = ranks
    for column in ("rank", "device"):
        wanted = getattr(selection, column)
        if wanted is None:
            continue
        found = found.filter(pl.col(column) == wanted)
        if found.is_empty():
            there = ", ".join(map(str, ranks[column].unique().drop_nulls().sort()))
            said = f"there are {there}" if there else "the export does not tell any"
            raise SelectionError(f"--{column} {wanted} — is not in this export — {said}")
    return found


def clipped(operations: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """Operations that have a part inside the selected time, cut to it.

    Raises:
        SelectionError: none has; says when the operations are.
    """
    if selection.time_ns is None:
        return operations
    begin_ns, end_ns = selection.time_ns
    inside = operations.filter((pl.col("end_ns") > begin_ns) & (pl.col("start_ns") < end_ns))
    if inside.is_empty():
        first, last = operations["start_ns"].to_numpy().min(), operations["end_ns"].to_numpy().max()
        raise SelectionError(
            f"--time {seconds(begin_ns)}-{seconds(end_ns)} — holds no device operation — they are between"
            f" {seconds(int(first))} and {seconds(int(last))} s"
        )
    return inside.with_columns(
        start_ns=pl.col("start_ns").clip(lower_bound=begin_ns),
        end_ns=pl.col("end_ns").clip(upper_bound=end_ns),
    )


def only_steps(windows: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """Windows (`STEPS`) with those that were not selected, or that the time cuts, marked as not steady.

    Raises:
        SelectionError: none of the selected ones exists.
    """
    if selection.time_ns is not None:
        step = pl.col("step")
        is_cut = ((step == step.min().over("rank_id")) | (step == step.max().over("rank_id"))) & (
            pl.len().over("rank_id") > 1
        )
        windows = windows.with_columns(
            steady=pl.col("steady") & ~is_cut,
            reason=pl.when(is_cut).then(pl.lit("cut by --time")).otherwise("reason"),
        )
    if selection.steps is None:
        return windows
    first, last = selection.steps
    is_chosen = pl.col("step").is_between(first, last)
    if windows.filter(is_chosen).is_empty():
        there = int(windows["step"].to_numpy().max())
        raise SelectionError(f"--steps {first}-{last} — are not in this export — there are 0-{there}")
    return windows.with_columns(
        steady=pl.col("steady") & is_chosen,
        reason=pl.when(is_chosen).then("reason").otherwise(pl.lit(f"not among --steps {first}-{last}")),
    )

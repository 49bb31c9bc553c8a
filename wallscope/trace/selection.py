"""A part of a capture: some ranks, some steps, a stretch of time.

The whole capture is divided first, so that a step has the same number whatever is selected; then windows
are left out or cut.
"""

import polars as pl

from wallscope.errors import SelectionError
from wallscope.model.selection import FOREVER_NS, Selection, stretch
from wallscope.units import seconds


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


def selected_windows(windows: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """Windows (`STEPS`) that have a part inside the selected time, cut to it, with more columns.

    `selected` is true of the chosen steps; of those that the time cuts only where it leaves the rank no
    chosen one whole. A window that is not chosen, or is cut, is not steady. Ranks without a selected
    window are left out. With a time, `host_until_ns` is where ranges of the host end at the latest.

    The host's time for a window (`issue_start_ns`, `issue_end_ns`) stays whole with the window, even where
    it lies before the selected time; it is cut to that time where the window is, or where it has no bound.

    Raises:
        SelectionError: no window has a part in the time, or none of the steps is there.
    """
    if selection.steps is None and selection.time_ns is None:
        return windows.with_columns(selected=pl.lit(value=True))
    marked = _chosen(_in_time(windows, selection.time_ns), selection)
    is_whole = pl.col("chosen") & ~pl.col("cut")
    is_selected = is_whole | (pl.col("chosen") & ~is_whole.any().over("rank_id"))
    return (
        marked.with_columns(selected=is_selected)
        .filter(pl.col("selected").any().over("rank_id"))
        .drop("chosen", "cut")
    )


def _in_time(windows: pl.DataFrame, time_ns: tuple[int, int] | None) -> pl.DataFrame:
    """The windows cut to the time, with the columns `cut` and, if there is a time, `host_until_ns`."""
    if time_ns is None:
        return windows.with_columns(cut=pl.lit(value=False))
    begin_ns, end_ns = time_ns
    start, end = pl.col("start_ns"), pl.col("end_ns")
    inside = windows.filter((start < end_ns) & ((end > begin_ns) | (start >= begin_ns)))
    if inside.is_empty():
        first, last = windows["start_ns"].to_numpy().min(), windows["end_ns"].to_numpy().max()
        raise SelectionError(
            f"--time {seconds(begin_ns)}-{seconds(end_ns)} — holds no part of a step — the windows are"
            f" between {seconds(int(first))} and {seconds(int(last))} s"
        )
    is_cut = (start < begin_ns) | (end > end_ns)
    issue_start, issue_end = pl.col("issue_start_ns"), pl.col("issue_end_ns")
    return inside.with_columns(
        cut=is_cut,
        start_ns=start.clip(lower_bound=begin_ns),
        end_ns=end.clip(upper_bound=end_ns),
        issue_start_ns=pl.when(is_cut | (issue_start == -FOREVER_NS))
        .then(issue_start.clip(begin_ns, end_ns))
        .otherwise(issue_start),
        issue_end_ns=pl.when(is_cut | (issue_end == FOREVER_NS))
        .then(issue_end.clip(begin_ns, end_ns))
        .otherwise(issue_end),
        host_until_ns=pl.when(is_cut | (issue_end == FOREVER_NS)).then(end_ns).otherwise(FOREVER_NS),
        steady=pl.col("steady") & ~is_cut,
        reason=pl.when(is_cut).then(pl.lit("cut by --time")).otherwise("reason"),
    )


def _chosen(windows: pl.DataFrame, selection: Selection) -> pl.DataFrame:
    """The windows with the column `chosen`: whether each is among the selected steps."""
    if selection.steps is None:
        return windows.with_columns(chosen=pl.lit(value=True))
    is_chosen = pl.col("step").is_between(*selection.steps)
    spelled = stretch(*selection.steps)
    if windows.filter(is_chosen).is_empty():
        where = "in this export" if selection.time_ns is None else "in the time of --time"
        step = windows["step"].to_numpy()
        there = stretch(int(step.min()), int(step.max()))
        raise SelectionError(f"--steps {spelled} — are not {where} — there are {there}")
    return windows.with_columns(
        chosen=is_chosen,
        steady=pl.col("steady") & is_chosen,
        reason=pl.when(is_chosen).then("reason").otherwise(pl.lit(f"not among --steps {spelled}")),
    )

"""Calls and ranges of host threads: CUDA calls, annotations of the program, operators of PyTorch."""

import numpy as np
import polars as pl

from wallscope.kernels import range_nesting, views
from wallscope.kineto.autograd_rows import find_autograd_ranges
from wallscope.kineto.event_tables import TraceTables
from wallscope.kineto.trace_identity import join_thread_ids
from wallscope.model.schemas import RANGES
from wallscope.nsys.calls import RawCalls, express_roles, normalize_call_names
from wallscope.nsys.host_events import sort_outside_in
from wallscope.nsys.identity import number_texts
from wallscope.trace.intervals import Times

_ANNOTATION, _OPERATOR, _PYTHON = range(3)
"""Domains of ranges."""
_OF_RANGES, _LINKING = ("start", "end", "pid", "tid", "text"), ("sequence", "forward_thread")
ROUNDING_NS = 2_000
"""Up to torch 2.3, starts and lengths are rounded down to microseconds: an end is up to two early."""


def build_raw_calls(tables: TraceTables, calls: pl.DataFrame) -> RawCalls:
    """Return the calls with their names; `calls` has the `global_tid` of each."""
    used = calls["text"].unique().sort()
    spelled = pl.Series("text", [tables.texts[place] for place in used.to_list()], dtype=pl.String)
    named = spelled.to_frame().with_columns(normalize_call_names("text"))
    names = number_texts(named["text"])
    roles = names.with_columns(role=express_roles("text"))
    place = pl.DataFrame({"text": used, "place": np.arange(len(used), dtype=np.uint32)})
    return RawCalls(
        columns={
            "start": calls["start"],
            "end": calls["end"],
            "globalTid": calls["global_tid"].alias("globalTid"),
            "correlationId": calls["correlation"],
            "named": calls.select("text").join(place, on="text", how="left", maintain_order="left")["place"],
        },
        named=named.join(roles, on="text", how="left", maintain_order="left"),
        names=names,
        callers=calls["global_tid"].unique(),
    )


def build_trace_ranges(
    tables: TraceTables, numbered: pl.DataFrame, start_ns: int
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the ranges, their names, and those of autograd (`RANGES`, `NAMES`, `AUTOGRAD_RANGES`)."""
    domains = {"annotations": _ANNOTATION, "operators": _OPERATOR, "python": _PYTHON}
    spans = pl.concat(
        [
            tables.frames[name].select(
                *_OF_RANGES, *(_LINKING if name == "operators" else ()), domain=pl.lit(domain)
            )
            for name, domain in domains.items()
            if name in tables.frames
        ],
        how="diagonal",
    )
    used = spans["text"].unique().sort()
    spelled = pl.Series("spelled", [tables.texts[place] for place in used.to_list()], dtype=pl.String)
    names = number_texts(spelled)
    numbers = pl.DataFrame({"text": used, "spelled": spelled}).join(
        names, left_on="spelled", right_on="text", how="left", maintain_order="left"
    )
    rows = (
        spans.join(numbers, on="text", how="left", maintain_order="left")
        .pipe(join_thread_ids, numbered)
        .with_columns(
            start_ns=pl.col("start") - start_ns,
            end_ns=pl.col("end") - start_ns,
            clipped=pl.lit(value=False),
            crosses=pl.lit(value=False),
        )
        .pipe(sort_outside_in, names)
    )
    if tables.is_coarse:
        ends_ns = hold_inner_ends(*(rows[name].to_numpy() for name in ("thread", "start_ns", "end_ns")))
        rows = rows.with_columns(end_ns=pl.Series(ends_ns))
    rows = rows.with_row_index("range")
    autograd = find_autograd_ranges(rows, tables.frames["flows"].pipe(join_thread_ids, numbered), start_ns)
    return rows.select(RANGES.names()).cast(RANGES), names, autograd


def hold_inner_ends(thread: np.ndarray, start_ns: Times, end_ns: Times) -> Times:
    """Return the ends of ranges; those beyond the enclosing range by rounding alone are cut to its end.

    Args:
        thread: integer[range], the thread of each; ranges by thread and start, the longest first.
        start_ns: int64[range], ns.
        end_ns: int64[range], ns.

    >>> hold_inner_ends(np.zeros(3, int), np.array([0, 5000, 9000]), np.array([9000, 10000, 30000])).tolist()
    [9000, 9000, 30000]
    """
    ends = end_ns.astype(np.int64)
    threads, starts = thread.astype(np.int32), start_ns.astype(np.int64)
    range_nesting.hold_ends(*views(threads, starts, ROUNDING_NS, ends, np.empty_like(ends)))
    return ends

"""The stretches of a rank without compute and opaque graphs, and the chains of links that tile them."""

import numpy as np
import polars as pl

from wallscope.arrays.columns import filled
from wallscope.model.frames import LINKS
from wallscope.timeline.computing import computes
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.spans import Numbers, Spans, distinct, numbers
from wallscope.walls.chain import Issuers, Walker
from wallscope.walls.rounds import walked_together


def chains(operations: pl.DataFrame, waits: Dependencies, kinds: Numbers) -> pl.DataFrame:
    """The links (`LINKS`) of all gaps of one rank (`CLASSIFIED`); `kinds` are those of its calls."""
    walker = Walker(waits, kinds, _issuers(operations, waits))
    ops = operations["op"].to_numpy().astype(np.int64)
    starts_ns, ends_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    computing = np.flatnonzero(computes(filled(operations["class"])))
    start_ns = starts_ns[computing]
    reached_ns = np.maximum.accumulate(np.append(starts_ns.min(), ends_ns[computing]))
    ended_by = np.flatnonzero(start_ns > reached_ns[:-1])
    gaps, op = Spans(reached_ns[ended_by], start_ns[ended_by]), ops[computing[ended_by]]
    together, left = walked_together(gaps, op, walker)
    for row in left.tolist():
        walker.walk(int(op[row]), int(gaps.start_ns[row]), int(gaps.end_ns[row]))
    at_ns = int(reached_ns[-1])
    for row in np.flatnonzero(ends_ns > at_ns).tolist():
        at_ns = _walk_end(walker, at_ns, int(ops[row]), (int(starts_ns[row]), int(ends_ns[row])))
    links = pl.concat([together, pl.DataFrame(walker.rows, schema=LINKS, orient="row")])
    return links[np.argsort(links["start_ns"].to_numpy(), kind="stable")]


def _issuers(operations: pl.DataFrame, waits: Dependencies) -> Issuers:
    call = operations["call"].to_numpy()
    call = distinct(call[call >= 0])
    end_ns = waits.calls.end_ns[call]
    order = np.argsort(end_ns, kind="stable")
    return Issuers(numbers(end_ns[order]), numbers(waits.calls.thread[call[order]]))


def _walk_end(walker: Walker, at_ns: int, op: int, span_ns: tuple[int, int]) -> int:
    """Behind the last compute: what runs owns its time, the thread that issued last the rest."""
    start_ns, end_ns = span_ns
    if start_ns > at_ns:
        walker.walk_thread(at_ns, start_ns)
        at_ns = start_ns
    if end_ns > at_ns:
        walker.own(op, at_ns, end_ns)
        at_ns = end_ns
    return at_ns

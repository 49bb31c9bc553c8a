"""The stretches of a rank without compute and opaque graphs, and the chains of links that tile them."""

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import LINKS
from wallscope.model.kinds import LinkKind, OperationClass
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.nesting import Rows
from wallscope.timeline.spans import Numbers, Spans, distinct
from wallscope.walls.chain import Issuers, Walker

_COMPUTING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)
_NEVER = 2**62
_KINDS = pl.Series([LinkKind.LAUNCH_LATENCY, LinkKind.HAND_OVER], dtype=pl.Enum(LinkKind))


def chains(operations: pl.DataFrame, waits: Dependencies, kinds: Numbers) -> pl.DataFrame:
    """The links (`LINKS`) of all gaps of one rank (`CLASSIFIED`); `kinds` are those of its calls."""
    walker = Walker(waits, kinds, _issuers(operations, waits))
    computing = operations.filter(pl.col("class").is_in(_COMPUTING))
    start_ns, end_ns = computing["start_ns"].to_numpy(), computing["end_ns"].to_numpy()
    first_ns = int(operations["start_ns"].to_numpy().min())
    reached_ns = np.maximum.accumulate(np.concatenate(([first_ns], end_ns)))
    ended_by = np.flatnonzero(start_ns > reached_ns[:-1])
    gaps = Spans(reached_ns[:-1][ended_by], start_ns[ended_by])
    op = computing["op"].to_numpy().astype(np.int64)[ended_by]
    at_once, simple = _bound_before(gaps, op, waits)
    for row in np.flatnonzero(~at_once).tolist():
        walker.walk(int(op[row]), int(gaps.start_ns[row]), int(gaps.end_ns[row]))
    _walk_end(walker, operations, int(reached_ns[-1]))
    walked = pl.DataFrame(walker.rows, schema=LINKS, orient="row")
    return pl.concat([simple, walked]).sort("start_ns", maintain_order=True)


def _bound_before(gaps: Spans, op: Rows, waits: Dependencies) -> tuple[npt.NDArray[np.bool_], pl.DataFrame]:
    """Which gaps are a single link, as their operation waited for nothing inside them, and these links."""
    call, end_ns = np.array(waits.call, np.int64)[op], np.array(waits.end_ns, np.int64)
    before = waits.order.predecessor[op]
    issued_ns = waits.calls.end_ns[call]
    done_ns = np.where(before >= 0, end_ns[before] if end_ns.size else 0, -_NEVER)
    others = np.fromiter(waits.order.waiting(), np.int64)
    is_simple = (call >= 0) & (issued_ns <= gaps.start_ns) & (done_ns <= gaps.start_ns) & ~np.isin(op, others)
    rows = np.flatnonzero(is_simple)
    handed = (done_ns >= issued_ns)[rows]
    slack_ns = np.abs(done_ns - issued_ns)[rows]
    nobody = np.full(rows.size, -1)
    thread = waits.calls.thread[call[rows]]
    return is_simple, pl.DataFrame(
        {
            "gap": op[rows],
            "start_ns": gaps.start_ns[rows],
            "end_ns": gaps.end_ns[rows],
            "kind": _KINDS.gather(pl.Series(handed.astype(np.uint8))),
            "op": np.where(handed, before[rows], op[rows]),
            "next_op": np.where(handed, op[rows], nobody),
            "call": np.where(handed, nobody, call[rows]),
            "thread": np.where(handed, nobody, thread),
            "slack_ns": pl.Series(slack_ns).set(pl.Series(before[rows] < 0), None),
        }
    ).cast(LINKS)


def _issuers(operations: pl.DataFrame, waits: Dependencies) -> Issuers:
    call = distinct(operations.filter(pl.col("call") >= 0)["call"].to_numpy())
    end_ns = waits.calls.end_ns[call]
    order = np.argsort(end_ns, kind="stable")
    return Issuers(end_ns[order].tolist(), waits.calls.thread[call[order]].tolist())


def _walk_end(walker: Walker, operations: pl.DataFrame, from_ns: int) -> None:
    """Behind the last compute: what runs owns its time, the thread that issued last the rest."""
    running = operations.filter(pl.col("end_ns") > from_ns).sort("start_ns", "op")
    at_ns = from_ns
    for op, start_ns, end_ns in running.select("op", "start_ns", "end_ns").iter_rows():
        if start_ns > at_ns:
            walker.walk_thread(at_ns, start_ns)
            at_ns = start_ns
        if end_ns > at_ns:
            walker.own(op, at_ns, end_ns)
            at_ns = end_ns

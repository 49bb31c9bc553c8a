"""The lags of each step as the other steps have them: what a replay may know without being told.

A lag is the time between a cause and its effect: launch latency, hand-over, return of a blocking call,
time of a thread outside calls. Lags of several steps are alike that belong to the same thing, counted
from the begin of its step.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.timeline.nesting import Rows
from wallscope.timeline.order import Slack
from wallscope.timeline.play import Change, Played
from wallscope.timeline.spans import Numbers, Times, numbers
from wallscope.timeline.stretch import Stretch

_USUAL_HAND_OVER_NS = 1_000
"""Between kernels of one stream that wait for each other, on the GPUs of the last ten years."""


@dataclass(frozen=True, slots=True)
class OthersLags:
    """Lags as the other steps have them, and the share of those in steady steps that have no like there."""

    change: Change
    slack: Slack
    unmatched_share: float


def others_lags(stretch: Stretch) -> OthersLags:
    """Each lag of a steady step as the median of those like it in the other steady steps.

    A lag without a like keeps its own time.
    """
    replay, slack = stretch.replay, own_lags(stretch)
    operations = _operations(stretch)
    order = replay.order
    count = len(replay.ops)
    edges = [(place, place, 0, order.first[place]) for place in range(count) if order.first[place] != count]
    edges += [
        (lag_place, place, number, producer)
        for place, further in sorted(order.more.items())
        for number, (producer, lag_place) in enumerate(further, start=1)
    ]
    of_edge = pl.DataFrame(
        edges, schema={"lag": pl.Int64, "place": pl.Int64, "number": pl.Int64, "from": pl.Int64}, orient="row"
    )
    named = operations.select("place", "step", "thing", "ordinal")
    producer = operations.select(pl.col("place").alias("from"), producer="thing")
    handed = of_edge.join(named, on="place", how="left", maintain_order="left").join(
        producer, on="from", how="left", maintain_order="left"
    )
    threads, calls = _pieces(stretch)
    latency_ns, is_lone = _of_others(
        operations.select("step", "thing", "ordinal"), np.array(slack.latency_ns, np.int64)
    )
    lag_ns = np.array(slack.lag_ns, np.int64)
    handed_ns, is_lone_edge = _of_others(
        handed.select("step", "thing", "ordinal", "number", "producer"), lag_ns[handed["lag"].to_numpy()]
    )
    lag_ns[handed["lag"].to_numpy()] = handed_ns
    outside_ns, is_lone_piece = _of_others(
        threads.select("step", "thread", "before", "after", "ordinal"), threads["time_ns"].to_numpy()
    )
    return_ns, is_lone_return = _of_others(
        calls.select("step", "thread", "after", "ordinal"), calls["time_ns"].to_numpy()
    )
    rows = dict(zip(threads["row"].to_list(), outside_ns.tolist(), strict=True))
    after_ns = {row: rows[row] for row in slack.after_ns if row in rows}
    lone = [is_lone, is_lone_edge, is_lone_piece, is_lone_return]
    steps = [operations["step"], handed["step"], threads["step"], calls["step"]]
    told = np.concatenate([one.to_numpy() >= 0 for one in steps])
    return OthersLags(
        Change(pieces={row: ns for row, ns in rows.items() if row not in slack.after_ns}),
        Slack(
            numbers(latency_ns),
            numbers(lag_ns),
            {**slack.return_ns, **dict(zip(calls["row"].to_list(), return_ns.tolist(), strict=True))},
            dict(slack.after_ns) | after_ns,
        ),
        float(np.concatenate(lone)[told].mean()) if told.any() else 0.0,
    )


def own_lags(stretch: Stretch) -> Slack:
    """The lags of the capture, and what they would be where they never bound.

    A call that had nothing to wait for would return as others mostly do; kernels of which none ever waited
    for another would follow each other as they do on most devices.
    """
    order = stretch.replay.order
    waited = [
        order.slack.return_ns[row]
        for row, one in order.awaited.items()
        if one.places and not one.is_idle and not one.is_releasing
    ]
    usual_ns = int(np.median(waited)) if waited else 0
    idle = {row: usual_ns for row, one in order.awaited.items() if one.is_idle and not one.is_releasing}
    told = order.slack._replace(return_ns={**order.slack.return_ns, **idle})
    return told if stretch.replay.hand_over_ns else told._replace(lag_ns=_unseen_hand_overs(stretch))


def _unseen_hand_overs(stretch: Stretch) -> Numbers:
    """The lags behind producers where those of the capture are all unknown: a usual one, if that is less."""
    replay, waits = stretch.replay, stretch.waits
    lag_ns = list(replay.order.slack.lag_ns)
    for place, op in enumerate(replay.ops):
        before = int(waits.order.predecessor[op])
        if not lag_ns[place] and before >= 0:
            lag_ns[place] = min(_USUAL_HAND_OVER_NS, max(waits.start_ns[op] - waits.end_ns[before], 0))
    return numbers(np.array(lag_ns, np.int64))


def step_lengths(stretch: Stretch, played: Played, which: str) -> Times:
    """How long the steps of a kind (a column of the steps) are in a run, in ns."""
    places = stretch.replay.places
    steps = stretch.steps.filter(pl.col(which))
    return np.array(
        [
            played.start_ns[places[behind]] - played.start_ns[places[first]]
            for first, behind in steps.select("first", "behind").iter_rows()
        ],
        np.int64,
    )


def _step_of(stretch: Stretch, at_ns: Times) -> Rows:
    """The number of the steady step that the host was at work for at each moment; -1 outside those."""
    steps = stretch.steps.filter(pl.col("checked"))
    row = np.searchsorted(steps["issue_start_ns"].to_numpy(), at_ns, side="right") - 1
    ends_ns = steps["issue_end_ns"].to_numpy()
    return np.where((row >= 0) & (at_ns < np.append(ends_ns, 0)[row]), row, -1)


def _operations(stretch: Stretch) -> pl.DataFrame:
    """`place`, `step`, `thing` (what it is, on which stream) and `ordinal` of the operations played."""
    ops = pl.DataFrame({"op": stretch.replay.ops}, schema={"op": pl.UInt32}).with_row_index("place")
    thing = pl.struct("rank_id", "stream", pl.col("kind").cast(pl.String), "name", "category", "bytes")
    known = ops.join(stretch.operations, on="op", how="left", maintain_order="left")
    issued_ns = stretch.waits.calls.start_ns[known["call"].to_numpy()]
    step = pl.Series("step", _step_of(stretch, issued_ns))
    return _counted(
        known.select(pl.col("place").cast(pl.Int64), thing=thing.rank("dense")).with_columns(step), ["thing"]
    )


def _pieces(stretch: Stretch) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Time outside calls, and returns of blocking calls: `row`, `step`, what they are, `time_ns`."""
    pieces, names, order = stretch.pieces, stretch.call_name, stretch.replay.order
    slack = order.slack
    held = [row for row in slack.return_ns if not order.awaited[row].is_idle]
    call = np.array(pieces.call, np.int64)
    called = names.gather(pl.Series(call[call >= 0], dtype=pl.UInt32)).rank("dense")
    name = np.full(call.size, -1, np.int64)
    name[call >= 0] = called.to_numpy()
    frame = pl.DataFrame(
        {
            "row": np.arange(call.size),
            "thread": np.array(pieces.thread, np.int64),
            "start_ns": np.array(pieces.start_ns, np.int64),
            "end_ns": np.array(pieces.end_ns, np.int64),
            "call": call,
            "after": name,
            "step": _step_of(stretch, np.array(pieces.end_ns, np.int64)),
        }
    ).with_columns(
        before=pl.col("after").shift(1).over("thread"), behind=pl.col("after").shift(-1).over("thread")
    )
    outside = frame.filter(pl.col("call") < 0).with_columns(
        time_ns=pl.col("end_ns") - pl.col("start_ns"), after=pl.col("behind")
    )
    own = pl.DataFrame(
        {"row": list(slack.after_ns), "own_ns": list(slack.after_ns.values())},
        schema={"row": pl.Int64, "own_ns": pl.Int64},
    )
    outside = outside.join(own, on="row", how="left", maintain_order="left").with_columns(
        time_ns=pl.coalesce("own_ns", "time_ns")
    )
    returns = pl.DataFrame(
        {"row": held, "time_ns": [slack.return_ns[row] for row in held]},
        schema={"row": pl.Int64, "time_ns": pl.Int64},
    ).join(frame, on="row", how="left", maintain_order="left")
    return (
        _counted(outside, ["thread", "before", "after"]),
        _counted(returns, ["thread", "after"]),
    )


def _counted(rows: pl.DataFrame, like: list[str]) -> pl.DataFrame:
    """The rows with `ordinal`: how many of the same there were before in the step."""
    return rows.with_columns(ordinal=pl.int_range(pl.len()).over(["step", *like]))


def _of_others(
    keys: pl.DataFrame, time_ns: Times
) -> tuple[Times, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """The median time of the same in other steps, and whether there is none; `step` is -1 for no step."""
    like = [name for name in keys.columns if name != "step"]
    group = keys.select(pl.struct(like).rank("dense"))[:, 0].to_numpy().astype(np.int64)
    lone = np.ones(time_ns.size, np.bool_)
    found = time_ns.copy()
    held = np.flatnonzero(keys["step"].to_numpy() >= 0)
    order = held[np.lexsort((time_ns[held], group[held]))]
    if not order.size:
        return found, lone
    edge = np.flatnonzero(np.diff(group[order])) + 1
    begin, size = np.concatenate(([0], edge)), np.diff(np.concatenate(([0], edge, [order.size])))
    first, many = np.repeat(begin, size), np.repeat(size, size)
    rank = np.arange(order.size) - first
    others = many - 1
    low, high = np.maximum(others - 1, 0) // 2, others // 2
    in_order_ns = np.append(time_ns[order], 0)
    middle_ns = (
        in_order_ns[np.minimum(first + low + (low >= rank), order.size)]
        + in_order_ns[np.minimum(first + high + (high >= rank), order.size)]
    ) // 2
    has = others > 0
    found[order[has]] = middle_ns[has]
    lone[order] = ~has
    return found, lone

"""What a host thread did outside calls while no compute ran: framework, or what its ranges and waits tell.

In this order: ranges that load data or collect garbage; the queue that a blocking call left empty, up
to the next launch; waits of the operating system; else the framework. Time in which the profiler held
the thread is nobody's.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.events import HostKind
from wallscope.model.kinds import LinkKind
from wallscope.timeline.dependencies import Dependencies
from wallscope.timeline.inheritance import host_threads, of_the_one_that_waits
from wallscope.timeline.nesting import Rows
from wallscope.timeline.passes import optimizer_paths
from wallscope.timeline.spans import Spans, Times, inside, ordered, union
from wallscope.timeline.stream_order import UNRESOLVED

FRAMEWORK = "host/framework"
OFFLOAD = "memory/offload"
PROFILER = "unattributed/profiler"
DRAINED = "host/queue-drained"
_BY_RANGE = (
    (
        "host/data-loading",
        r"(?i)data[ _]?load(er|ing)|data_iterator|batch[_-]generator|(get|next|load|fetch)_batch|DataIter",
    ),
    ("host/garbage-collection", r"(?i)garbage[ _-]?collect|\bgc[._ ]?collect|^gc$"),
)
_NETWORK = r"^(__)?(send|recv|connect|accept)"


@dataclass(frozen=True, slots=True)
class HostActivity:
    """What threads did beside calls: `NESTED` with `PATHS` and their names, `HOST_EVENTS` and theirs.

    `away` is when offloaded bytes of each rank were on the host alone, by its id.
    """

    tree: pl.DataFrame
    paths: pl.DataFrame
    path_names: pl.DataFrame
    events: pl.DataFrame
    event_names: pl.DataFrame
    away: Mapping[int, Spans]

    def moments(self, threads: list[int]) -> dict[int, Times]:
        """When ranges and waits of each thread begin and end, in order of time."""
        sides: dict[int, list[Times]] = {thread: [] for thread in threads}
        told = self.events.filter(pl.col("kind").is_in([HostKind.LOCK, HostKind.IO, HostKind.PROFILER]))
        for frame in (self.tree, told):
            chosen = frame.filter(pl.col("thread").is_in(threads))
            for own in chosen.select("thread", "start_ns", "end_ns").partition_by("thread"):
                sides[own["thread"][0]] += [own["start_ns"].to_numpy(), own["end_ns"].to_numpy()]
        return {thread: np.unique(np.concatenate(own)) for thread, own in sides.items() if own}


class Drained:
    """Blocking calls of one rank that waited until the device had nothing left to do.

    Args:
        operations: `OPERATIONS` of the rank.
        waits: who waits for whom.
        names: name of each call, by number.
    """

    def __init__(self, operations: pl.DataFrame, waits: Dependencies, names: pl.Series) -> None:
        op = operations["op"].to_numpy()
        issued_ns, end_ns = waits.order.issued_ns[op], operations["end_ns"].to_numpy()
        order = np.argsort(issued_ns, kind="stable")
        self._issued_ns, self._busy_until_ns = issued_ns[order], np.maximum.accumulate(end_ns[order])
        issuing = np.unique(operations.filter(pl.col("call") >= 0)["call"].to_numpy())
        self._issuing = issuing[~np.isin(issuing, list(waits.blocking))]
        self._waits, self._names = waits, names
        self.rank_id = int(operations["rank_id"][0])
        self.threads = np.unique(np.array(waits.call_thread, np.int64)[issuing]).tolist()
        self._draining = np.array([call for call in waits.blocking if self._drains(call)], np.int64)

    def by_call(self, thread: int, at_ns: Times) -> list[str]:
        """The call that had left the device without work at each moment of a thread, empty where none had.

        Between such a call and the next launch nothing else is to blame.
        """
        draining, issuing = (
            calls[np.array(self._waits.call_thread, np.int64)[calls] == thread] if calls.size else calls
            for calls in (self._draining, self._issuing)
        )
        if draining.size == 0:
            return [""] * at_ns.size
        ends = np.sort(np.array(self._waits.call_end_ns, np.int64)[draining])
        in_order = draining[np.argsort(np.array(self._waits.call_end_ns, np.int64)[draining], kind="stable")]
        launches = np.sort(np.array(self._waits.call_start_ns, np.int64)[issuing])
        place = np.searchsorted(ends, at_ns, side="right") - 1
        launched = np.searchsorted(launches, at_ns, side="left") - 1
        last_ns = np.where(launched >= 0, np.append(launches, 0)[launched], np.iinfo(np.int64).min)
        holds = (place >= 0) & (last_ns < ends[place])
        return [
            self._names[int(in_order[row])] if is_held else ""
            for row, is_held in zip(place.tolist(), holds.tolist(), strict=True)
        ]

    def calls(self, name: str) -> list[int]:
        """Those of a name."""
        return [call for call in self._draining.tolist() if self._names[call] == name]

    def _drains(self, call: int) -> bool:
        waits = self._waits
        start_ns, end_ns = waits.call_start_ns[call], waits.call_end_ns[call]
        if not any(op != UNRESOLVED and waits.end_ns[op] > start_ns for op in waits.blocking[call]):
            return False
        count = int(np.searchsorted(self._issued_ns, end_ns, side="left"))
        return bool(count and self._busy_until_ns[count - 1] <= end_ns)


def on_threads(
    pieces: pl.DataFrame, activity: HostActivity, calls: pl.DataFrame, drained: Drained
) -> tuple[Rows, pl.Series]:
    """The innermost range of each piece on a thread (-1: none), and the cause of those outside calls.

    The cause is null where the kind of the link tells it. Pieces (`SLICES`) do not straddle moments at
    which ranges or waits of their thread begin or end.
    """
    found = np.full(len(pieces), -1, np.int64)
    cause: list[str | None] = [None] * len(pieces)
    of_thread, start_ns = pieces["thread"].to_numpy(), pieces["start_ns"].to_numpy()
    kind = pieces["kind"].cast(pl.String).fill_null("").to_numpy()
    holders = host_threads(activity.tree, calls, activity.tree["parent"].to_numpy().astype(np.int64))
    by_range, optimizing = _causes_of_ranges(activity), _of_optimizer(activity)
    for thread in np.unique(of_thread[of_thread >= 0]).tolist():
        rows = np.flatnonzero(of_thread == thread)
        at_ns = start_ns[rows]
        open_range = holders[thread].open_range(at_ns) if thread in holders else np.full(rows.size, -1)
        alone = np.flatnonzero(open_range < 0)
        others = [holder for other, holder in holders.items() if other != thread]
        open_range[alone] = of_the_one_that_waits(others, at_ns[alone])
        found[rows] = open_range
        waits = activity.events.filter(pl.col("thread") == thread)
        locked = _covers(waits.filter(pl.col("kind") == HostKind.LOCK), at_ns)
        for other in drained.threads:
            if other != thread and locked.any():  # while another one works, that work is the cause
                held = activity.events.filter((pl.col("thread") == other) & (pl.col("kind") == HostKind.LOCK))
                locked &= _covers(held, at_ns)
        by_call = drained.by_call(thread, at_ns)
        told = _outside_calls(at_ns, by_range[open_range], locked, _io(waits, activity), by_call)
        updates = optimizing[open_range] & inside(activity.away[drained.rank_id], at_ns)
        told = np.where(updates, OFFLOAD, told)
        is_outside = kind[rows] == str(LinkKind.OUTSIDE_CALLS)
        is_profiled = _covers(waits.filter(pl.col("kind") == HostKind.PROFILER), at_ns)
        is_profiled &= kind[rows] != str(LinkKind.ALLOCATION)
        for row, name in zip(rows[is_outside].tolist(), told[is_outside].tolist(), strict=True):
            cause[row] = name
        for row in rows[is_profiled].tolist():
            cause[row] = PROFILER
    return found, pl.Series("on_thread", cause, dtype=pl.String)


def _outside_calls(
    at_ns: Times,
    by_range: npt.NDArray[np.str_],
    locked: npt.NDArray[np.bool_],
    io: pl.DataFrame,
    drained: list[str],
) -> npt.NDArray[np.str_]:
    """The cause at each moment of a thread outside calls; `io` has its input and output with `text`."""
    is_network = pl.col("text").str.contains(_NETWORK)
    by_call = np.array([f"{DRAINED}/{name}" if name else "" for name in drained], np.str_)
    conditions = [
        by_range != "",
        by_call != "",
        locked,
        _covers(io.filter(is_network), at_ns),
        _covers(io.filter(~is_network), at_ns),
    ]
    choices = [
        by_range,
        by_call,
        *(np.full(at_ns.size, f"host/{name}") for name in ("lock", "network", "file")),
    ]
    return np.select(conditions, choices, FRAMEWORK)


def _io(waits: pl.DataFrame, activity: HostActivity) -> pl.DataFrame:
    return waits.filter(pl.col("kind") == HostKind.IO).join(activity.event_names, on="name", how="left")


def _causes_of_ranges(activity: HostActivity) -> npt.NDArray[np.str_]:
    """What the name of each range or of one around it tells, by number of the range; the last is for -1."""
    texts = activity.path_names["text"].gather(activity.paths["name"])
    of_path = [""] * len(texts)
    for cause, pattern in _BY_RANGE:
        for path in texts.str.contains(pattern).arg_true().to_list():
            of_path[path] = of_path[path] or cause
    for path, parent in enumerate(activity.paths["parent"].to_list()):
        of_path[path] = of_path[path] or (of_path[parent] if parent >= 0 else "")
    rows = activity.tree["range"].to_numpy()
    told = np.full(int(rows.max(initial=0)) + 2, "", dtype="U32")
    told[rows] = np.array([*of_path, ""], "U32")[activity.tree["path"].to_numpy()]
    return told


def _of_optimizer(activity: HostActivity) -> npt.NDArray[np.bool_]:
    """Whether each range is the optimizer's, by number of the range; the last is for -1."""
    rows = activity.tree["range"].to_numpy()
    told = np.zeros(int(rows.max(initial=0)) + 2, np.bool_)
    told[rows] = optimizer_paths(activity.paths, activity.path_names)[activity.tree["path"].to_numpy()]
    return told


def _covers(events: pl.DataFrame, at_ns: Times) -> npt.NDArray[np.bool_]:
    """Whether any of the rows with `start_ns` and `end_ns` is open at each moment."""
    return inside(union(ordered(events["start_ns"].to_numpy(), events["end_ns"].to_numpy())), at_ns)

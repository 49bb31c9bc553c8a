"""What a host thread did outside calls while no compute ran: framework, or what its ranges and waits tell.

In this order: ranges that load data or collect garbage; the queue that a blocking call left empty, up
to the next launch; waits of the operating system; else the framework. Time in which the profiler held
the thread is nobody's.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.events import HostKind
from wallscope.model.kinds import LinkKind
from wallscope.timeline.inheritance import HostThread, host_threads, of_the_one_that_waits
from wallscope.timeline.nesting import Rows
from wallscope.timeline.passes import optimizer_paths
from wallscope.timeline.spans import Spans, Times, distinct, inside, ordered, union
from wallscope.walls.drained import Drained

_Told = TypeVar("_Told", np.str_, np.bool_)
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


@dataclass(frozen=True)
class HostActivity:
    """What threads did beside calls, of the whole capture.

    Attributes:
        tree, paths, path_names: `NESTED` with `PATHS` and their names.
        events, event_names: `HOST_EVENTS` and their names.
        calls: `CALLS`.
        process: that of each thread, by number of the thread.
        away: when offloaded bytes of each rank were on the host alone, by id of the rank.
    """

    tree: pl.DataFrame
    paths: pl.DataFrame
    path_names: pl.DataFrame
    events: pl.DataFrame
    event_names: pl.DataFrame
    calls: pl.DataFrame
    process: pl.Series
    away: Mapping[int, Spans]

    @cached_property
    def holders(self) -> Mapping[int, HostThread]:
        """The threads that hold ranges, by number."""
        known = self.tree.filter(pl.col("thread").is_not_null())
        return host_threads(known, self.calls, self.tree["parent"].to_numpy().astype(np.int64))

    @cached_property
    def causes_of_ranges(self) -> npt.NDArray[np.str_]:
        """What the name of each range or of one around it tells, by number; the last is for -1."""
        texts = self.path_names["text"].gather(self.paths["name"])
        of_path = [""] * len(texts)
        for cause, pattern in _BY_RANGE:
            for path in texts.str.contains(pattern).arg_true().to_list():
                of_path[path] = of_path[path] or cause
        for path, parent in enumerate(self.paths["parent"].to_list()):
            of_path[path] = of_path[path] or (of_path[parent] if parent >= 0 else "")
        return self._by_range(np.array([*of_path, ""], "U32"))

    @cached_property
    def is_optimizer(self) -> npt.NDArray[np.bool_]:
        """Whether each range is the optimizer's, by number; the last is for -1."""
        return self._by_range(np.append(optimizer_paths(self.paths, self.path_names), np.False_))

    def others(self, thread: int) -> list[HostThread]:
        """The other threads of its process that hold ranges."""
        own = self.process[thread]
        return [
            held for other, held in self.holders.items() if other != thread and self.process[other] == own
        ]

    def moments(self, threads: list[int], issuing: list[int]) -> dict[int, Times]:
        """When ranges and waits of each thread begin and end, in order of time.

        Ranges that tell a cause cut the other threads of their process too: these may wait meanwhile.
        So do the locks of the threads that issue: a thread is locked only while they are. Outside its own
        ranges a thread works for one that is in no call: calls of the others cut it there.
        """
        issues = tuple(issuing)
        for thread in threads:
            if (thread, issues) not in self._moments:
                self._moments[thread, issues] = self._moments_of(thread, issuing)
        return {thread: self._moments[thread, issues] for thread in threads}

    @cached_property
    def _moments(self) -> dict[tuple[int, tuple[int, ...]], Times]:
        """The moments of threads that were asked for, by thread and those that issue."""
        return {}

    @cached_property
    def _telling(self) -> pl.DataFrame:
        """The ranges that tell a cause, with their process."""
        telling = self.tree.filter(pl.Series(self.causes_of_ranges[self.tree["range"].to_numpy()] != ""))
        return telling.with_columns(process=self.process.gather(telling["thread"]))

    def _moments_of(self, thread: int, issuing: list[int]) -> Times:
        is_own, is_lock = pl.col("thread") == thread, pl.col("kind") == HostKind.LOCK
        is_told = pl.col("kind").is_in([HostKind.LOCK, HostKind.IO, HostKind.PROFILER])
        cutting = [
            self._telling.filter(pl.col("process") == self.process[thread]),
            self.events.filter(is_lock & pl.col("thread").is_in(issuing)),
            self.tree.filter(is_own),
            self.events.filter(is_own & is_told),
        ]
        sides = [frame[side].to_numpy() for frame in cutting for side in ("start_ns", "end_ns")]
        held = self.holders.get(thread)
        for other in self.others(thread):
            at_ns = other.call_sides()
            sides.append(at_ns if held is None else at_ns[held.open_range(at_ns) < 0])
        return distinct(np.concatenate(sides))

    def _by_range(self, of_path: npt.NDArray[_Told]) -> npt.NDArray[_Told]:
        """What is told of paths, told of ranges; the last of either is for none."""
        rows = self.tree["range"].to_numpy()
        told = np.full(int(rows.max(initial=0)) + 2, of_path[-1], of_path.dtype)
        told[rows] = of_path[self.tree["path"].to_numpy()]
        return told


def on_threads(pieces: pl.DataFrame, activity: HostActivity, drained: Drained) -> tuple[Rows, pl.Series]:
    """The innermost range of each piece on a thread (-1: none), and the cause of those outside calls.

    The cause is null where the kind of the link tells it. Pieces (`SLICES`) do not straddle moments at
    which ranges or waits of their thread begin or end.
    """
    found = np.full(len(pieces), -1, np.int64)
    cause: list[str | None] = [None] * len(pieces)
    of_thread, start_ns = pieces["thread"].to_numpy(), pieces["start_ns"].to_numpy()
    kind = pieces["kind"].cast(pl.String).fill_null("").to_numpy()
    holders = activity.holders
    for thread in np.unique(of_thread[of_thread >= 0]).tolist():
        rows = np.flatnonzero(of_thread == thread)
        at_ns = start_ns[rows]
        open_range = holders[thread].open_range(at_ns) if thread in holders else np.full(rows.size, -1)
        alone = np.flatnonzero(open_range < 0)
        open_range[alone] = of_the_one_that_waits(activity.others(thread), at_ns[alone])
        found[rows] = open_range
        waits = activity.events.filter(pl.col("thread") == thread)
        locked = _covers(waits.filter(pl.col("kind") == HostKind.LOCK), at_ns)
        for other in drained.threads:
            if other != thread and locked.any():  # while another one works, that work is the cause
                held = activity.events.filter((pl.col("thread") == other) & (pl.col("kind") == HostKind.LOCK))
                locked &= _covers(held, at_ns)
        by_call = drained.by_call(thread, at_ns)
        told = _outside_calls(
            at_ns, activity.causes_of_ranges[open_range], locked, _io(waits, activity), by_call
        )
        updates = activity.is_optimizer[open_range] & inside(activity.away[drained.rank_id], at_ns)
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


def _covers(events: pl.DataFrame, at_ns: Times) -> npt.NDArray[np.bool_]:
    """Whether any of the rows with `start_ns` and `end_ns` is open at each moment."""
    return inside(union(ordered(events["start_ns"].to_numpy(), events["end_ns"].to_numpy())), at_ns)

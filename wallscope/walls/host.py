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
from wallscope.model.host import RepeatedUnit
from wallscope.model.kinds import LinkKind
from wallscope.timeline.inheritance import HostThread, host_threads, of_the_one_that_waits
from wallscope.timeline.inner import outermost_units
from wallscope.timeline.nesting import Rows
from wallscope.timeline.passes import optimizer_paths
from wallscope.timeline.spans import Spans, Times, distinct, inside, ordered, union
from wallscope.walls.drained import Drained

_Told = TypeVar("_Told", np.int64, np.bool_)
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
_LOCK, _NETWORK, _FILE = "host/lock", "host/network", "host/file"
CAUSES = (*(cause for cause, _ in _BY_RANGE), FRAMEWORK, OFFLOAD, PROFILER, _LOCK, _NETWORK, _FILE)
"""What is told of time outside calls, but for the queue that a call left empty."""
_NETWORK_CALL = r"^(__)?(send|recv|connect|accept)"


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
    def causes_of_ranges(self) -> Rows:
        """What the name of each range or of one around it tells, by number, as a place in `CAUSES`, else -1.

        The last is for -1.
        """
        texts = self.path_names["text"].gather(self.paths["name"])
        of_path = [-1] * len(texts)
        for place, (_, pattern) in enumerate(_BY_RANGE):
            for path in texts.str.contains(pattern).arg_true().to_list():
                of_path[path] = place if of_path[path] < 0 else of_path[path]
        for path, parent in enumerate(self.paths["parent"].to_list()):
            of_path[path] = of_path[parent] if of_path[path] < 0 <= parent else of_path[path]
        return self._by_range(np.array([*of_path, -1], np.int64))

    @cached_property
    def is_optimizer(self) -> npt.NDArray[np.bool_]:
        """Whether each range is the optimizer's, by number; the last is for -1."""
        return self._by_range(np.append(optimizer_paths(self.paths, self.path_names), np.False_))

    @cached_property
    def outermost_units(self) -> Mapping[RepeatedUnit, Rows]:
        """The range of each repeated unit that each range stands in, -1 without one."""
        return outermost_units(self.tree)

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
        telling = self.tree.filter(pl.Series(self.causes_of_ranges[self.tree["range"].to_numpy()] >= 0))
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
    found, cause = np.full(len(pieces), -1, np.int64), np.full(len(pieces), -1, np.int64)
    of_thread, start_ns = pieces["thread"].to_numpy(), pieces["start_ns"].to_numpy()
    is_outside = (pieces["kind"] == LinkKind.OUTSIDE_CALLS).fill_null(value=False).to_numpy()
    is_allocation = (pieces["kind"] == LinkKind.ALLOCATION).fill_null(value=False).to_numpy()
    holders = activity.holders
    draining: list[str] = []
    for thread in np.unique(of_thread[of_thread >= 0]).tolist():
        rows = np.flatnonzero(of_thread == thread)
        at_ns = start_ns[rows]
        open_range = holders[thread].open_range(at_ns) if thread in holders else np.full(rows.size, -1)
        alone = np.flatnonzero(open_range < 0)
        open_range[alone] = of_the_one_that_waits(activity.others(thread), at_ns[alone])
        found[rows] = open_range
        waits = activity.events.filter(pl.col("thread") == thread)
        outside = np.flatnonzero(is_outside[rows])
        told = _outside_calls(thread, at_ns[outside], open_range[outside], waits, activity, drained)
        queue, names = _drained_by(drained, thread, at_ns[outside])
        is_queue = (queue >= 0) & (activity.causes_of_ranges[open_range[outside]] < 0) & (told != _OFFLOADED)
        told[is_queue] = queue[is_queue] + len(CAUSES) + len(draining)
        draining += names
        cause[rows[outside]] = told
        is_profiled = _covers(waits.filter(pl.col("kind") == HostKind.PROFILER), at_ns)
        cause[rows[is_profiled & ~is_allocation[rows]]] = CAUSES.index(PROFILER)
    texts = pl.Series("on_thread", [*CAUSES, *draining], dtype=pl.String)
    return found, texts.gather(pl.Series(cause, dtype=pl.Int64).set(pl.Series(cause < 0), None))


_OFFLOADED = CAUSES.index(OFFLOAD)


def _drained_by(drained: Drained, thread: int, at_ns: Times) -> tuple[Rows, list[str]]:
    """The cause at each moment at which a call had left the queue empty, as a place in the list, else -1."""
    by_call = drained.by_call(thread, at_ns)
    calls, place = np.unique(by_call[by_call >= 0], return_inverse=True)
    found = np.full(at_ns.size, -1)
    found[by_call >= 0] = place
    return found, [f"{DRAINED}/{name}" for name in drained.names(calls)]


def _outside_calls(  # noqa: PLR0913, PLR0917  # these tell the cause together
    thread: int, at_ns: Times, open_range: Rows, waits: pl.DataFrame, activity: HostActivity, drained: Drained
) -> Rows:
    """The cause at each moment of a thread outside calls, as a place in `CAUSES`; empty queues left out."""
    told = np.full(at_ns.size, CAUSES.index(FRAMEWORK))
    io = waits.filter(pl.col("kind") == HostKind.IO).join(activity.event_names, on="name", how="left")
    is_network = pl.col("text").str.contains(_NETWORK_CALL)
    told[_covers(io.filter(~is_network), at_ns)] = CAUSES.index(_FILE)
    told[_covers(io.filter(is_network), at_ns)] = CAUSES.index(_NETWORK)
    locked = _covers(waits.filter(pl.col("kind") == HostKind.LOCK), at_ns)
    for other in drained.threads:
        if other != thread and locked.any():  # while another one works, that work is the cause
            held = activity.events.filter((pl.col("thread") == other) & (pl.col("kind") == HostKind.LOCK))
            locked &= _covers(held, at_ns)
    told[locked] = CAUSES.index(_LOCK)
    by_range = activity.causes_of_ranges[open_range]
    told = np.where(by_range >= 0, by_range, told)
    updates = activity.is_optimizer[open_range] & inside(activity.away[drained.rank_id], at_ns)
    told[updates] = _OFFLOADED
    return told


def _covers(events: pl.DataFrame, at_ns: Times) -> npt.NDArray[np.bool_]:
    """Whether any of the rows with `start_ns` and `end_ns` is open at each moment."""
    return inside(union(ordered(events["start_ns"].to_numpy(), events["end_ns"].to_numpy())), at_ns)

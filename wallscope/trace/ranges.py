"""Host ranges: their tree and paths, and the range in which each operation was issued.

Ranges of one thread are sorted by start, the longest first. The parent of a range is the latest one
before it that ends no sooner; so a parent stands before its children.

The outermost ranges of a thread that works for another, as PyTorch's autograd thread does, continue the
path of the range in which the other waits.

An operation belongs to the innermost range open on its issuing thread at the start of the issuing call. If
that thread has none, it belongs to the range of the thread that waits for it. A CUDA graph belongs to the
range around its launch.

PyTorch's autograd thread issues the backward pass while the main thread waits inside `backward`. The
thread that waits holds an open range and is outside API calls.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, find_places, iterate_groups, iterate_runs
from wallscope.kernels import range_nesting, views
from wallscope.model.enums import CallRole, ProjectedBy
from wallscope.model.schemas import NAMES, NESTED, PATHS, PROJECTION
from wallscope.records import dataclass
from wallscope.trace.intervals import Times
from wallscope.trace.names import fold_names

Parents = npt.NDArray[np.int32]
"""A row for each row, -1 for none."""


def find_parents(end_ns: Times, thread: Codes | None = None, is_apart: Flags | None = None) -> Parents:
    """Return the row of the latest earlier range that ends no sooner, -1 without one.

    Args:
        end_ns: int64[range], ns; ranges by thread and start, the longest first.
        thread: integer[range], the thread of each; of one thread if left out.
        is_apart: bool[range], ranges that stand in no tree; none if left out.

    >>> find_parents(np.array([100, 40, 30, 90, 60, 120])).tolist()
    [-1, 0, 1, 0, 3, -1]
    """
    parent = np.empty(end_ns.size, np.int32)
    threads = np.zeros(end_ns.size, np.int32) if thread is None else thread.astype(np.int32)
    apart = np.zeros(end_ns.size, np.bool_) if is_apart is None else np.ascontiguousarray(is_apart)
    range_nesting.nest(*views(threads, np.ascontiguousarray(end_ns), apart.view(np.uint8), parent))
    return parent


def find_innermost(start_ns: Times, end_ns: Times, parent: Parents, at_ns: Times) -> Parents:
    """Return the row of the range with the latest start that is open at each moment, -1 without one.

    A range is open from its start on and no longer at its end.

    Args:
        start_ns: int64[range], ns, of one thread, ascending.
        end_ns: int64[range], ns.
        parent: int32[range], row, as `find_parents` gives it.
        at_ns: int64[moment], ns, in any order.

    >>> start, end = np.array([0, 10, 50]), np.array([100, 20, 60])
    >>> find_innermost(start, end, find_parents(end), np.array([5, 20, 15, 55, 100])).tolist()
    [0, 0, 1, 2, -1]
    """
    if (at_ns[1:] < at_ns[:-1]).any():
        order = np.argsort(at_ns, kind="stable")
        unordered = np.empty(at_ns.size, np.int32)
        unordered[order] = find_innermost(start_ns, end_ns, parent, at_ns[order])
        return unordered
    found = np.empty(at_ns.size, np.int32)
    columns = (np.ascontiguousarray(column) for column in (start_ns, end_ns, parent, at_ns))
    range_nesting.innermost(*views(*columns, found))
    return found


def find_nearest(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the nearest wanted one, itself or above it; -1 without one.

    Args:
        parent: integer[row], row, less than the child's; -1 at the top.
        is_wanted: bool[row].

    >>> find_nearest(np.array([-1, 0, 1, -1]), np.array([True, False, False, False])).tolist()
    [0, 0, 0, -1]
    """
    return _upwards(range_nesting.nearest, parent, is_wanted)


def find_farthest(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the outermost wanted one, itself or above it; -1 without one.

    >>> find_farthest(np.array([-1, 0, 1, -1]), np.array([False, True, True, False])).tolist()
    [-1, 1, 1, -1]
    """
    return _upwards(range_nesting.farthest, parent, is_wanted)


def find_chain_top(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the last one that is reached from it over wanted parents alone, or itself.

    >>> find_chain_top(np.array([-1, 0, 1, 2]), np.array([True, False, True, True])).tolist()
    [0, 0, 2, 2]
    """
    return _upwards(range_nesting.chain_top, parent, is_wanted)


def _upwards(loop: Callable[..., None], parent: Codes, is_wanted: Flags) -> Parents:
    found = np.empty(parent.size, np.int32)
    wanted = np.ascontiguousarray(is_wanted).view(np.uint8)
    loop(*views(np.ascontiguousarray(parent, dtype=np.int32), wanted, found))
    return found


_LONGEST_NAME = 200


def nest_ranges(
    ranges: pl.DataFrame, names: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """The tree of ranges (`NESTED`), its paths (`PATHS`) and their folded names (`NAMES`).

    `ranges` follow `RANGES`, `names` `RANGE_NAMES`, `calls` `CALLS`, and `threads` `THREADS`. Ranges that
    end on another thread are separate. Parents are on the same thread; paths may continue in another.
    """
    folds = fold_names(names)
    labels = folds.unique().sort()
    by_name = folds.cast(pl.Enum(labels)).to_physical().to_numpy()
    label = by_name[ranges["name"].to_numpy()] if len(ranges) else np.empty(0, np.int64)
    parent = find_parents(
        ranges["end_ns"].to_numpy(), as_integers(ranges["thread"]), ranges["crosses"].to_numpy()
    )
    path, paths = _number_paths(
        _continued(ranges, parent, calls, threads), label, ranges["start_ns"].to_numpy()
    )
    tree = ranges.select(*NESTED.names()[:-2]).hstack(
        [pl.Series("parent", parent, NESTED["parent"]), pl.Series("path", path, NESTED["path"])]
    )
    return tree, paths, pl.DataFrame({"name": np.arange(len(labels)), "text": labels}, schema=NAMES)


def _continued(ranges: pl.DataFrame, parent: Parents, calls: pl.DataFrame, threads: pl.DataFrame) -> Parents:
    """Parents with those of outermost ranges taken from the thread that waits during all of each."""
    around = parent.copy()
    for own in split_by_process(find_host_threads(ranges, calls, parent), threads).values():
        issuing = {thread: holder for thread, holder in own.items() if holder.issues}
        if len(issuing) > MOST_WAITING_THREADS_COUNT + 1:
            continue
        for thread, holder in own.items():
            others = [other for number, other in issuing.items() if number != thread]
            outermost = np.flatnonzero(parent[holder.rows] < 0)
            if others and outermost.size:
                around[holder.rows[outermost]] = find_range_around(
                    others, holder.start_ns[outermost], holder.end_ns[outermost]
                )
    return around


def _number_paths(around: Parents, label: Codes, start_ns: Times) -> tuple[Parents, pl.DataFrame]:
    """Path of each range, and all paths (`PATHS`) in order of their first ranges.

    A path is the path around it and a label: ranges share one whose chains of labels are the same. What
    is around a range began before it.
    """
    size = around.size
    path = np.full(size, -1, np.int32)
    parent, name, depth = (np.empty(size, np.int32) for _ in range(3))
    count = range_nesting.number_paths(
        *views(np.argsort(start_ns, kind="stable"), around, label.astype(np.int32)),
        *views(np.full(2 << size.bit_length(), -1, np.int32), path, parent, name, depth),
    )
    columns = {
        "path": np.arange(count),
        "parent": parent[:count],
        "name": name[:count],
        "depth": depth[:count],
    }
    return path, pl.DataFrame(columns, schema=PATHS)


def write_paths(paths: pl.DataFrame, names: pl.DataFrame, wanted: pl.Series, most: int = 8) -> pl.Series:
    """Some paths written out, outermost first; of deep ones the outside is left out, long names are cut.

    `paths` follow `PATHS`, `names` are their folded names, `wanted` are numbers of paths.
    """
    parent, label = paths["parent"].to_list(), paths["name"].to_list()
    texts = [text[:_LONGEST_NAME] for text in names["text"].to_list()]
    written = []
    for path in wanted.to_list():
        inwards: list[str] = []
        at = path
        while at >= 0 and len(inwards) < most:
            inwards.append(texts[label[at]])
            at = parent[at]
        written.append(("… / " if at >= 0 else "") + " / ".join(reversed(inwards)))
    return pl.Series("path_text", written, dtype=pl.String)


@dataclass(frozen=True)
class RangeTree:
    """The ranges of all processes: `NESTED` with `process`, `PATHS`, and the normalized names (`NAMES`)."""

    tree: pl.DataFrame
    paths: pl.DataFrame
    names: pl.DataFrame

    @cached_property
    def texts(self) -> pl.Series:
        """The paths written out."""
        return write_paths(self.paths, self.names, self.paths["path"])

    @cached_property
    def path_of_range(self) -> Rows:
        """The path of each range, by number; the last is for -1."""
        found = np.full(len(self.tree) + 1, -1, np.int64)
        found[self.tree["range"].to_numpy()] = self.tree["path"].to_numpy()
        return found


_NONE, _SAME_THREAD, _INHERITED = range(3)
_HOW = pl.Series([ProjectedBy.NONE, ProjectedBy.SAME_THREAD, ProjectedBy.INHERITED], dtype=PROJECTION["how"])


def project_ranges(
    operations: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """The range of each operation (`OPERATIONS`, `CALLS`, `NESTED`, `THREADS` to `PROJECTION`)."""
    call = operations["call"].to_numpy()
    issued = np.flatnonzero(call >= 0)
    call = call[issued]
    issued_ns = calls["start_ns"].to_numpy()[call]
    found = np.full(len(operations), -1, dtype=np.int32)
    how = np.zeros(len(operations), dtype=np.uint8)
    holders = find_host_threads(ranges, calls, ranges["parent"].to_numpy())
    of_process = split_by_process(holders, threads)
    process = dict(threads["thread", "process"].iter_rows())
    for thread, rows in iterate_groups(calls["thread"].to_numpy()[call]):
        op, at_ns = issued[rows], issued_ns[rows]
        own = of_process.get(process[thread], {})
        row = own[thread].open_range(at_ns) if thread in own else np.full(rows.size, -1)
        found[op] = row
        how[op] = np.where(row >= 0, _SAME_THREAD, _NONE)
        orphan = np.flatnonzero(row < 0)
        waiting = [holder for other, holder in own.items() if other != thread]
        if orphan.size and waiting:
            inherited = find_waiting_range(waiting, at_ns[orphan])
            found[op[orphan]] = inherited
            how[op[orphan]] = np.where(inherited >= 0, _INHERITED, _NONE)
    return pl.DataFrame({"op": operations["op"], "range": found, "how": _HOW[how]}, schema=PROJECTION)


MOST_WAITING_THREADS_COUNT = 64
"""Of more threads than that none is the one that waits; and the question would take the square of them."""
_ISSUING = [CallRole.LAUNCH, CallRole.GRAPH, CallRole.COPY]


class HostThread:
    """The ranges and calls of one thread, ready to be asked what was open or made at a moment."""

    def __init__(self, ranges: pl.DataFrame, calls: pl.DataFrame, parent: Parents) -> None:
        self.rows = ranges["range"].to_numpy().astype(np.int64)
        self.start_ns, self.end_ns = ranges["start_ns"].to_numpy(), ranges["end_ns"].to_numpy()
        self._parent, self._calls = parent, calls
        self._call_start_ns = calls["start_ns"].to_numpy()

    @cached_property
    def issues(self) -> bool:
        """Whether a call of the thread gave the device work."""
        return bool(self._calls["role"].is_in(_ISSUING).any())

    @cached_property
    def _own_parent(self) -> Parents:
        """The row of the parent among the ranges of the thread."""
        return find_places(self._parent[self.rows], self.rows).astype(np.int32)

    @cached_property
    def _call_end_ns(self) -> Times:
        ends_ns = self._calls["end_ns"].to_numpy()
        return ends_ns if (ends_ns[1:] >= ends_ns[:-1]).all() else np.maximum.accumulate(ends_ns)

    def open_range(self, at_ns: Times) -> Rows:
        """The innermost open range at each moment, -1 where there is none."""
        row = find_innermost(self.start_ns, self.end_ns, self._own_parent, at_ns)
        return np.where(row < 0, -1, np.append(self.rows, -1)[row])

    def call_sides(self) -> tuple[Times, Times]:
        """When API calls begin, and when they end, each in order."""
        return self._call_start_ns, self._call_end_ns

    def is_in_call(self, at_ns: Times) -> Flags:
        """Whether the thread is inside an API call at each moment."""
        if self._call_end_ns.size == 0:
            return np.zeros(at_ns.size, dtype=bool)
        row = np.searchsorted(self._call_start_ns, at_ns, side="right") - 1
        is_open: Flags = (row >= 0) & (self._call_end_ns[row] > at_ns)
        return is_open

    def is_quiet(self, start_ns: Times, end_ns: Times) -> Flags:
        """Whether the thread neither calls nor opens a range during each span."""
        made = _count_between(self._call_start_ns, start_ns, end_ns) + _count_between(
            self.start_ns, start_ns, end_ns
        )
        is_quiet: Flags = (made == 0) & ~self.is_in_call(start_ns)
        return is_quiet


def _count_between(moments: Times, start_ns: Times, end_ns: Times) -> Rows:
    return np.searchsorted(moments, end_ns, side="left") - np.searchsorted(moments, start_ns, side="left")


def find_host_threads(ranges: pl.DataFrame, calls: pl.DataFrame, parent: Parents) -> dict[int, HostThread]:
    """The threads that hold ranges, by number; ranges that end on another thread do not count.

    `ranges` follow `RANGES`, `calls` follow `CALLS`, `parent` is the row of the range around each.
    """
    held = ranges if not ranges["crosses"].any() else ranges[np.flatnonzero(~ranges["crosses"].to_numpy())]
    ranges_of, calls_of = (dict(iterate_runs(as_integers(frame["thread"]))) for frame in (held, calls))
    return {
        thread: HostThread(held[rows], calls[calls_of.get(thread, slice(0))], parent)
        for thread, rows in ranges_of.items()
        if thread >= 0
    }


def split_by_process(
    holders: Mapping[int, HostThread], threads: pl.DataFrame
) -> dict[int, dict[int, HostThread]]:
    """Such threads of each process (`THREADS`), by its number."""
    found: dict[int, dict[int, HostThread]] = {}
    for thread, process in threads["thread", "process"].iter_rows():
        if thread in holders:
            found.setdefault(process, {})[thread] = holders[thread]
    return found


def find_waiting_range(threads: list[HostThread], at_ns: Times) -> Rows:
    """The open range of the only thread that has one and is in no call; -1 where none or several do."""
    if not 0 < len(threads) <= MOST_WAITING_THREADS_COUNT:
        return np.full(at_ns.size, -1)
    return _take_only_candidate(
        [np.where(thread.is_in_call(at_ns), -1, thread.open_range(at_ns)) for thread in threads]
    )


def find_range_around(threads: list[HostThread], start_ns: Times, end_ns: Times) -> Rows:
    """The range of the only issuing thread that waits in it during all of each span; else -1."""
    issuing = [thread for thread in threads if thread.issues]
    found = []
    for thread in issuing if len(issuing) <= MOST_WAITING_THREADS_COUNT else []:
        row = thread.open_range(start_ns)
        until_ns = np.append(thread.end_ns, 0)[np.searchsorted(thread.rows, row)]
        waits = (row >= 0) & (until_ns >= end_ns) & thread.is_quiet(start_ns, end_ns)
        found.append(np.where(waits, row, -1))
    return _take_only_candidate(found) if found else np.full(start_ns.size, -1)


def _take_only_candidate(candidates: list[Rows]) -> Rows:
    """Of several candidates a row the one that is not -1, if there is exactly one."""
    stacked = np.array(candidates)
    return np.where((stacked >= 0).sum(axis=0) == 1, stacked.max(axis=0), -1)

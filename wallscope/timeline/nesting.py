"""The tree of host ranges, also where ranges overlap without nesting, and questions about it.

Ranges of one thread are sorted by start, the longest first. The parent of a range is the latest one
before it that ends no sooner; so a parent stands before its children.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from wallscope.arrays.columns import Codes, Flags
from wallscope.kernels import range_nesting, views
from wallscope.timeline.spans import Times

Parents = npt.NDArray[np.int32]
"""A row for each row, -1 for none."""


def parents(end_ns: Times, thread: Codes | None = None, is_apart: Flags | None = None) -> Parents:
    """Return the row of the latest earlier range that ends no sooner, -1 without one.

    Args:
        end_ns: int64[range], ns; ranges by thread and start, the longest first.
        thread: integer[range], the thread of each; of one thread if left out.
        is_apart: bool[range], ranges that stand in no tree; none if left out.

    >>> parents(np.array([100, 40, 30, 90, 60, 120])).tolist()
    [-1, 0, 1, 0, 3, -1]
    """
    parent = np.empty(end_ns.size, np.int32)
    threads = np.zeros(end_ns.size, np.int32) if thread is None else thread.astype(np.int32)
    apart = np.zeros(end_ns.size, np.bool_) if is_apart is None else np.ascontiguousarray(is_apart)
    range_nesting.nest(*views(threads, np.ascontiguousarray(end_ns), apart.view(np.uint8), parent))
    return parent


def innermost(start_ns: Times, end_ns: Times, parent: Parents, at_ns: Times) -> Parents:
    """Return the row of the range with the latest start that is open at each moment, -1 without one.

    A range is open from its start on and no longer at its end.

    Args:
        start_ns: int64[range], ns, of one thread, ascending.
        end_ns: int64[range], ns.
        parent: int32[range], row, as `parents` gives it.
        at_ns: int64[moment], ns, in any order.

    >>> start, end = np.array([0, 10, 50]), np.array([100, 20, 60])
    >>> innermost(start, end, parents(end), np.array([5, 20, 15, 55, 100])).tolist()
    [0, 0, 1, 2, -1]
    """
    if (at_ns[1:] < at_ns[:-1]).any():
        order = np.argsort(at_ns, kind="stable")
        unordered = np.empty(at_ns.size, np.int32)
        unordered[order] = innermost(start_ns, end_ns, parent, at_ns[order])
        return unordered
    found = np.empty(at_ns.size, np.int32)
    columns = (np.ascontiguousarray(column) for column in (start_ns, end_ns, parent, at_ns))
    range_nesting.innermost(*views(*columns, found))
    return found


def nearest(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the nearest wanted one, itself or above it; -1 without one.

    Args:
        parent: integer[row], row, less than the child's; -1 at the top.
        is_wanted: bool[row].

    >>> nearest(np.array([-1, 0, 1, -1]), np.array([True, False, False, False])).tolist()
    [0, 0, 0, -1]
    """
    return _upwards(range_nesting.nearest, parent, is_wanted)


def farthest(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the outermost wanted one, itself or above it; -1 without one.

    >>> farthest(np.array([-1, 0, 1, -1]), np.array([False, True, True, False])).tolist()
    [-1, 1, 1, -1]
    """
    return _upwards(range_nesting.farthest, parent, is_wanted)


def chain_top(parent: Codes, is_wanted: Flags) -> Parents:
    """Return for each row the last one that is reached from it over wanted parents alone, or itself.

    >>> chain_top(np.array([-1, 0, 1, 2]), np.array([True, False, True, True])).tolist()
    [0, 0, 2, 2]
    """
    return _upwards(range_nesting.chain_top, parent, is_wanted)


def _upwards(loop: Callable[..., None], parent: Codes, is_wanted: Flags) -> Parents:
    found = np.empty(parent.size, np.int32)
    wanted = np.ascontiguousarray(is_wanted).view(np.uint8)
    loop(*views(np.ascontiguousarray(parent, dtype=np.int32), wanted, found))
    return found

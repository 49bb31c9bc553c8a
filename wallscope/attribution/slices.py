"""Every nanosecond of every step in one slice: the compute that ran, or the link that explains its absence.

Compute owns the time in which it ran, of concurrent kernels the one that started first; recomputed
forward work owns it where nothing else computes, opaque graphs where no compute ran. The links of the
blame chains tile the rest. Everything else that is said of time is a sum over slices.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.gaps import NO_SLACK, Links
from wallscope.columns import Codes, Rows, are_among, filled, place
from wallscope.errors import InternalError
from wallscope.kernels import views
from wallscope.kernels.slicing import cut_slices, find_owners
from wallscope.model.kinds import DeviceState, OperationClass
from wallscope.trace.intervals import Spans, Times, ordered, union

_KERNELS, _RECOMPUTED, _GRAPHS = range(3)
_STATES = np.array(
    [place(one) for one in (DeviceState.COMPUTE, DeviceState.COMPUTE, DeviceState.OPAQUE_GRAPH)], np.int8
)
_STATES_OF_LINKS = [
    place(one) for one in (DeviceState.EXPOSED_COMMUNICATION, DeviceState.EXPOSED_COPY, DeviceState.IDLE)
]


@dataclass(frozen=True, slots=True)
class Slices:
    """Slices in order of time, as columns of `SLICES` in arrays.

    `window` is the row of each slice's window; `kind` and `state` are places in their enumerations. Where
    compute ran `kind` is -1, and so are `gap`, `next_op`, `call` and `thread`; `slack_ns` is `NO_SLACK` where
    nothing else could have bound.
    """

    window: Codes
    start_ns: Times
    end_ns: Times
    state: Codes
    kind: Codes
    gap: Codes
    op: Rows
    next_op: Codes
    call: Codes
    thread: Codes
    slack_ns: Times


def slice_windows(
    operations: pl.DataFrame,
    links: Links,
    windows: pl.DataFrame,
    recomputed: pl.Series,
    on_threads: Mapping[int, Times],
) -> Slices:
    """Return the slices of one rank, which tile its windows.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        links: the links of the rank.
        windows: `WINDOWS` of the rank.
        recomputed: numbers of the operations that repeat forward work.
        on_threads: moments at which the time of a thread is cut, in order, by thread.

    Raises:
        InternalError: the links and the compute of the rank do not tile its time.
    """
    op, of_class = operations["op"].to_numpy().astype(np.int64), filled(operations["class"])
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    tier = np.full(op.size, -1, np.int8)
    tier[of_class == place(OperationClass.OPAQUE_GRAPH)] = _GRAPHS
    tier[of_class == place(OperationClass.COMPUTE)] = _KERNELS
    tier[(tier == _KERNELS) & are_among(op, recomputed.to_numpy())] = _RECOMPUTED
    room, front = 2 * op.size, np.zeros(len(_STATES), np.int64)
    owned = (np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32))
    count = find_owners(*views(start_ns, end_ns, tier, front, *owned))
    owned_start_ns, owned_end_ns, owner = (column[:count] for column in owned)

    covers = [
        union(ordered(start_ns[rows], end_ns[rows]))
        for rows in (of_class == place(one) for one in (OperationClass.COMMUNICATION, OperationClass.COPY))
    ]
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    moments = _by_thread(on_threads, int(links.thread.max(initial=-1)) + 1)
    spans = (bounds, *covers)
    room = owner.size + links.gap.size + moments[0].size + 2 * sum(one.start_ns.size for one in spans)
    kinds: tuple[npt.DTypeLike, ...] = (np.int32, np.int64, np.int64, np.int8, np.int32, np.int32)
    found: list[npt.NDArray[Any]] = [np.empty(room, kind) for kind in kinds]
    count = cut_slices(
        *views(
            owned_start_ns,
            owned_end_ns,
            _STATES[tier[owner]],
            links.start_ns,
            links.end_ns,
            links.thread,
            *(side for one in spans for side in (one.start_ns, one.end_ns)),
            *moments,
            *_STATES_OF_LINKS,
            *found,
        )
    )
    if count < 0:
        raise InternalError("the blame chains and the compute of a rank leave time out or count it twice")
    window, from_ns, until_ns, state, own, link = (column[:count] for column in found)
    gap, next_op, call, thread, of_link = (
        np.append(column, np.int32(-1))[link]
        for column in (links.gap, links.next_op, links.call, links.thread, links.op)
    )
    return Slices(
        window=window,
        start_ns=from_ns,
        end_ns=until_ns,
        state=state,
        kind=np.append(links.kind, np.int8(-1))[link],
        gap=gap,
        op=np.where(own >= 0, np.append(op[owner], -1)[own], of_link),
        next_op=next_op,
        call=call,
        thread=thread,
        slack_ns=np.append(links.slack_ns, NO_SLACK)[link],
    )


def _by_thread(on_threads: Mapping[int, Times], threads: int) -> tuple[Times, Rows, Rows]:
    """Moments of all threads, one thread behind the other, and where those of each end and begin."""
    empty = np.empty(0, np.int64)
    own = [on_threads.get(thread, empty) for thread in range(threads)]
    ends = np.cumsum([0, *map(len, own)])
    return np.concatenate([empty, *own]), ends[1:], ends[:-1].copy()

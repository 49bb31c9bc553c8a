"""Communication of a rank: how long it ran, how much of that nothing hid, by operation and axis."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled
from wallscope.arrays.groups import grouped
from wallscope.arrays.lookup import at_places, places
from wallscope.model.communication import Communication, CommunicationOperation
from wallscope.model.frames import AXES, COLLECTIVES, KERNELS, NAMES
from wallscope.model.kinds import LINK_KINDS, Axis, Backend, Collective, LinkKind, OperationClass
from wallscope.timeline.computing import COMPUTING
from wallscope.timeline.spans import common, covered_ns, union
from wallscope.walls.dispatcher import dispatcher
from wallscope.walls.overlap import overlap_tax
from wallscope.walls.typical import CATEGORIES, TypicalWork, mean_of

_MOST_EVIDENCE = 3
_UNKNOWN = np.iinfo(np.int64).min
_COLLECTIVES, _AXES, _BACKENDS = tuple(Collective), tuple(Axis), tuple(Backend)
_OF_CATEGORY = np.array(
    [_COLLECTIVES.index(Collective(each)) if each in _COLLECTIVES else -1 for each in CATEGORIES]
)


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is known beside the operations: `AXES`, `COLLECTIVES`, launch shapes (`KERNELS`), kernel names."""

    axes: pl.DataFrame
    collectives: pl.DataFrame
    kernels: pl.DataFrame
    names: pl.DataFrame


_NOTHING = Traffic(*(schema.to_frame() for schema in (AXES, COLLECTIVES, KERNELS, NAMES)))


def communication(work: TypicalWork, all_exposed_ns: int, traffic: Traffic = _NOTHING) -> Communication:
    """Volume and exposure of the communication in the typical step of one rank.

    `all_exposed_ns` is the exposed part of its budget.

    Exposed means: neither compute nor an opaque graph ran. Operations that overlap each other are
    each shown with all their exposed time, so the list may add up to more than the total. Bus bandwidth
    is as NCCL's tests define it, over all operations that begin in the steps: what a rank's link has to
    carry by the duration of the operation on this rank. One rank can't tell waiting for its peers from
    moving bytes, so it is a lower bound. It is unknown where that of any operation is.
    """
    own = _own(work, traffic)
    computed = common(union(work.columns.spans(work.rows_of(*COMPUTING))), work.steps)

    def spent_ns(rows: Rows) -> tuple[int, int]:
        """How long any of the rows ran inside the steps, and how long of that nothing computed."""
        running = union(work.columns.spans(rows))
        ran_ns = work.all_covered_ns(running)
        return ran_ns, ran_ns - int(covered_ns(computed, running).sum())

    ran_ns, exposed_ns = spent_ns(own.rows)
    hidden_ns = ran_ns - exposed_ns
    return Communication(
        union_ns=all_exposed_ns + work.mean(hidden_ns),
        exposed_ns=all_exposed_ns,
        blocking_ns=None,
        hidden_share=hidden_ns / ran_ns if ran_ns else None,
        operations=tuple(
            sorted(
                (_operation(work, one, work.mean(spent_ns(one.rows)[1])) for one in own.alike()),
                key=lambda entry: (
                    -entry.exposed_ns,
                    -entry.work_ns,
                    entry.operation,
                    entry.axis,
                    entry.backend,
                ),
            )
        ),
        overlap_tax=overlap_tax(work, traffic.kernels),
        dispatcher=dispatcher(work, traffic.axes, traffic.names),
    )


def blocking_ns(slices: pl.DataFrame, communicating: pl.Series, step_count: int) -> int:
    """Communication on the binding chains, in ns of a step: the lower bound beside what is exposed.

    `slices` (`SLICES`) are those of the steps, `communicating` the numbers of communication operations.
    """
    rows = np.flatnonzero(filled(slices["kind"]) == LINK_KINDS.index(LinkKind.OPERATION))
    on_chain = rows[places(slices["op"].to_numpy()[rows], communicating.to_numpy()) >= 0]
    total_ns = int((slices["end_ns"].to_numpy()[on_chain] - slices["start_ns"].to_numpy()[on_chain]).sum())
    return mean_of(total_ns, step_count)


@dataclass(frozen=True, slots=True)
class _Own:
    """Communication operations by row: what each does, axis and backend as places, and what NCCL counts."""

    rows: Rows
    does: Rows
    axis: Rows
    backend: Rows
    bytes: Rows
    bus_bytes: Rows
    evidence: npt.NDArray[np.object_]

    def alike(self) -> Iterator["_Own"]:
        """Those of one operation, axis and backend together."""
        key = (self.does * len(_AXES) + self.axis) * len(_BACKENDS) + self.backend
        for _, own in grouped(key):
            yield _Own(
                rows=self.rows[own],
                does=self.does[own],
                axis=self.axis[own],
                backend=self.backend[own],
                bytes=self.bytes[own],
                bus_bytes=self.bus_bytes[own],
                evidence=self.evidence[own],
            )


def _own(work: TypicalWork, traffic: Traffic) -> _Own:
    """Operations with their axis, evidence, and what NCCL counts; copies between devices count themselves."""
    rows, columns = work.rows_of(OperationClass.COMMUNICATION), work.columns
    told, counted = (
        places(columns.op[rows], frame["op"].to_numpy()) for frame in (traffic.axes, traffic.collectives)
    )
    does, axis = (at_places(filled(traffic.axes[name]), told, -1) for name in ("operation", "axis"))
    backend = filled(work.operations["backend"][rows])
    size = filled(work.operations["bytes"][rows], _UNKNOWN)
    counted_bytes, bus_bytes = (
        at_places(filled(traffic.collectives[column], _UNKNOWN), counted, _UNKNOWN)
        for column in ("bytes", "bus_bytes")
    )
    evidence = np.full(rows.size, None, object)
    evidence[told >= 0] = traffic.axes["evidence"][told[told >= 0]].to_list()
    return _Own(
        rows=rows,
        does=np.where(does < 0, _OF_CATEGORY[columns.category[rows]], does),
        axis=np.where(axis < 0, _AXES.index(Axis.UNKNOWN), axis),
        backend=backend,
        bytes=np.where(size == _UNKNOWN, counted_bytes, size),
        bus_bytes=np.where(backend == _BACKENDS.index(Backend.PEER_COPY), size, bus_bytes),
        evidence=evidence,
    )


def _operation(work: TypicalWork, own: _Own, exposed_ns: int) -> CommunicationOperation:
    columns, begun = work.columns, work.columns.begins[own.rows]
    rows, size, bus_bytes = own.rows[begun], own.bytes[begun], own.bus_bytes[begun]
    duration_ns = int((columns.end_ns[rows] - columns.start_ns[rows]).sum())
    is_counted = duration_ns and not (bus_bytes == _UNKNOWN).any()
    evidence = Counter(text for text in own.evidence.tolist() if text is not None)
    return CommunicationOperation(
        operation=_COLLECTIVES[own.does[0]],
        axis=_AXES[own.axis[0]],
        backend=_BACKENDS[own.backend[0]],
        count=work.mean(rows.size),
        work_ns=work.mean(work.total_ns(own.rows)),
        exposed_ns=exposed_ns,
        bytes=None if (size == _UNKNOWN).any() else work.mean(int(size.sum())),
        bus_bandwidth_bytes_per_s=int(bus_bytes.sum()) / duration_ns * 1_000_000_000 if is_counted else None,
        evidence=tuple(sorted(evidence, key=lambda text: (-evidence[text], text))[:_MOST_EVIDENCE]),
    )

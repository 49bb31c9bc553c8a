"""What operations and slices take of the steps of a rank, in numbers, and what identifies operations."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows, as_integers, combine_codes, encode_column, expand_counts, take_or
from wallscope.model.capture import Capture
from wallscope.model.enums import Absent, Collective, LinkKind
from wallscope.model.schemas import CATEGORY
from wallscope.profile.operation_keys import (
    CATEGORY_COLUMN,
    NAME_COLUMN,
    PATH_COLUMN,
    OperationTexts,
    index_texts,
    number_kinds,
)
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import infer_precisions
from wallscope.trace.names import normalize_names

HOST = "host"
OTHERS = "other operations"
_LONGEST_NAME = 240
_FIXED = ("", HOST, OTHERS, *Collective, *(str(name) for name in CATEGORY.categories))


@dataclass(frozen=True, slots=True)
class OperationDescriptions:
    """What is known of operations, of the whole capture.

    `precisions` are indices in `Precision`, by kernel name. `range_of` is the range of each operation, -1
    without one, and `called` the name of each call, by number. `axes` follows `AXES`, `counted` follows
    `COLLECTIVES`. `sized` has `op`, `axis` and `participants`, if all are known.
    """

    texts: OperationTexts
    precisions: Rows
    range_of: npt.NDArray[np.int32]
    called: npt.NDArray[np.uint32]
    axes: pl.DataFrame
    counted: pl.DataFrame
    sized: pl.DataFrame

    def kinds(self, operations: pl.DataFrame) -> tuple[Rows, Rows]:
        """Return the kinds of the operations of a rank (`CLASSIFIED`), and that of each (`number_kinds`)."""
        around = take_or(self.texts.ranges, self.range_of[operations["op"].to_numpy()], self.texts.fixed[""])
        return number_kinds(operations, around, self.texts, self.precisions, self.axes)


def describe_operations(
    capture: Capture, projected: pl.DataFrame, written: pl.Series, axes: pl.DataFrame, counted: pl.DataFrame
) -> OperationDescriptions:
    """Return what is known of the operations of a capture.

    Args:
        capture: the capture.
        projected: `PROJECTION`.
        written: the path of each range, written out, by number.
        axes: `AXES`.
        counted: `COLLECTIVES`, as far as they are known.
    """
    names, calls = (
        texts.str.slice(0, _LONGEST_NAME)
        for texts in (normalize_names(capture.names["text"]), capture.call_names["text"])
    )
    range_of = np.empty(len(projected), np.int32)
    range_of[projected["op"].to_numpy()] = projected["range"].to_numpy()
    return OperationDescriptions(
        texts=index_texts(names, calls, written, list(dict.fromkeys(_FIXED))),
        precisions=as_integers(infer_precisions(capture.names)["precision"]),
        range_of=range_of,
        called=capture.calls["name"].to_numpy(),
        axes=axes,
        counted=counted,
        sized=axes["op", "axis"].join(counted["op", "participants"], on="op").drop_nulls(),
    )


@dataclass(frozen=True, slots=True)
class CutOperations:
    """Cut operations at the borders of steps: a row for each step that one touches.

    `step` is the index of the step, `row` that of the operation in its frame; `exposed_ns` is time without
    compute on the device, 0 of what computes itself.
    """

    step: Rows
    row: Rows
    begins: Flags
    work_ns: Times
    exposed_ns: Times


@dataclass(frozen=True, slots=True)
class NumberedSlices:
    """Slices: the index of the step, the kind that each is attributed to, and indices of enumerations.

    `causes` are all causes in order, `cause` is the index there.
    """

    step: Rows
    kind: Rows
    causes: pl.Series
    cause: Rows
    state: Rows
    absent: Rows
    wall: Rows
    ns: Times
    blocking_ns: Times


def cut_operations(operations: pl.DataFrame, windows: pl.DataFrame, computes: Flags) -> CutOperations:
    """Cut operations at the borders of the windows, which are in order of time."""
    bounds = Spans(windows["start_ns"].to_numpy(), windows["end_ns"].to_numpy())
    start_ns, end_ns = operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()
    first = np.searchsorted(bounds.end_ns, start_ns, side="right")
    behind = np.searchsorted(bounds.start_ns, np.maximum(end_ns, start_ns + 1), side="left")
    parts = np.maximum(behind - first, 0)
    row, nth = expand_counts(parts)
    window = first[row] + nth
    cut = Spans(
        np.maximum(start_ns[row], bounds.start_ns[window]), np.minimum(end_ns[row], bounds.end_ns[window])
    )
    busy = union(order_spans(start_ns[computes], end_ns[computes]))
    others_at = np.flatnonzero(~computes[row])
    work_ns = cut.end_ns - cut.start_ns
    exposed_ns = np.zeros(row.size, np.int64)
    others = Spans(cut.start_ns[others_at], cut.end_ns[others_at])
    exposed_ns[others_at] = work_ns[others_at] - covered_ns(busy, others)
    step = windows["step"].to_numpy()
    number = np.searchsorted(np.sort(step), step)
    return CutOperations(number[window], row, start_ns[row] >= bounds.start_ns[window], work_ns, exposed_ns)


def number_slices(
    slices: pl.DataFrame, steps: Rows, kind_of: Rows, first: int, described: OperationDescriptions
) -> tuple[NumberedSlices, Rows]:
    """Number slices, and the kinds of time on threads by call and range, after those of operations.

    `kind_of` is the kind of each operation of the rank, which are numbered without a gap from `first` on. The
    last kind is that of operations of other ranks, which are unknown.
    """
    cause, causes = encode_column(slices["cause"])
    step, op, around, call, start_ns, end_ns = (
        slices[name].to_numpy() for name in ("step", "op", "range", "call", "start_ns", "end_ns")
    )
    texts, nothing = described.texts, described.texts.fixed[""]
    on_thread = np.flatnonzero(op < 0)
    path = take_or(texts.ranges, around[on_thread], nothing)
    name = take_or(described.called, call[on_thread], len(texts.calls))
    called = np.append(texts.calls, nothing)[name]
    (path, called), thread_kind = combine_codes((len(texts.texts), len(texts.texts)), path, called)
    on_threads = np.tile(texts.ends(), (path.size + 1, 1))
    on_threads[:-1, PATH_COLUMN], on_threads[:-1, NAME_COLUMN] = path, called
    on_threads[:-1, CATEGORY_COLUMN] = texts.fixed[HOST]
    behind = kind_of.max(initial=-1) + 1
    is_own = (op >= first) & (op < first + kind_of.size)
    kind = take_or(kind_of, np.where(is_own, op - first, -1), behind + path.size)
    kind[on_thread] = behind + thread_kind
    length_ns = end_ns - start_ns
    binds = (slices["kind"] == LinkKind.OPERATION).fill_null(value=False).to_numpy()
    numbered = NumberedSlices(
        step=np.searchsorted(steps, step),
        kind=kind,
        causes=pl.Series(causes, dtype=pl.String),
        cause=cause,
        state=as_integers(slices["state"]),
        absent=as_integers(slices["absent"], len(Absent)),
        wall=as_integers(slices["wall"]),
        ns=length_ns,
        blocking_ns=np.where(binds, length_ns, 0),
    )
    return numbered, on_threads

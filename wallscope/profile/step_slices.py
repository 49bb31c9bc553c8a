"""What operations and slices take of the steps of a rank, in numbers, and what identifies operations.

Each kind of operation has a number, and so have its texts. A text is numbered by its index among all texts of
a capture's operations, an enumeration value by its index in that; missing values come after all of them.
Steps and kinds of several captures are numbered by the capture and the number there.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    combine_codes,
    encode_column,
    expand_counts,
    find_places,
    list_members,
    match_rows,
    number_densely,
    select_distinct_rows,
    take_or,
)
from wallscope.model.capture import Capture
from wallscope.model.enums import (
    LINK_KINDS,
    Absent,
    Axis,
    Backend,
    Collective,
    ComputeCategory,
    DeviceState,
    LinkKind,
    Precision,
)
from wallscope.model.profile import OPERATION_KEYS
from wallscope.model.schemas import CATEGORY
from wallscope.model.schemas import CATEGORY as CATEGORIES
from wallscope.records import dataclass
from wallscope.trace.intervals import Spans, Times, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import infer_precisions
from wallscope.trace.names import normalize_names

_BITS = 32


def encode_pairs(rows: pl.DataFrame, name: str) -> Rows:
    """Return a number for `input` and another column of each row, in order of both; -1 where that is null.

    >>> encode_pairs(pl.DataFrame({"input": [0, 1, 1], "step": [7, 2, None]}), "step").tolist()
    [7, 4294967298, -1]
    """
    of_input = rows["input"].to_numpy().astype(np.int64) << _BITS
    return of_input | as_integers(rows[name])  # all bits of -1 are set


def decode_pairs(found: Rows, name: str) -> dict[str, Rows]:
    """Return the columns that numbers were made of, none of which is null.

    >>> {name: own.tolist() for name, own in decode_pairs(np.array([7, 4294967298]), "step").items()}
    {'input': [0, 1], 'step': [7, 2]}
    """
    return {"input": found >> _BITS, name: found & ((1 << _BITS) - 1)}


PATH_COLUMN, CATEGORY_COLUMN, NAME_COLUMN = range(3)  # of `OPERATION_KEYS` without the key
STATES, ABSENTS = list_members(DeviceState), list_members(Absent)
_VALUES = {"axis": list_members(Axis), "backend": list_members(Backend), "precision": list_members(Precision)}
_MULTIPLYING = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
_CATEGORIES = tuple(CATEGORIES.categories)
_NO_AXIS, _NO_BACKEND, _NO_PRECISION = len(Axis), len(Backend), len(Precision)
_NO_OPERATION = len(Collective)


@dataclass(frozen=True, slots=True)
class OperationTexts:
    """All texts of operations.

    `texts` are in order, null after the last. The other fields index it: of each kernel
    name, each name of a call, the path of each range, and of the texts that are always there (`fixed`).
    """

    texts: pl.Series
    kernels: Rows
    calls: Rows
    ranges: Rows
    fixed: dict[str, int]

    @property
    def nothing(self) -> int:
        """The index of no text."""
        return len(self.texts) - 1

    def places(self, texts: Iterable[str]) -> Rows:
        """Return the places of texts that are always there; one more at the end for nothing."""
        return np.array([*(self.fixed[str(text)] for text in texts), self.nothing], np.int64)

    def ends(self) -> Rows:
        """Return the numbers of nothing, by column of `OPERATION_KEYS` without the key."""
        return np.array([*[self.nothing] * 3, _NO_AXIS, _NO_BACKEND, _NO_PRECISION], np.int64)


def index_texts(
    kernels: pl.Series, calls: pl.Series, ranges: pl.Series, fixed: Sequence[str]
) -> OperationTexts:
    """Number the texts of operations: names of kernels and calls, paths of ranges, and fixed ones."""
    parts = [kernels, calls, ranges, pl.Series(fixed, dtype=pl.String)]
    every = pl.concat([part.alias("text") for part in parts])
    texts = every.unique().sort()
    places = as_integers(every.cast(pl.Enum(texts))).astype(np.int64)
    ends = np.cumsum([len(part) for part in parts])
    of_kernels, of_calls, of_ranges, always = np.split(places, ends[:-1])
    return OperationTexts(
        pl.concat([texts, texts.clear(1)]),
        of_kernels,
        of_calls,
        of_ranges,
        dict(zip(fixed, always.tolist(), strict=True)),
    )


def number_kinds(
    operations: pl.DataFrame, around: Rows, known: OperationTexts, precisions: Rows, axes: pl.DataFrame
) -> tuple[Rows, Rows]:
    """Return the kinds of operations (a row each, `OPERATION_KEYS` without the key), and that of each one.

    Args:
        operations: `CLASSIFIED`, by number.
        around: the index of the path around each.
        known: texts of the operations.
        precisions: places in `Precision`, by kernel name.
        axes: `AXES`.
    """
    (name, category, backend), shape = combine_codes(
        (precisions.size + 1, len(_CATEGORIES) + 1, _NO_BACKEND + 1),
        *_kernel_columns(operations, precisions.size),
    )
    (shapes, operation, axis), meant = combine_codes(
        (name.size, _NO_OPERATION + 1, _NO_AXIS + 1), shape, *_axis_columns(operations, axes)
    )
    paths, path = number_densely(around)
    (path, at), kind = combine_codes((paths.size, shapes.size), path, meant)

    operation, axis = operation[at], axis[at]
    name, category, backend = (column[shapes[at]] for column in (name, category, backend))
    is_product = np.isin(category, [_CATEGORIES.index(part) for part in _MULTIPLYING])
    is_known = operation < _NO_OPERATION
    rows = np.stack(
        [
            paths[path],
            np.where(is_known, known.places(Collective)[operation], known.places(_CATEGORIES)[category]),
            np.append(known.kernels, known.fixed[""])[name],
            axis,
            backend,
            np.where(is_product, np.append(precisions, _NO_PRECISION)[name], _NO_PRECISION),
        ],
        axis=1,
    )
    kinds, row = select_distinct_rows(rows)
    return kinds, row[kind]


def _kernel_columns(operations: pl.DataFrame, names: int) -> tuple[Rows, ...]:
    """Return kernel name, category and backend of each operation; `names` stands for no kernel."""
    return (
        as_integers(operations["name"], names),
        as_integers(operations["category"], len(_CATEGORIES)),
        as_integers(operations["backend"], _NO_BACKEND),
    )


def _axis_columns(operations: pl.DataFrame, axes: pl.DataFrame) -> tuple[Rows, Rows]:
    """Return what each operation does, and on which axis."""
    row, held = match_rows(operations["op"].to_numpy(), axes["op"].to_numpy())
    operation = np.full(len(operations), _NO_OPERATION)
    operation[row] = as_integers(axes["operation"], _NO_OPERATION)[held]
    axis = np.full(len(operations), _NO_AXIS)
    axis[row] = as_integers(axes["axis"], _NO_AXIS)[held]
    return operation, axis


def key_table(rows: Rows, known: OperationTexts) -> pl.DataFrame:
    """Return `OPERATION_KEYS` of kinds, numbered in their order."""
    return pl.DataFrame(
        {
            "key": np.arange(len(rows)),
            **{
                name: known.texts[rows[:, column]] for column, name in enumerate(("path", "category", "name"))
            },
            **{name: values[rows[:, column]] for column, (name, values) in enumerate(_VALUES.items(), 3)},
        },
        schema=OPERATION_KEYS,
    )


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
    """Slices: the index of the step, the kind that each is attributed to, and its cause.

    `causes` are all causes in order, `cause` is the index there.
    """

    step: Rows
    kind: Rows
    causes: pl.Series
    cause: Rows
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
    binds = as_integers(slices["kind"]) == LINK_KINDS.index(LinkKind.OPERATION)
    numbered = NumberedSlices(
        step=find_places(step, steps),
        kind=kind,
        causes=pl.Series(causes, dtype=pl.String),
        cause=cause,
        ns=length_ns,
        blocking_ns=np.where(binds, length_ns, 0),
    )
    return numbered, on_threads

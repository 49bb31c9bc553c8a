"""What operations are told apart by, in numbers: each kind of them has one, and so have its texts.

A text is its place among all that is said of the operations of a capture, a value of an enumeration its
place in that; nothing comes after all of them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, filled, members
from wallscope.arrays.groups import combined, distinct_rows, ranked
from wallscope.arrays.lookup import rows_of
from wallscope.model.frames import CATEGORY as CATEGORIES
from wallscope.model.kinds import (
    Absent,
    Axis,
    Backend,
    Collective,
    ComputeCategory,
    DeviceState,
    Precision,
)
from wallscope.model.profile import OPERATION_KEYS

PATH, CATEGORY, NAME = range(3)  # their places in a row, as in `OPERATION_KEYS` without the key
STATES, ABSENTS = members(DeviceState), members(Absent)
_VALUES = {"axis": members(Axis), "backend": members(Backend), "precision": members(Precision)}
_MULTIPLYING = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
_CATEGORIES = tuple(CATEGORIES.categories)
_NO_AXIS, _NO_BACKEND, _NO_PRECISION = len(Axis), len(Backend), len(Precision)
_NO_OPERATION = len(Collective)


@dataclass(frozen=True, slots=True)
class Said:
    """All that is said of operations.

    `texts` are in order, null after the last. Elsewhere stands the place of a text there: of each kernel
    name, each name of a call, the path of each range, and of the texts that are always there (`fixed`).
    """

    texts: pl.Series
    kernels: Rows
    calls: Rows
    ranges: Rows
    fixed: dict[str, int]

    @property
    def nothing(self) -> int:
        """The place of what is not said."""
        return len(self.texts) - 1

    def places(self, texts: Iterable[str]) -> Rows:
        """The places of texts that are always there; one more at the end for nothing."""
        return np.array([*(self.fixed[str(text)] for text in texts), self.nothing], np.int64)

    def ends(self) -> Rows:
        """The numbers of nothing, by column of `OPERATION_KEYS` without the key."""
        return np.array([*[self.nothing] * 3, _NO_AXIS, _NO_BACKEND, _NO_PRECISION], np.int64)


def said(kernels: pl.Series, calls: pl.Series, ranges: pl.Series, fixed: Sequence[str]) -> Said:
    """What is said of operations by names of kernels and calls, paths of ranges, and always."""
    parts = [kernels, calls, ranges, pl.Series(fixed, dtype=pl.String)]
    every = pl.concat([part.alias("text") for part in parts])
    texts = every.unique().sort()
    places = filled(every.cast(pl.Enum(texts))).astype(np.int64)
    ends = np.cumsum([len(part) for part in parts])
    of_kernels, of_calls, of_ranges, always = np.split(places, ends[:-1])
    return Said(
        pl.concat([texts, texts.clear(1)]),
        of_kernels,
        of_calls,
        of_ranges,
        dict(zip(fixed, always.tolist(), strict=True)),
    )


def kinds_of(
    operations: pl.DataFrame, around: Rows, told: Said, precisions: Rows, axes: pl.DataFrame
) -> tuple[Rows, Rows]:
    """The kinds of operations (a row each, by `OPERATION_KEYS` without the key), and that of each operation.

    Args:
        operations: `CLASSIFIED`, by number.
        around: the place of the path around each.
        told: what is said of them.
        precisions: places in `Precision`, by kernel name.
        axes: `AXES`.
    """
    (name, category, backend), shape = combined(
        (precisions.size + 1, len(_CATEGORIES) + 1, _NO_BACKEND + 1), *_named(operations, precisions.size)
    )
    (shapes, operation, axis), meant = combined(
        (name.size, _NO_OPERATION + 1, _NO_AXIS + 1), shape, *_on_axes(operations, axes)
    )
    paths, path = ranked(around, len(told.texts))
    (path, at), kind = combined((paths.size, shapes.size), path, meant)

    operation, axis = operation[at], axis[at]
    name, category, backend = (column[shapes[at]] for column in (name, category, backend))
    is_product = np.isin(category, [_CATEGORIES.index(part) for part in _MULTIPLYING])
    is_told = operation < _NO_OPERATION
    rows = np.stack(
        [
            paths[path],
            np.where(is_told, told.places(Collective)[operation], told.places(_CATEGORIES)[category]),
            np.append(told.kernels, told.fixed[""])[name],
            axis,
            backend,
            np.where(is_product, np.append(precisions, _NO_PRECISION)[name], _NO_PRECISION),
        ],
        axis=1,
    )
    kinds, row = distinct_rows(rows)
    return kinds, row[kind]


def _named(operations: pl.DataFrame, names: int) -> tuple[Rows, ...]:
    """Kernel name, category and backend of each operation; `names` stands for no kernel."""
    return (
        filled(operations["name"], names),
        filled(operations["category"], len(_CATEGORIES)),
        filled(operations["backend"], _NO_BACKEND),
    )


def _on_axes(operations: pl.DataFrame, axes: pl.DataFrame) -> tuple[Rows, Rows]:
    """What each operation does, and on which axis."""
    row, held = rows_of(operations["op"].to_numpy(), axes["op"].to_numpy())
    operation = np.full(len(operations), _NO_OPERATION)
    operation[row] = filled(axes["operation"], _NO_OPERATION)[held]
    axis = np.full(len(operations), _NO_AXIS)
    axis[row] = filled(axes["axis"], _NO_AXIS)[held]
    return operation, axis


def spelled(rows: Rows, told: Said) -> pl.DataFrame:
    """`OPERATION_KEYS` of kinds, numbered in their order."""
    return pl.DataFrame(
        {
            "key": np.arange(len(rows)),
            **{name: told.texts[rows[:, column]] for column, name in enumerate(("path", "category", "name"))},
            **{name: values[rows[:, column]] for column, (name, values) in enumerate(_VALUES.items(), 3)},
        },
        schema=OPERATION_KEYS,
    )

"""What identifies operations, in numbers: each kind has one, and so have its texts.

A text is numbered by its index among all texts of a capture's operations, an enumeration value by its index
in that; missing values come after all of them. Steps and kinds of several captures are numbered by the
capture and the number there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.columns import (
    Rows,
    as_integers,
    combine_codes,
    list_members,
    match_rows,
    rank_distinct,
    select_distinct_rows,
)
from wallscope.model.enums import Absent, Axis, Backend, Collective, ComputeCategory, DeviceState, Precision
from wallscope.model.profile import OPERATION_KEYS
from wallscope.model.schemas import CATEGORY as CATEGORIES

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
    paths, path = rank_distinct(around, len(known.texts))
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

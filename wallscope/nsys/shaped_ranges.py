"""FLOPs of kernels inside NVTX ranges that give the shapes of PyTorch's operators.

`torch.autograd.profiler.emit_nvtx(record_shapes=True)` and `nsys --pytorch=autograd-shapes-nvtx` add them to
the names of ranges: `aten::mm, seq = 7, op_id = 12, sizes = [[64, 96], [96, 160]], input_op_ids = [(11,0)]`.
Types and values of other arguments are not in there. So kernels alone show the precision, and FLOPs that
depend on a mask, a stride or a padding are unknown.

DLProf and PyProf name the ranges of functions by all of their arguments: `{'mod': 'torch', 'op': 'matmul',
'args': [{'name': '', 'type': 'tensor', 'shape': (32, 6), 'dtype': 'float32'}, ...]}`. Autocast converts FP32
inside such a function. Gradients are computed outside of these ranges.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from wallscope.model.enums import OperationKind
from wallscope.model.schemas import KERNEL_FLOPS
from wallscope.trace.operator_flops import (
    FLOP_FORMULAS,
    count_bytes,
    count_flops,
    count_model_flops,
    read_precision,
)
from wallscope.trace.operator_kernels import find_operator_kernels

_HAS_SIZES = ", sizes = [["
_SIZES = r"\[(?:\d{1,18}(?:, \d{1,18})*)?\]"
_SHAPED = re.compile(rf"([\w:]+)(?:, \w+ = -?\d+)*, sizes = (\[{_SIZES}(?:, {_SIZES})*\])(?:, |$)")
_IS_MARKER = "{'mod': '"
_VALUE = r"'[^'\\]*'|-?\d[\d.]*(?:e[+-]?\d+)?(?![\w.])|True|False|None|[][(){},: ]"
_MARKER = re.compile(rf"\{{'mod': '([\w.]+)', 'op': '(\w+)', 'args': (\[(?:{_VALUE})*\])\}}")
_LONGEST_MARKER = 4_096
_MODULES = frozenset(("torch", "Tensor", "torch.nn.functional"))
_TYPES = {
    "float64": "double",
    "float32": "float",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "float8_e4m3fn": "c10::Float8_e4m3fn",
    "float8_e5m2": "c10::Float8_e5m2",
    "int8": "signed char",
}
"""Names of types in a trace, by those of Python."""


class _Operator(NamedTuple):
    """An operator of PyTorch with its arguments, as a trace has them."""

    name: str
    shapes: list[Any]
    types: list[str]
    values: list[str]


class _Counted(NamedTuple):
    """What is known of an operator by its range: FLOPs that run, those of the model, precision, bytes."""

    flops: int | None = None
    model_flops: int | None = None
    precision: str | None = None
    moved_bytes: int | None = None


def count_shaped_ranges(
    ranges: pl.DataFrame,
    range_names: pl.DataFrame,
    operations: pl.DataFrame,
    calls: pl.DataFrame,
) -> pl.DataFrame | None:
    """Return the kernels of operators whose ranges give shapes (`KERNEL_FLOPS`); `None` if no range does.

    Args:
        ranges: `RANGES`.
        range_names: `NAMES` of the ranges.
        operations: `OPERATIONS`.
        calls: `CALLS` that issued them.
    """
    text = pl.col("text")
    shaped = range_names.filter(
        text.str.contains(_HAS_SIZES, literal=True) | text.str.starts_with(_IS_MARKER)
    )
    if shaped.is_empty():
        return None
    counted = [_count_operator(one) for one in shaped["text"].to_list()]
    columns = ("flops", "model_flops", "precision", "moved_bytes")
    known = shaped.select("name").with_columns(
        pl.Series(name, [getattr(one, name) for one in counted], dtype=KERNEL_FLOPS[name]) for name in columns
    )
    operators = ranges.filter(~pl.col("crosses")).join(known, on="name", maintain_order="left")
    kernels = operations.filter((pl.col("kind") == OperationKind.KERNEL) & (pl.col("call") >= 0))
    issued = kernels.select("op").hstack(
        calls[kernels["call"].to_numpy()].select("thread", called_ns="start_ns")
    )
    return find_operator_kernels(
        issued.sort("called_ns", maintain_order=True), operators.with_columns(until_ns="end_ns")
    )


def _count_operator(text: str) -> _Counted:
    """Return what is known of an operator by the name of its range.

    >>> _count_operator("aten::mm, seq = 7, op_id = 12, sizes = [[2, 3], [3, 5]], input_op_ids = [(1,0)]")
    _Counted(flops=60, model_flops=60, precision=None, moved_bytes=None)
    >>> _count_operator("aten::mm, sizes = [[2, 3], [4, 5]]") == _count_operator("aten::mm, sizes = [[2, 3")
    True
    """
    one = _read_marker(text) if text.startswith(_IS_MARKER) else _read_sizes(text)
    if one is None or one.name not in FLOP_FORMULAS:
        return _Counted()
    flops = count_flops(one.name, one.shapes, one.types, one.values)
    if flops is None:
        return _Counted()
    return _Counted(
        flops,
        count_model_flops(one.name, one.shapes, one.types, one.values),
        read_precision(one.name, one.types),
        None if "float" in one.types else count_bytes(one.name, one.shapes, one.types),
    )


def _read_sizes(text: str) -> _Operator | None:
    """Return the operator of a range that gives sizes alone; `None` if the text has another form."""
    found = _SHAPED.match(text)
    return None if found is None else _Operator(found[1], json.loads(found[2]), [], [])


def _read_marker(text: str) -> _Operator | None:
    """Return the operator of a function with its arguments; `None` if it does not multiply, or is not known.

    >>> tensor = "{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float16'}"
    >>> _read_marker("{'mod': 'torch.nn.functional', 'op': 'linear', 'args': [%s, %s]}" % (tensor, tensor))
    _Operator(name='aten::mm', shapes=[[2, 3], [3, 2]], types=['c10::Half', 'c10::Half'], values=[])
    """
    found = _MARKER.fullmatch(text) if len(text) <= _LONGEST_MARKER else None
    if found is None or found[1] not in _MODULES or found[2] not in _MARKED:
        return None
    try:
        arguments = ast.literal_eval(found[3])
        tensors = [one for one in arguments if one["type"] == "tensor" and one["name"] != "out"]
        shapes = [[int(size) for size in one["shape"]] for one in tensors]
        types = [_TYPES.get(one["dtype"], str(one["dtype"])) for one in tensors]
        return _MARKED[found[2]](shapes, types, arguments)
    except (ValueError, SyntaxError, TypeError, LookupError):
        return None


_Shapes = list[list[int]]
_Arguments = Sequence[Mapping[str, Any]]


def _take_last(shapes: _Shapes, types: list[str], _: _Arguments, *, name: str, first: int = 0) -> _Operator:
    """Two matrices, behind what is added to their product."""
    return _Operator(f"aten::{name}", [[]] * first + shapes[-2:], [types[-1]] * first + types[-2:], [])


def _multiply(shapes: _Shapes, types: list[str], _: _Arguments) -> _Operator:
    """Vectors, matrices or batches of them, of which those of one side may count for all of the other."""
    first, second = shapes
    if len(second) == 1:
        second = [*second, 1]
    if len(second) == 2:
        return _Operator("aten::mm", [[prod(first[:-1]), first[-1]], second], types, [])
    rows = first[-2] if len(first) > 1 else 1
    batch = prod(np.broadcast_shapes(tuple(first[:-2]), tuple(second[:-2])))
    return _Operator("aten::bmm", [[batch, rows, first[-1]], [batch, *second[-2:]]], types, [])


def _apply_linear(shapes: _Shapes, types: list[str], _: _Arguments) -> _Operator:
    """An input, and a weight (outputs, inputs)."""
    data, (outputs, inputs) = shapes[:2]
    return _Operator("aten::mm", [[prod(data[:-1]), data[-1]], [inputs, outputs]], types[:2], [])


def _convolve(
    shapes: _Shapes, types: list[str], arguments: _Arguments, *, order: tuple[str, ...], is_transposed: bool
) -> _Operator:
    """Input, weight, bias, and further values in an order, or by name."""
    usual = {"stride": 1, "padding": 0, "dilation": 1}
    given = dict(zip(order, [one for one in arguments if not one["name"]][3:], strict=False))
    given |= {one["name"]: one for one in arguments if one["name"] in usual}
    values = {name: given[name]["value"] if name in given else value for name, value in usual.items()}
    spelled = [str(value).strip("()").rstrip(",") for value in values.values()]
    return _Operator(
        "aten::convolution", [*shapes[:2], []], types[:2], ["", "", "", *spelled, str(is_transposed)]
    )


_MARKED: dict[str, Callable[[_Shapes, list[str], _Arguments], _Operator]] = {
    **{name: partial(_take_last, name=name) for name in ("mm", "bmm", "mv")},
    **{
        f"{name}{ending}": partial(_take_last, name=name, first=1)
        for name in ("addmm", "baddbmm", "addmv")
        for ending in ("", "_")
    },
    **dict.fromkeys(("matmul", "__matmul__"), _multiply),
    "linear": _apply_linear,
    **{
        f"conv{size}d": partial(_convolve, order=("stride", "padding", "dilation"), is_transposed=False)
        for size in (1, 2, 3)
    },
    **{
        f"conv_transpose{size}d": partial(
            _convolve, order=("stride", "padding", "", "", "dilation"), is_transposed=True
        )
        for size in (1, 2, 3)
    },
}
"""By function, how its arguments become those of an operator."""

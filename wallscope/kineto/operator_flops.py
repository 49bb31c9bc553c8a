"""Floating-point operations of multiplying operators, by their shapes in a trace.

A multiplication and an addition count as one each, as in `torch.utils.flop_counter`; additions of a bias are
left out. Attention is in `attention_flops`. FLOPs are unknown if arguments are missing, numbers are complex,
or other libraries have an operator that is not listed. Grouped multiplications count all rows of their input,
also padding between groups.

Operators of Transformer Engine record their arguments in an order that differs between versions: the weight
is the matrix that fits the input. Their backward operators record only gradients (`BACKWARD_OF`).
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

from wallscope.kineto.attention_flops import ATTENTION_FORMULAS
from wallscope.kineto.recorded_arguments import Sizes, read_flag, read_sizes, require_equal

_MOST = 2**62

Formula = Callable[[list[Any], list[Any]], int]
"""The FLOPs by shapes and values of all arguments; a missing argument raises one of `_LACKING`."""
_LACKING = (LookupError, TypeError, ValueError)


def count_flops(name: str, shapes: Any, types: Any, values: Any) -> int | None:
    """Return the FLOPs of one run of an operator; `None` if its arguments are not sufficient.

    Args:
        name: of the operator, a key of `FLOP_FORMULAS`.
        shapes: "Input Dims", a list of sizes for each argument.
        types: "Input type".
        values: "Concrete Inputs", texts, empty for tensors.

    >>> count_flops("aten::addmm", [[5], [2, 3], [3, 5], [], []], ["float"] * 3, None)
    60
    >>> count_flops("aten::mm", [[2, 3], [4, 5]], ["float"] * 2, None)
    >>> count_flops("aten::mm", [[2, 3], [3, 5]], -1, None)
    60
    """
    if "complex" in str(types).lower():
        return None
    try:
        found = FLOP_FORMULAS[name](shapes, values)
    except _LACKING:
        return None
    return found if found <= _MOST else None


def _multiply(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two matrices."""
    (rows, inner), (other_inner, columns) = (read_sizes(shapes, place, 2) for place in (first, first + 1))
    require_equal(inner, other_inner)
    return 2 * rows * inner * columns


def _multiply_batch(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two batches of matrices."""
    batch, rows, inner = read_sizes(shapes, first, 3)
    *others, columns = read_sizes(shapes, first + 1, 3)
    require_equal([batch, inner], others)
    return 2 * batch * rows * inner * columns


def _multiply_vector(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """A matrix and a vector."""
    rows, inner = read_sizes(shapes, first, 2)
    require_equal([inner], read_sizes(shapes, first + 1, 1))
    return 2 * rows * inner


def _multiply_groups(shapes: list[Any], _: list[Any]) -> int:
    """Matrices of groups: batches of both, or matrices of all groups side by side on one side or both."""
    first, second = read_sizes(shapes, 0), read_sizes(shapes, 1)
    if not {len(first), len(second)} <= {2, 3}:
        raise ValueError(first, second)
    require_equal(first[-1], second[-2])
    groups = first[0] if len(first) == len(second) == 3 else 1
    if groups != 1:
        require_equal(groups, second[0])
    return 2 * groups * first[-2] * first[-1] * second[-1]


def _multiply_stored(shapes: list[Any], values: list[Any]) -> int:
    """Transformer Engine 1.x: matrices at 0 and 5 as cuBLAS takes them, and whether each is transposed."""
    columns, inner = _lay_out(read_sizes(shapes, 0, 2), is_transposed=read_flag(values, 4))
    other_inner, rows = _lay_out(read_sizes(shapes, 5, 2), is_transposed=read_flag(values, 9))
    require_equal(inner, other_inner)
    return 2 * rows * inner * columns


def _lay_out(sizes: Sizes, *, is_transposed: bool) -> Sizes:
    return sizes if is_transposed else sizes[::-1]


def _apply_linear(shapes: list[Any], _: list[Any]) -> int:
    """A weight (outputs, inputs) and an input of any dimensions, or the other way round."""
    weight, data = read_sizes(shapes, 0, 2), read_sizes(shapes, 1)
    require_equal(weight[1], data[-1])
    return 2 * prod(data) * weight[0]


def _apply_first_weight(shapes: list[Any], _: list[Any]) -> int:
    """An input, and further on the weight that fits it, or one of equal weights of groups."""
    data = read_sizes(shapes, 0)
    return 2 * prod(data) * _find_weight(shapes, data[-1], 1)[0]


def _apply_two_weights(shapes: list[Any], _: list[Any]) -> int:
    """An input, and further on the weight that fits it, and one that leads back to the size of the input."""
    data = read_sizes(shapes, 0)
    first = _find_weight(shapes, data[-1], 1)
    second = _find_weight(shapes[shapes.index(first) + 1 :], data[-1], 0)
    return 2 * (prod(data) // data[-1]) * (prod(first) + prod(second))


def _find_weight(shapes: list[Any], size: int, side: int) -> Sizes:
    """Return the first matrix after the first shape that has this size on a side.

    Raises:
        ValueError: there is none.
    """
    for sizes in shapes[1:]:
        if isinstance(sizes, list) and len(sizes) == 2 and sizes[side] == size:
            return read_sizes([sizes], 0, 2)
    raise ValueError(shapes)


def _convolve(shapes: list[Any], values: list[Any]) -> int:
    """Input, weight, bias, stride, padding, dilation, whether transposed, ...

    The whole filter is applied to every output, or, if transposed, to every input.
    """
    data, weight = read_sizes(shapes, 0), read_sizes(shapes, 1, len(shapes[0]))
    if read_flag(values, 6):
        return 2 * data[0] * prod(data[2:]) * prod(weight)
    stride, padding, dilation = (
        _spread(values[place], len(data) - 2, least) for place, least in ((3, 1), (4, 0), (5, 1))
    )
    outputs = [
        max((size + 2 * pad - gap * (kernel - 1) - 1) // step + 1, 0)
        for size, kernel, step, pad, gap in zip(data[2:], weight[2:], stride, padding, dilation, strict=True)
    ]
    return 2 * data[0] * prod(outputs) * prod(weight)


def _convolve_backward(shapes: list[Any], values: list[Any]) -> int:
    """Gradient, input, weight, sizes of the bias, stride, padding, dilation, whether transposed, ..., mask.

    The gradients of input and weight, as far as the mask requests them, each take as much as the forward
    pass.
    """
    data, weight = read_sizes(shapes, 1), read_sizes(shapes, 2, len(shapes[1]))
    many = data if read_flag(values, 7) else read_sizes(shapes, 0, len(data))
    asked = [one.strip() for one in str(values[10]).strip("[]").split(",")]
    wanted = sum(read_flag(asked, place) for place in (0, 1))
    return wanted * 2 * many[0] * prod(many[2:]) * prod(weight)


def _spread(spelled: Any, count: int, least: int) -> Sizes:
    """Return a list of whole numbers from its spelling; a single number counts for all dimensions.

    Raises:
        ValueError: it is not a list, or has a number below the least.
    """
    found = [int(one) for one in str(spelled).strip("[]").split(",")]
    if min(found) < least:
        raise ValueError(spelled)
    return found * count if len(found) == 1 else found


FLOP_FORMULAS: dict[str, Formula] = {
    "aten::mm": _multiply,
    "aten::_int_mm": _multiply,
    "aten::_scaled_mm": _multiply,
    "aten::_scaled_mm_v2": _multiply,
    "aten::addmm": partial(_multiply, first=1),
    "aten::addmm_": partial(_multiply, first=1),
    "aten::_addmm_activation": partial(_multiply, first=1),
    "aten::bmm": _multiply_batch,
    "aten::baddbmm": partial(_multiply_batch, first=1),
    "aten::baddbmm_": partial(_multiply_batch, first=1),
    "aten::mv": _multiply_vector,
    "aten::addmv": partial(_multiply_vector, first=1),
    "aten::addmv_": partial(_multiply_vector, first=1),
    "aten::_grouped_mm": _multiply_groups,
    "aten::_scaled_grouped_mm": _multiply_groups,
    "aten::_scaled_grouped_mm_v2": _multiply_groups,
    "aten::convolution": _convolve,
    "aten::convolution_backward": _convolve_backward,
    "tex_ts::te_gemm_ts": _multiply_stored,
    "_Linear": _apply_linear,
    "_LayerNormLinear": _apply_first_weight,
    "_GroupedLinear": _apply_first_weight,
    "_LayerNormMLP": _apply_two_weights,
    **ATTENTION_FORMULAS,
}
"""By operator; positions of arguments are those of its schema."""

BACKWARD_OF = {
    f"{name}Backward": name for name in ("_Linear", "_LayerNormLinear", "_GroupedLinear", "_LayerNormMLP")
}
"""Backward operators without shapes of their own, by the operator with the same sequence number."""

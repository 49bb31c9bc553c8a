"""Floating-point operations of PyTorch's multiplying operators, by their shapes in a trace.

A multiplication and an addition count as one each, as in `torch.utils.flop_counter`; additions of a bias are
left out. Attention with a causal mask counts only the unmasked pairs, and its backward pass computes the
scores again. FLOPs are unknown if arguments are missing, numbers are complex, or operators belong to other
libraries.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

_MOST = 2**62

Sizes = list[int]
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
    """
    if any("complex" in str(one).lower() for one in types or ()):
        return None
    try:
        found = FLOP_FORMULAS[name](shapes, values)
    except _LACKING:
        return None
    return found if found <= _MOST else None


def _sizes(shapes: list[Any], place: int, dimensions: int | None = None) -> Sizes:
    """Return the sizes of a tensor.

    Raises:
        ValueError: it is not a tensor, or has another number of dimensions.
    """
    sizes = shapes[place]
    is_tensor = isinstance(sizes, list) and sizes and all(type(one) is int and one >= 0 for one in sizes)
    if not is_tensor or (dimensions is not None and len(sizes) != dimensions):
        raise ValueError(sizes)
    return list(sizes)


def _flag(values: list[Any], place: int) -> bool:
    return {"True": True, "False": False}[values[place]]


def _alike(one: object, other: object) -> None:
    if one != other:
        raise ValueError(one, other)


def _multiply(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two matrices."""
    (rows, inner), (other_inner, columns) = (_sizes(shapes, place, 2) for place in (first, first + 1))
    _alike(inner, other_inner)
    return 2 * rows * inner * columns


def _multiply_batch(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two batches of matrices."""
    batch, rows, inner = _sizes(shapes, first, 3)
    *others, columns = _sizes(shapes, first + 1, 3)
    _alike([batch, inner], others)
    return 2 * batch * rows * inner * columns


def _multiply_vector(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """A matrix and a vector."""
    rows, inner = _sizes(shapes, first, 2)
    _alike([inner], _sizes(shapes, first + 1, 1))
    return 2 * rows * inner


def _convolve(shapes: list[Any], values: list[Any]) -> int:
    """Input, weight, bias, stride, padding, dilation, whether transposed, ...

    The whole filter is applied to every output, or, if transposed, to every input.
    """
    data, weight = _sizes(shapes, 0), _sizes(shapes, 1, len(shapes[0]))
    if _flag(values, 6):
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
    data, weight = _sizes(shapes, 1), _sizes(shapes, 2, len(shapes[1]))
    many = data if _flag(values, 7) else _sizes(shapes, 0, len(data))
    asked = [one.strip() for one in str(values[10]).strip("[]").split(",")]
    wanted = sum(_flag(asked, place) for place in (0, 1))
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


def _attend(
    shapes: list[Any], values: list[Any], *, first: int, causal: int, products: tuple[int, int]
) -> int:
    """Query, key and value by batch, heads, length and size; and how often key and value sizes multiply.

    Keys may have fewer heads than queries.
    """
    batch, heads, queries, size = _sizes(shapes, first, 4)
    key_batch, _, keys, key_size = _sizes(shapes, first + 1, 4)
    value_size = _sizes(shapes, first + 2, 4)[3]
    _alike((batch, size), (key_batch, key_size))
    pairs = queries * keys
    if _flag(values, causal):  # query number i sees the keys 0 to i
        whole = min(queries, keys)
        pairs = whole * (whole + 1) // 2 + (queries - whole) * keys
    return 2 * batch * heads * pairs * (products[0] * size + products[1] * value_size)


_FORWARD, _BACKWARD = (1, 1), (3, 2)
FLOP_FORMULAS: dict[str, Formula] = {
    "aten::mm": _multiply,
    "aten::_int_mm": _multiply,
    "aten::_scaled_mm": _multiply,
    "aten::addmm": partial(_multiply, first=1),
    "aten::addmm_": partial(_multiply, first=1),
    "aten::_addmm_activation": partial(_multiply, first=1),
    "aten::bmm": _multiply_batch,
    "aten::baddbmm": partial(_multiply_batch, first=1),
    "aten::baddbmm_": partial(_multiply_batch, first=1),
    "aten::mv": _multiply_vector,
    "aten::addmv": partial(_multiply_vector, first=1),
    "aten::addmv_": partial(_multiply_vector, first=1),
    "aten::convolution": _convolve,
    "aten::convolution_backward": _convolve_backward,
    **{
        f"aten::_scaled_dot_product_{kind}{way}": partial(
            _attend, first=first, causal=causal, products=products
        )
        for kind, way, first, causal, products in (
            ("flash_attention", "", 0, 4, _FORWARD),
            ("efficient_attention", "", 0, 6, _FORWARD),
            ("cudnn_attention", "", 0, 6, _FORWARD),
            ("flash_attention", "_backward", 1, 11, _BACKWARD),
            ("efficient_attention", "_backward", 1, 11, _BACKWARD),
            ("cudnn_attention", "_backward", 1, 14, _BACKWARD),
        )
    },
}
"""By operator; positions of arguments are those of `native_functions.yaml`."""

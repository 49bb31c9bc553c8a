"""Floating-point operations of multiplying operators, by the arguments that a trace records of them.

A multiplication and an addition count as one each, as in `torch.utils.flop_counter`; additions of a bias
are left out. FLOPs are unknown if arguments are missing, numbers are complex, or other libraries have an
operator that is not listed. Grouped multiplications count all rows of their input, also padding between
groups.

Operators of Transformer Engine record their arguments in an order that differs between versions: the weight
is the matrix that fits the input. Their backward operators record only gradients (`BACKWARD_OF`).

**Fused attention.** Only pairs that mask and window leave count. The backward pass multiplies five times,
because it computes the scores again. PyTorch's causal mask begins at the first key, that of the flash-attn
library ends at the last one. Sequences of different lengths in one tensor are unknown, because a trace does
not record values of tensors.

FLOPs are those of the kernels that run. A model needs fewer: the backward pass of fused attention needs four
products, because the scores are known from the forward pass (`count_model_flops`).
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from wallscope.model.enums import Precision

_Sizes = list[int]
_MOST_FLOPS = 2**62

Formula = Callable[[list[Any], list[Any]], int]
"""The FLOPs by shapes and values of all arguments; a missing argument raises one of `_LACKING`."""
_OF_BATCHES = frozenset(("aten::bmm", "aten::baddbmm", "aten::baddbmm_"))
_LACKING = (LookupError, TypeError, ValueError)
_LONGEST_SEQUENCE = 1 << 24
_FORWARD, _BACKWARD, _GRADIENTS = (1, 1), (3, 2), (2, 2)
"""How often the sizes of key and value multiply; of the gradients alone, without the scores again."""
_PRECISIONS = {
    "double": Precision.FP64,
    "float": Precision.FP32,
    "c10::Half": Precision.FP16,
    "c10::BFloat16": Precision.BF16,
    **dict.fromkeys(("c10::Float8_e4m3fn", "c10::Float8_e5m2"), Precision.FP8),
    "c10::Float4_e2m1fn_x2": Precision.NVFP4,
    "signed char": Precision.INT8,
}
"""By the name of a type in a trace."""
_TYPE_BYTES = {"double": 8, "float": 4, "c10::Half": 2, "c10::BFloat16": 2}
_MATRICES = {
    **dict.fromkeys(("aten::mm", "aten::bmm"), 0),
    **dict.fromkeys(("aten::addmm", "aten::addmm_", "aten::_addmm_activation"), 1),
    **dict.fromkeys(("aten::baddbmm", "aten::baddbmm_"), 1),
}
"""By operator, the position of the first of two matrices."""
_TYPED = ("aten::", "flash_attn::")
"""Libraries whose operators multiply in the type of their arguments; others may convert it inside."""


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
    return found if found <= _MOST_FLOPS else None


def count_model_flops(name: str, shapes: Any, types: Any, values: Any) -> int | None:
    """Return the FLOPs that a model needs of one run of an operator; `None` if they are unknown.

    They are at most those that run (`count_flops`, with the same arguments). Of batches of matrices they are
    unknown: these may be attention that is not fused, and a trace does not show which pairs a mask leaves.

    >>> count_model_flops("aten::bmm", [[2, 3, 4], [2, 4, 5]], [], [])
    >>> shapes = [[1, 2, 8, 4]] * 6 + [[]] * 6
    >>> values = [""] * 11 + ["False"]
    >>> backward = "aten::_scaled_dot_product_flash_attention_backward"
    >>> count_flops(backward, shapes, [], values), count_model_flops(backward, shapes, [], values)
    (5120, 4096)
    """
    executed = None if name in _OF_BATCHES else count_flops(name, shapes, types, values)
    formula = _MODEL_FORMULAS.get(name)
    return executed if executed is None or formula is None else formula(shapes, values)


def count_bytes(name: str, shapes: Any, types: Any) -> int | None:
    """Return the bytes that one run of a multiplication reads and writes at least; `None` if unknown.

    Both matrices and the result count once, in the type of the first; a bias is left out.

    >>> count_bytes("aten::mm", [[2, 3], [3, 5]], ["float", "float"])
    124
    >>> count_bytes("aten::convolution", [[1, 1, 4, 4]], ["float"])
    """
    first = _MATRICES.get(name)
    size = None if not isinstance(types, list) or not types else _TYPE_BYTES.get(str(types[0]))
    if first is None or size is None:
        return None
    try:
        one, other = (_read_sizes(shapes, position) for position in (first, first + 1))
        found = (prod(one) + prod(other) + prod(one[:-1]) * other[-1]) * size
    except _LACKING:
        return None
    return found if found <= _MOST_FLOPS else None


def read_precision(name: str, types: Any) -> Precision | None:
    """Return the precision of the arguments of an operator, `None` if its types do not show it.

    FP32 is the type of the arguments: whether a kernel multiplies it as TF32 is not in the types.

    >>> read_precision("aten::mm", ["c10::BFloat16", "c10::BFloat16"]), read_precision("_Linear", ["float"])
    (<Precision.BF16: 'bf16'>, None)
    """
    if not name.startswith(_TYPED) or not isinstance(types, list) or not types:
        return None
    return _PRECISIONS.get(str(types[0]))


def _read_sizes(shapes: list[Any], position: int, dimensions: int | None = None) -> _Sizes:
    """Return the sizes of a tensor.

    Raises:
        ValueError: it is not a tensor, or has another number of dimensions.
    """
    sizes = shapes[position]
    is_tensor = isinstance(sizes, list) and sizes and all(type(one) is int and one >= 0 for one in sizes)
    if not is_tensor or (dimensions is not None and len(sizes) != dimensions):
        raise ValueError(sizes)
    return list(sizes)


def _read_flag(values: list[Any], position: int) -> bool:
    """Return a truth value.

    Raises:
        LookupError: it is missing, or not a truth value.
    """
    return {"True": True, "False": False}[values[position]]


def _require_equal(one: object, other: object) -> None:
    """Refuse sizes that do not fit each other.

    Raises:
        ValueError: they differ.
    """
    if one != other:
        raise ValueError(one, other)


def _count_pairs(queries: int, keys: int, offset: int, left: int, right: int) -> int:
    """Return the pairs of a query and a key: query `i` sees keys from `i + offset - left` to `... + right`.

    A negative side has no limit.

    >>> _count_pairs(3, 3, 0, -1, 0), _count_pairs(2, 4, 2, -1, 0), _count_pairs(4, 4, 0, 1, 0)
    (6, 7, 7)
    """
    if max(queries, keys) > _LONGEST_SEQUENCE:
        raise ValueError(queries, keys)
    position = np.arange(queries, dtype=np.int64) + offset
    first = np.maximum(position - left, 0) if left >= 0 else 0
    last = np.minimum(position + right, keys - 1) if right >= 0 else keys - 1
    return int(np.broadcast_to(np.maximum(last - first + 1, 0), queries).sum())


def _attend_by_head(
    shapes: list[Any], values: list[Any], *, first: int, causal: int, products: tuple[int, int]
) -> int:
    """Query, key and value by batch, heads, length and size, as PyTorch orders them."""
    batch, heads, queries, size = _read_sizes(shapes, first, 4)
    key_batch, _, keys, key_size = _read_sizes(shapes, first + 1, 4)
    value_size = _read_sizes(shapes, first + 2, 4)[3]
    _require_equal((batch, size), (key_batch, key_size))
    pairs = _count_pairs(queries, keys, 0, -1, 0) if _read_flag(values, causal) else queries * keys
    return 2 * batch * heads * pairs * (products[0] * size + products[1] * value_size)


def _attend_by_token(  # noqa: PLR0913  # the positions of arguments
    shapes: list[Any],
    values: list[Any],
    *,
    first: int,
    causal: int,
    window: int,
    products: tuple[int, int],
    lengths: int | None = None,
) -> int:
    """Query, key and value by batch, length, heads and size, as the flash-attn library orders them.

    With `lengths`, the position of the cumulative lengths of sequences, tensors have no batch.
    """
    if lengths is not None and (lengths >= len(shapes) or shapes[lengths] != []):
        _require_equal((shapes[lengths], shapes[lengths + 1]), ([2], [2]))  # a single sequence
        shapes = [[1, *one] if first <= position < first + 3 else one for position, one in enumerate(shapes)]
    batch, queries, heads, size = _read_sizes(shapes, first, 4)
    key_batch, keys, _, key_size = _read_sizes(shapes, first + 1, 4)
    value_size = _read_sizes(shapes, first + 2, 4)[3]
    _require_equal((batch, size), (key_batch, key_size))
    left, right = (int(values[window + side] or -1) for side in (0, 1))
    if _read_flag(values, causal):
        right = 0
    pairs = _count_pairs(queries, keys, keys - queries, left, right)
    return 2 * batch * heads * pairs * (products[0] * size + products[1] * value_size)


def _list_attention(backward: tuple[int, int]) -> dict[str, Formula]:
    """Return the formulas of fused attention, with how often sizes multiply in the backward pass."""
    by_head = (
        ("flash_attention", "", 0, 4, _FORWARD),
        ("efficient_attention", "", 0, 6, _FORWARD),
        ("cudnn_attention", "", 0, 6, _FORWARD),
        ("flash_attention", "_backward", 1, 11, backward),
        ("efficient_attention", "_backward", 1, 11, backward),
        ("cudnn_attention", "_backward", 1, 14, backward),
    )
    by_token = (
        ("flash_attn::_flash_attn_forward", 0, 5, 6, _FORWARD, None),
        ("flash_attn::_flash_attn_varlen_forward", 0, 9, 10, _FORWARD, 3),
        ("flash_attn::_flash_attn_backward", 1, 11, 12, backward, None),
        ("flash_attn::_flash_attn_varlen_backward", 1, 15, 16, backward, 9),
        ("aten::_flash_attention_forward", 0, 8, 11, _FORWARD, 3),
        ("aten::_flash_attention_backward", 1, 11, 15, backward, 6),
    )
    found: dict[str, Formula] = {
        f"aten::_scaled_dot_product_{kind}{way}": partial(
            _attend_by_head, first=first, causal=causal, products=products
        )
        for kind, way, first, causal, products in by_head
    }
    found |= {
        name: partial(
            _attend_by_token, first=first, causal=causal, window=window, products=products, lengths=lengths
        )
        for name, first, causal, window, products, lengths in by_token
    }
    return found


_ATTENTION_FORMULAS = _list_attention(_BACKWARD)
"""By operator: positions of query, causal flag, left side of the window, and lengths. PyTorch 2.5 and
flash-attn 2.7 are the first that record them."""


def _multiply(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two matrices."""
    (rows, inner), (other_inner, columns) = (
        _read_sizes(shapes, position, 2) for position in (first, first + 1)
    )
    _require_equal(inner, other_inner)
    return 2 * rows * inner * columns


def _multiply_batch(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """Two batches of matrices."""
    batch, rows, inner = _read_sizes(shapes, first, 3)
    *others, columns = _read_sizes(shapes, first + 1, 3)
    _require_equal([batch, inner], others)
    return 2 * batch * rows * inner * columns


def _multiply_vector(shapes: list[Any], _: list[Any], first: int = 0) -> int:
    """A matrix and a vector."""
    rows, inner = _read_sizes(shapes, first, 2)
    _require_equal([inner], _read_sizes(shapes, first + 1, 1))
    return 2 * rows * inner


def _multiply_groups(shapes: list[Any], _: list[Any]) -> int:
    """Matrices of groups: batches of both, or matrices of all groups side by side on one side or both."""
    first, second = _read_sizes(shapes, 0), _read_sizes(shapes, 1)
    if not {len(first), len(second)} <= {2, 3}:
        raise ValueError(first, second)
    _require_equal(first[-1], second[-2])
    groups = first[0] if len(first) == len(second) == 3 else 1
    if groups != 1:
        _require_equal(groups, second[0])
    return 2 * groups * first[-2] * first[-1] * second[-1]


def _multiply_stored(shapes: list[Any], values: list[Any]) -> int:
    """Transformer Engine 1.x: matrices at 0 and 5 as cuBLAS takes them, and whether each is transposed."""
    columns, inner = _lay_out(_read_sizes(shapes, 0, 2), is_transposed=_read_flag(values, 4))
    other_inner, rows = _lay_out(_read_sizes(shapes, 5, 2), is_transposed=_read_flag(values, 9))
    _require_equal(inner, other_inner)
    return 2 * rows * inner * columns


def _lay_out(sizes: _Sizes, *, is_transposed: bool) -> _Sizes:
    return sizes if is_transposed else sizes[::-1]


def _apply_linear(shapes: list[Any], _: list[Any]) -> int:
    """A weight (outputs, inputs) and an input of any dimensions, or the other way round."""
    weight, data = _read_sizes(shapes, 0, 2), _read_sizes(shapes, 1)
    _require_equal(weight[1], data[-1])
    return 2 * prod(data) * weight[0]


def _apply_first_weight(shapes: list[Any], _: list[Any]) -> int:
    """An input, and further on the weight that fits it, or one of equal weights of groups."""
    data = _read_sizes(shapes, 0)
    return 2 * prod(data) * _find_weight(shapes, data[-1], 1)[0]


def _apply_two_weights(shapes: list[Any], _: list[Any]) -> int:
    """An input, and further on the weight that fits it, and one that leads back to the size of the input."""
    data = _read_sizes(shapes, 0)
    first = _find_weight(shapes, data[-1], 1)
    second = _find_weight(shapes[shapes.index(first) + 1 :], data[-1], 0)
    return 2 * (prod(data) // data[-1]) * (prod(first) + prod(second))


def _find_weight(shapes: list[Any], size: int, side: int) -> _Sizes:
    """Return the first matrix after the first shape that has this size on a side.

    Raises:
        ValueError: there is none.
    """
    for sizes in shapes[1:]:
        if isinstance(sizes, list) and len(sizes) == 2 and sizes[side] == size:
            return _read_sizes([sizes], 0, 2)
    raise ValueError(shapes)


def _convolve(shapes: list[Any], values: list[Any]) -> int:
    """Input, weight, bias, stride, padding, dilation, whether transposed, ...

    The whole filter is applied to every output, or, if transposed, to every input.
    """
    data, weight = _read_sizes(shapes, 0), _read_sizes(shapes, 1, len(shapes[0]))
    if _read_flag(values, 6):
        return 2 * data[0] * prod(data[2:]) * prod(weight)
    stride, padding, dilation = (
        _parse_sizes(values[position], len(data) - 2, least) for position, least in ((3, 1), (4, 0), (5, 1))
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
    data, weight = _read_sizes(shapes, 1), _read_sizes(shapes, 2, len(shapes[1]))
    many = data if _read_flag(values, 7) else _read_sizes(shapes, 0, len(data))
    mask = [one.strip() for one in str(values[10]).strip("[]").split(",")]
    wanted = sum(_read_flag(mask, position) for position in (0, 1))
    return wanted * 2 * many[0] * prod(many[2:]) * prod(weight)


def _parse_sizes(spelled: Any, count: int, least: int) -> _Sizes:
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
    **_ATTENTION_FORMULAS,
}
"""By operator; positions of arguments are those of its schema."""

_MODEL_FORMULAS = {
    name: formula for name, formula in _list_attention(_GRADIENTS).items() if name.endswith("_backward")
}

BACKWARD_OF = {
    f"{name}Backward": name for name in ("_Linear", "_LayerNormLinear", "_GroupedLinear", "_LayerNormMLP")
}
"""Backward operators without shapes of their own, by the operator with the same sequence number."""

"""Floating-point operations of fused attention, by shapes: only pairs that mask and window leave count.

The backward pass multiplies five times, because it computes the scores again. PyTorch's causal mask begins at
the first key, that of the flash-attn library ends at the last one. Sequences of different lengths in one
tensor are unknown, because a trace does not record values of tensors.
"""

from functools import partial
from typing import Any

import numpy as np

from wallscope.kineto.recorded_arguments import read_flag, read_sizes, require_equal

_LONGEST = 1 << 24
_FORWARD, _BACKWARD = (1, 1), (3, 2)
"""How often the sizes of key and value multiply."""


def count_pairs(queries: int, keys: int, offset: int, left: int, right: int) -> int:
    """Return the pairs of a query and a key: query `i` sees keys from `i + offset - left` to `... + right`.

    A negative side has no limit.

    >>> count_pairs(3, 3, 0, -1, 0), count_pairs(2, 4, 2, -1, 0), count_pairs(4, 4, 0, 1, 0)
    (6, 7, 7)
    """
    if max(queries, keys) > _LONGEST:
        raise ValueError(queries, keys)
    place = np.arange(queries, dtype=np.int64) + offset
    first = np.maximum(place - left, 0) if left >= 0 else 0
    last = np.minimum(place + right, keys - 1) if right >= 0 else keys - 1
    return int(np.broadcast_to(np.maximum(last - first + 1, 0), queries).sum())


def _attend_by_head(
    shapes: list[Any], values: list[Any], *, first: int, causal: int, products: tuple[int, int]
) -> int:
    """Query, key and value by batch, heads, length and size, as PyTorch orders them."""
    batch, heads, queries, size = read_sizes(shapes, first, 4)
    key_batch, _, keys, key_size = read_sizes(shapes, first + 1, 4)
    value_size = read_sizes(shapes, first + 2, 4)[3]
    require_equal((batch, size), (key_batch, key_size))
    pairs = count_pairs(queries, keys, 0, -1, 0) if read_flag(values, causal) else queries * keys
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

    With `lengths`, the place of the cumulative lengths of sequences, tensors have no batch.
    """
    if lengths is not None and (lengths >= len(shapes) or shapes[lengths] != []):
        require_equal((shapes[lengths], shapes[lengths + 1]), ([2], [2]))  # a single sequence
        shapes = [[1, *one] if first <= place < first + 3 else one for place, one in enumerate(shapes)]
    batch, queries, heads, size = read_sizes(shapes, first, 4)
    key_batch, keys, _, key_size = read_sizes(shapes, first + 1, 4)
    value_size = read_sizes(shapes, first + 2, 4)[3]
    require_equal((batch, size), (key_batch, key_size))
    left, right = (int(values[window + side] or -1) for side in (0, 1))
    if read_flag(values, causal):
        right = 0
    pairs = count_pairs(queries, keys, keys - queries, left, right)
    return 2 * batch * heads * pairs * (products[0] * size + products[1] * value_size)


ATTENTION_FORMULAS = {
    **{
        f"aten::_scaled_dot_product_{kind}{way}": partial(
            _attend_by_head, first=first, causal=causal, products=products
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
    **{
        name: partial(
            _attend_by_token, first=first, causal=causal, window=window, products=products, lengths=lengths
        )
        for name, first, causal, window, products, lengths in (
            ("flash_attn::_flash_attn_forward", 0, 5, 6, _FORWARD, None),
            ("flash_attn::_flash_attn_varlen_forward", 0, 9, 10, _FORWARD, 3),
            ("flash_attn::_flash_attn_backward", 1, 11, 12, _BACKWARD, None),
            ("flash_attn::_flash_attn_varlen_backward", 1, 15, 16, _BACKWARD, 9),
            ("aten::_flash_attention_forward", 0, 8, 11, _FORWARD, 3),
            ("aten::_flash_attention_backward", 1, 11, 15, _BACKWARD, 6),
        )
    },
}
"""By operator: places of query, causal flag, left side of the window, and lengths. PyTorch 2.5 and flash-attn
2.7 are the first that record them."""

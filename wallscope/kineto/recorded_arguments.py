"""Arguments of operators as a trace records them: "Input Dims" and "Concrete Inputs"."""

from typing import Any

Sizes = list[int]


def read_sizes(shapes: list[Any], place: int, dimensions: int | None = None) -> Sizes:
    """Return the sizes of a tensor.

    Raises:
        ValueError: it is not a tensor, or has another number of dimensions.
    """
    sizes = shapes[place]
    is_tensor = isinstance(sizes, list) and sizes and all(type(one) is int and one >= 0 for one in sizes)
    if not is_tensor or (dimensions is not None and len(sizes) != dimensions):
        raise ValueError(sizes)
    return list(sizes)


def read_flag(values: list[Any], place: int) -> bool:
    """Return a truth value.

    Raises:
        LookupError: it is missing, or not a truth value.
    """
    return {"True": True, "False": False}[values[place]]


def require_equal(one: object, other: object) -> None:
    """Refuse sizes that do not fit each other.

    Raises:
        ValueError: they differ.
    """
    if one != other:
        raise ValueError(one, other)

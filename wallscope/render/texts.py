"""Text for people: values with units, short names without control characters, table cells, colors of walls.

Names in an export are chosen by whoever wrote the program. Where a name is cut, the full text stands next to
it. The palette is that of Okabe and Ito (2008), https://jfly.uni-koeln.de/color/: people with color vision
deficiency can distinguish them.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from wallscope import units
from wallscope.model.enums import Wall
from wallscope.model.section import Cell, Column, Grid, Medium, Row, Value
from wallscope.model.shown import Unit

WALL_COLOURS = {
    Wall.COMPUTE: "#0072B2",
    Wall.COMMUNICATION: "#E69F00",
    Wall.MEMORY: "#CC79A7",
    Wall.HOST: "#009E73",
    Wall.UNATTRIBUTED: "#8A8A8A",
}
_MOST_NAME, _LONGEST_PATH = 40, 120
_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
_WRITERS: Mapping[Unit, Callable[[Any], str]] = {
    "text": str,
    "code": str,
    "plain": str,
    "count": units.number,
    "rounded": "{:,.0f}".format,
    "ms": units.milliseconds,
    "signed_ms": units.signed_milliseconds,
    "duration": units.duration,
    "signed_duration": units.signed_duration,
    "seconds": lambda time_ns: f"{units.seconds(time_ns)} s",
    "percent": units.percent,
    "signed_percent": units.signed_percent,
    "speedup": units.write_speedup,
    "exact_speedup": "{:.3f}x".format,
    "size": units.size,
    "rate": units.rate,
    "flops": units.flops,
}
_LONGEST = 64
_LONGEST_SEGMENT = 24
_RETURNED = r"^(?:void|static|__global__)\s+"
_ANONYMOUS = r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N__\w+::"
_SIGNATURE = r"^[\w$:~]+(?:<|\((?!\d+ ))"
"""A C++ name that goes on with template arguments or parameters."""
_PLAIN_NAMES = frozenset({"kernel", "device_kernel", "kernel2"})
_STREAM = r" on stream \w+$"
_WRAPPER = r"^(?:[\w$]+::)*(?:device_kernel|kernel_?launcher|Kernel2?|kernel)<\s*(?:\w+=)?([A-Za-z_][\w$:]*)"
"""Kernels that run what their first template argument names."""
_GENERIC = r"(?i)elementwise|reduce|scan|for_each|multi_tensor_apply|index_kernel|_kernel_agent"
_FUNCTOR = r"([A-Za-z_]\w*(?:[Ff]unctor|Ops?|_op)(?:_\w+)?)\b"
"""What distinguishes kernels of one generic name."""


def spell_out(text: str) -> str:
    """Return all of the text, with the letters spelled out that cannot be seen."""
    if text.isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode("ascii") if unicodedata.category(letter) in _UNSAFE else letter
        for letter in text
    )


def visible(text: str, most: int = 200) -> str:
    r"""Return the text with control, bidirectional and other invisible characters spelled out, cut to `most`.

    >>> visible("ncclDevKernel\x1b[31m"), visible("a\u202eb"), visible("abcdef", most=4)
    ('ncclDevKernel\\x1b[31m', 'a\\u202eb', 'abc…')
    """
    return spell_out(text if len(text) <= most else text[: most - 1] + "…")


def shorten_path(path: str) -> str:
    """Keep the end of a written path of ranges, which says most.

    >>> shorten_path("train_step / forward / layer_#"), shorten_path("a" * 30 + " / " + "b" * 30 + " / c")
    ('train_step / forward / layer_#', '… / bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb / c')
    """
    names = path.split(" / ")
    kept = names[-1]
    for name in reversed(names[:-1]):
        if len(kept) + len(name) > _MOST_NAME:
            return visible(f"… / {kept}", most=_LONGEST_PATH)
        kept = f"{name} / {kept}"
    return visible(kept, most=_LONGEST_PATH)


def write_value(value: Value, column: Column) -> str:
    """Write a value in the unit of its column; what is text already stays as it is, but cut and harmless."""
    if value is None:
        return column.none
    if isinstance(value, tuple):
        return "\n".join(visible(line, column.most) for line in value)
    return visible(str(value) if isinstance(value, str) else _WRITERS[column.unit](value), column.most)


def as_cell(value: Value | Cell) -> Cell:
    """Return a value that nothing is added to as a cell."""
    return value if isinstance(value, Cell) else Cell(value)


def select_columns(grid: Grid, medium: Medium) -> list[tuple[int, Column]]:
    """Select the columns that a medium shows, each with its place in the rows."""
    return [(place, column) for place, column in enumerate(grid.columns) if medium in column.media]


def select_rows(grid: Grid, medium: Medium) -> tuple[tuple[Row, ...], str]:
    """Select the rows that a medium shows; and what it says of the rest, empty where it shows all."""
    limit = grid.limits.get(medium)
    if limit is None or len(grid.rows) <= limit.most:
        return grid.rows, grid.rest
    left = len(grid.rows) - limit.most
    counted = units.plural(left, limit.noun) if limit.noun else f"{left} more"
    return grid.rows[: limit.most], f"{counted}{limit.where}"


def shorten_kernel_name(name: str) -> str:
    """Cut template arguments, return type, parameters, namespaces; keep what a generic kernel applies.

    >>> shorten_kernel_name("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<T1, T2>>(T1)")
    'GemmUniversal'
    >>> shorten_kernel_name("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, 2>(float*)")
    'CatArrayBatchedCopy'
    >>> shorten_kernel_name("void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<T>>(x)")
    'unrolled_elementwise_kernel CUDAFunctor_add'
    >>> shorten_kernel_name("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)")
    'ncclDevKernel_SendRecv'
    """
    whole = re.sub(_ANONYMOUS, "", re.sub(_RETURNED, "", name))
    wrapped = re.match(_WRAPPER, whole)
    outer = wrapped[1] if wrapped else re.split(r"[<(]", whole, maxsplit=1)[0]
    base = outer.strip().rpartition("::")[2]
    if not base:
        return visible(name, most=_LONGEST)
    applied = re.search(_FUNCTOR, whole[len(outer) :]) if re.search(_GENERIC, base) and not wrapped else None
    return visible(f"{base} {applied[1]}" if applied else base, most=_LONGEST)


def shorten_range_path(path: str) -> str:
    """Keep the last two parts of a path of ranges, and the end of each dotted name.

    >>> shorten_range_path("train / forward / megatron.core.transformer.transformer_layer._forward_mlp.mlp")
    '… / forward / _forward_mlp.mlp'
    >>> shorten_range_path("step / forward")
    'step / forward'
    """
    parts = path.split(" / ")
    kept = " / ".join(_shorten_segment(part) for part in parts[-2:])
    return visible(f"… / {kept}" if len(parts) > 2 else kept, most=_LONGEST)


def _shorten_segment(segment: str) -> str:
    """Keep the end of a long dotted name, and what an autograd range is about."""
    tail = segment.rpartition(": ")[2] if segment.startswith("autograd::engine") else segment
    if len(tail) <= _LONGEST_SEGMENT or " " in tail:
        return tail
    dotted = re.split(r"::|\.", tail)
    return ".".join(part for part in dotted[-2:] if part) or tail


def shorten_name(text: str) -> str:
    """Shorten what looks like a kernel's signature, a path of ranges or a dotted range; else return it as is.

    >>> shorten_name("rank 3 (process 7, device 1)"), shorten_name("void f<int>(T1) on stream 7")
    ('rank 3 (process 7, device 1)', 'f on stream 7')
    """
    where = re.search(_STREAM, text)
    name = text[: where.start()] if where else text
    rest = where[0] if where else ""
    if re.match(_SIGNATURE, re.sub(_ANONYMOUS, "", re.sub(_RETURNED, "", name))) or name.startswith("void "):
        return shorten_kernel_name(name) + rest
    if " / " in name:
        return shorten_range_path(name) + rest
    if re.fullmatch(r"[\w$#]+(?:(?:\.|::)[\w$#]+){2,}", name):
        return _shorten_segment(name) + rest
    return text


def drop_namespaces(name: str) -> str:
    """Return a kernel's short name without its namespaces and arguments.

    >>> drop_namespaces("at::native::reduce_kernel"), drop_namespaces("cutlass::gemm::kernel<Gemm>")
    ('reduce_kernel', 'gemm::kernel')
    >>> drop_namespaces("void at::native::<unnamed>::normal_kernel<float>(float*)")
    'normal_kernel'
    """
    whole = re.sub(_ANONYMOUS, "", re.sub(_RETURNED, "", name))
    parts = whole.partition("<")[0].split("::")
    return "::".join(parts[-2:] if parts[-1].lower() in _PLAIN_NAMES else parts[-1:])


def shorten_names(names: Iterable[str]) -> dict[str, str]:
    """Shorten names of one table; those that would read the same get the first words in which they differ.

    >>> names = ("void f<tile<64, 32>, g<64>>(int)", "void f<tile<64, 16>, g<64>>(int)", "void h<int>(int)")
    >>> list(shorten_names(names).values())
    ['f 32', 'f 16', 'h']
    """
    shorts = {name: shorten_name(name) for name in dict.fromkeys(names)}
    groups: dict[str, list[str]] = {}
    for name, short in shorts.items():
        groups.setdefault(short, []).append(name)
    for short, alike in groups.items():
        if len(alike) > 1:
            for name, own in zip(alike, _list_distinct_words(alike), strict=True):
                new = [word for word in own if word not in short.split()]
                shorts[name] = visible(" ".join((short, *new)), most=_LONGEST)
    return shorts


def _list_distinct_words(names: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the words of each name at the first places where the names differ."""
    columns = zip_longest(
        *(re.findall(r"[\w$]+", re.sub(_RETURNED, "", name)) for name in names), fillvalue=""
    )
    words: list[tuple[str, ...]] = [()] * len(names)
    for column in columns:
        longer = [(*own, word) for own, word in zip(words, column, strict=True)]
        if len(set(longer)) > len(set(words)):
            words = longer
        if len(set(words)) == len(names):
            break
    return [tuple(filter(None, own)) for own in words]

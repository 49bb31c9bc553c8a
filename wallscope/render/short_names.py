"""Short names of kernels and NVTX paths for places with little room; the full text stands next to them."""

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest

from wallscope.render.texts import visible

_LONGEST = 64
_LONGEST_SEGMENT = 24
_RETURNED = re.compile(r"^(?:void|static|__global__)\s+")
_ANONYMOUS = re.compile(r"\(anonymous namespace\)::|<unnamed>::|\{anonymous\}::|_GLOBAL__N__\w+::")
_SIGNATURE = re.compile(r"^[\w$:~]+(?:<|\((?!\d+ ))")
"""A C++ name that goes on with template arguments or parameters."""
_STREAM = re.compile(r" on stream \w+$")
_WRAPPER = re.compile(
    r"^(?:[\w$]+::)*(?:device_kernel|kernel_?launcher|Kernel2?|kernel)<\s*(?:\w+=)?([A-Za-z_][\w$:]*)"
)
"""Kernels that run what their first template argument names."""
_GENERIC = re.compile(r"(?i)elementwise|reduce|scan|for_each|multi_tensor_apply|index_kernel|_kernel_agent")
_FUNCTOR = re.compile(r"([A-Za-z_]\w*(?:[Ff]unctor|Ops?|_op)(?:_\w+)?)\b")
"""What distinguishes kernels of one generic name."""


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
    whole = _ANONYMOUS.sub("", _RETURNED.sub("", name))
    wrapped = _WRAPPER.match(whole)
    outer = wrapped[1] if wrapped else re.split(r"[<(]", whole, maxsplit=1)[0]
    base = outer.strip().rpartition("::")[2]
    if not base:
        return visible(name, most=_LONGEST)
    applied = _FUNCTOR.search(whole, len(outer)) if _GENERIC.search(base) and not wrapped else None
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
    where = _STREAM.search(text)
    name = text[: where.start()] if where else text
    rest = where[0] if where else ""
    if _SIGNATURE.match(_ANONYMOUS.sub("", _RETURNED.sub("", name))) or name.startswith("void "):
        return shorten_kernel_name(name) + rest
    if " / " in name:
        return shorten_range_path(name) + rest
    if re.fullmatch(r"[\w$#]+(?:(?:\.|::)[\w$#]+){2,}", name):
        return _shorten_segment(name) + rest
    return text


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
    columns = zip_longest(*(re.findall(r"[\w$]+", _RETURNED.sub("", name)) for name in names), fillvalue="")
    words: list[tuple[str, ...]] = [()] * len(names)
    for column in columns:
        longer = [(*own, word) for own, word in zip(words, column, strict=True)]
        if len(set(longer)) > len(set(words)):
            words = longer
        if len(set(words)) == len(names):
            break
    return [tuple(filter(None, own)) for own in words]

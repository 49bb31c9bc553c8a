"""Search layouts whose states fit into the memory of a GPU, without published layouts."""

from collections.abc import Iterator
from dataclasses import replace

from wallscope.advice.parallel_layout import MemoryOptions, ModelShape, estimate_memory, fold, smallest_states
from wallscope.errors import LayoutError
from wallscope.model.advice import Folding, ShardedLayout, Sizes

_TENSOR = (1, 2, 4, 8)
_MOST_STAGES = 64


def list_feasible_layouts(
    shape: ModelShape, gpus: int, seq_length: int, memory_bytes: int
) -> tuple[Folding, ...]:
    """Return layouts that divide heads, experts and sequence and whose states fit, the least split first.

    Args:
        shape: the model.
        gpus: GPUs of the job.
        seq_length: tokens of a sequence.
        memory_bytes: memory of a GPU for the states.
    """
    return tuple(
        sorted(_find_layouts(shape, gpus, seq_length, memory_bytes), key=lambda layout: _order(layout.sizes))
    )


def list_sharded_layouts(
    shape: ModelShape, gpus: int, seq_length: int, options: MemoryOptions, memory_bytes: int
) -> tuple[ShardedLayout, ...]:
    """Return layouts of FSDP that fit with full recomputation: first the least split.

    They have no pipeline stages. Tensor, context and expert parallelism are as in other layouts.

    Args:
        shape: the model.
        gpus: GPUs of the job.
        seq_length: tokens of a sequence; a micro-batch has one.
        options: how numbers are stored.
        memory_bytes: memory of a GPU.
    """
    found = []
    for sizes in _list_sizes(shape, gpus, seq_length):
        if sizes.pipeline > 1:
            continue
        try:
            layout = fold(sizes, gpus, shape.experts or None)
        except LayoutError:
            continue
        sharded = replace(options, fully_sharded=True)
        memory = estimate_memory(shape, layout, seq_length, sharded)
        recomputed = estimate_memory(shape, layout, seq_length, replace(sharded, recompute_full=True))
        if recomputed.total_bytes <= memory_bytes:
            names = ("Megatron FSDP",) if shape.experts else ("Megatron FSDP", "PyTorch FSDP2")
            found.append(ShardedLayout(layout, names, memory, recomputed.total_bytes))
    return tuple(
        sorted(
            found,
            key=lambda one: (one.layout.sizes.attention, one.layout.sizes.context, one.memory.total_bytes),
        )
    )


def _order(sizes: Sizes) -> tuple[int, int, int, int]:
    return sizes.attention * sizes.pipeline, sizes.tensor, sizes.context, sizes.expert


def _find_layouts(shape: ModelShape, gpus: int, seq_length: int, memory_bytes: int) -> Iterator[Folding]:
    for sizes in _list_sizes(shape, gpus, seq_length):
        try:
            layout = fold(sizes, gpus, shape.experts or None)
        except LayoutError:
            continue
        if smallest_states(shape, layout) <= memory_bytes:
            yield layout


def _list_sizes(shape: ModelShape, gpus: int, seq_length: int) -> Iterator[Sizes]:
    contexts = [size for size in _divisors(gpus) if size == 1 or seq_length % (2 * size) == 0]
    experts = _divisors(shape.experts) if shape.experts else [1]
    for tensor in _TENSOR:
        if shape.heads % tensor:
            continue
        for pipeline in _divisors(gpus):
            if pipeline > min(_MOST_STAGES, shape.layers):
                break
            for context in contexts:
                yield from (Sizes(tensor, pipeline, context, expert) for expert in experts if expert <= gpus)


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]

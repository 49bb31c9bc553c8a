"""Search layouts whose states fit into the memory of a GPU, without published layouts."""

from collections.abc import Iterator

from wallscope.advice.memory_estimate import ModelShape, smallest_states
from wallscope.advice.parallel_layout import fold
from wallscope.errors import LayoutError
from wallscope.model.advice import Folding, Sizes

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

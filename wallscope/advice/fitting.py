"""Levers that make a layout fit, in the order of the documents, and the memory that is then needed.

Selective recomputation comes first, then other layouts, optimizer states in BF16, an offloaded optimizer, and
last the recomputation of whole layers.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Final

from wallscope.advice.parallel_layout import MemoryOptions, ModelShape, estimate_memory, list_module_sets
from wallscope.model.advice import Folding, Levers, MemoryPlan
from wallscope.records import dataclass

PRECISION_OPTIONS: Final = {
    "bf16": MemoryOptions(),
    "fp16": MemoryOptions(),
    "fp8": MemoryOptions(weight_bytes=1, linear_input_bytes=1),
    "mxfp8": MemoryOptions(linear_input_bytes=1),
    "nvfp4": MemoryOptions(linear_input_bytes=1),
}
"""How each precision stores numbers: MXFP8 has weights in both directions; gradients and moments are FP32."""

_SHORT_BYTES: Final = 2
"""Of a gradient in BF16."""
_SHORT_STATE_BYTES: Final = 8
"""Of an optimizer state with moments in BF16: 4 of the main weight, 2 of each moment."""
_MAIN_WEIGHT_BYTES: Final = 4
"""Of the optimizer state that stays on the GPU if the moments are on the host."""
_WHOLE: Final = ("full",)


@dataclass(frozen=True, slots=True)
class Load:
    """What a GPU must hold: a model of a shape, in a layout, with a micro-batch and a precision."""

    shape: ModelShape
    layout: Folding
    tokens: int
    precision: str
    virtual_stages: int | None
    is_sharded: bool

    def plan_memory(self, levers: Levers, capacity_bytes: int | None) -> MemoryPlan:
        """Return the memory with levers, and whether it fits."""
        stages = self.virtual_stages if self.layout.sizes.pipeline > 1 else None
        memory = estimate_memory(self.shape, self.layout, self.tokens, self.make_options(levers), stages)
        fits = None if capacity_bytes is None else memory.total_bytes <= capacity_bytes
        return MemoryPlan(levers, memory, fits)

    def make_options(self, levers: Levers) -> MemoryOptions:
        """Return how numbers are stored with levers; an offloaded optimizer needs weights in BF16."""
        usual = PRECISION_OPTIONS[self.precision]
        state_bytes = usual.state_bytes
        if levers.short_moments:
            state_bytes = _SHORT_STATE_BYTES
        if levers.offloads_optimizer:
            state_bytes = _MAIN_WEIGHT_BYTES
        return replace(
            usual,
            weight_bytes=2 if levers.offloads_optimizer else usual.weight_bytes,
            gradient_bytes=_SHORT_BYTES if levers.short_gradients else usual.gradient_bytes,
            state_bytes=state_bytes,
            recompute_modules=() if levers.recompute == _WHOLE else levers.recompute,
            recompute_full=levers.recompute == _WHOLE,
            fully_sharded=self.is_sharded,
        )


def list_stages(shape: ModelShape, *, least: Levers, is_sharded: bool) -> Iterator[tuple[Levers, ...]]:
    """Yield sets of levers, the cheapest first; within a set, recomputation widens.

    Args:
        shape: the model.
        least: levers that are pulled in any case.
        is_sharded: whether the states are fully sharded, which excludes an offloaded optimizer.
    """
    sets = [each for each in list_module_sets(shape) if _covers(each, least.recompute)]
    selective = list(dict.fromkeys((least.recompute, *sets)))
    short = replace(least, short_moments=True)
    offloaded = replace(least, short_moments=False, offloads_optimizer=True)
    states: list[Levers] = [least, short] if is_sharded else [least, short, offloaded]
    if least.offloads_optimizer:
        states = [least]
    for state in states:
        yield tuple(replace(state, recompute=each) for each in selective)
    yield tuple(replace(state, recompute=_WHOLE) for state in states)


def _covers(modules: tuple[str, ...], least: tuple[str, ...]) -> bool:
    """Return whether a set recomputes at least some modules; a whole MoE layer contains its activation."""
    inside = {"moe_act"} if "moe" in modules else set()
    return set(least) <= {*modules, *inside}


def find_levers(
    loads: tuple[Load, ...], least: Levers, capacity_bytes: int | None, most_stages: int | None = None
) -> tuple[int, MemoryPlan] | None:
    """Return the first of several loads that fits with the cheapest levers, by its index.

    Args:
        loads: layouts of one model, the preferred ones first.
        least: levers that are pulled in any case.
        capacity_bytes: memory of a GPU, `None` if unknown.
        most_stages: how many sets of levers to try, a negative number leaves out the last ones.

    Returns:
        `None` if none fits.
    """
    if not loads:
        return None
    first = loads[0]
    stages = list(list_stages(first.shape, least=least, is_sharded=first.is_sharded))
    for stage in stages[:most_stages]:
        for (index, load), levers in product(enumerate(loads), stage):
            found = load.plan_memory(levers, capacity_bytes)
            if found.fits is not False:
                return index, found
    return None

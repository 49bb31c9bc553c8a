"""Published peaks of memory, with the layouts and options that they were measured with."""

from dataclasses import dataclass, replace

from wallscope.advice.parallel_layout import MemoryOptions, estimate_memory, fold, model_shapes
from wallscope.model.advice import Sizes

BF16_STATES = MemoryOptions(gradient_bytes=2, state_bytes=8)
FP8 = MemoryOptions(weight_bytes=1, gradient_bytes=2, linear_input_bytes=1)


def layout(sizes, gpus, shape):
    return fold(sizes, gpus, shape.experts or None)


def recomputing(options, *modules):
    return replace(options, recompute_modules=modules)


@dataclass(frozen=True)
class Peak:
    """A published peak in 10^9 bytes per GPU, and the fact that has it."""

    source: str
    model: str
    sizes: Sizes
    gpus: int
    options: MemoryOptions
    virtual: int | None
    published_gb: float

    def estimated_gb(self):
        """The estimate for the same layout, in 10^9 bytes."""
        shape = model_shapes()[self.model]
        at = layout(self.sizes, self.gpus, shape)
        return estimate_memory(shape, at, 4_096, self.options, self.virtual).total_bytes / 1e9


SHORT_GRADIENTS = MemoryOptions(gradient_bytes=2)
OFFLOADED = MemoryOptions(state_bytes=4, recompute_full=True)
"""The library's offload moves the two moments to the host; main weights stay."""

PEAKS = (
    Peak("WF-60", "deepseek_v3", Sizes(1, 4, 1, 64), 256, MemoryOptions(), 4, 199.5),
    Peak("MEM-R2", "moonlight_16b", Sizes(2, 1, 1, 8), 8, BF16_STATES, None, 36.618),
    Peak(
        "MEM-R2, mla_up_proj",
        "moonlight_16b",
        Sizes(2, 1, 1, 8),
        8,
        recomputing(BF16_STATES, "mla_up_proj"),
        None,
        35.902,
    ),
    Peak(
        "MEM-R2, moe_act",
        "moonlight_16b",
        Sizes(2, 1, 1, 8),
        8,
        recomputing(BF16_STATES, "moe_act"),
        None,
        35.941,
    ),
    Peak("EPO-M3", "qwen3_30b_a3b", Sizes(1, 1, 1, 16), 16, SHORT_GRADIENTS, None, 66.75),
    Peak("DSP-40", "qwen3_30b_a3b", Sizes(1, 1, 1, 16), 16, SHORT_GRADIENTS, None, 61.351),
    Peak(
        "MEM-24, full", "qwen3_30b_a3b", Sizes(2, 2, 1, 4), 16, MemoryOptions(recompute_full=True), None, 47.2
    ),
    Peak("MEM-24, full, offloaded", "qwen3_30b_a3b", Sizes(2, 2, 1, 4), 16, OFFLOADED, None, 32.0),
    Peak("MEM-R4", "llama3_70b", Sizes(4, 4), 32, FP8, 5, 58.8),
    Peak("MEM-R4, layernorm", "llama3_70b", Sizes(4, 4), 32, recomputing(FP8, "layernorm"), 5, 59.6),
    Peak("MEM-R4, mlp", "llama3_70b", Sizes(4, 4), 32, recomputing(FP8, "mlp"), 5, 55.6),
    Peak("MEM-40", "llama3_70b", Sizes(4, 4), 32, FP8, 10, 60.2),
    Peak("MEM-39", "llama3_70b", Sizes(4, 8), 32, FP8, 5, 53.2),
    Peak("MEM-39, TP 8", "llama3_70b", Sizes(8, 4), 32, FP8, 5, 50.2),
)

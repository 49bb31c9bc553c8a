"""Parallel sizes: how they share GPUs, and which of them fit a sequence and a number of experts."""

import re
from math import log2

from wallscope.advice.conditions import Lookup
from wallscope.advice.published import Machine
from wallscope.errors import LayoutError, OptionError
from wallscope.model.advice import Folding, Sizes
from wallscope.thresholds.verdict import (
    TENSOR_FOR_CONTEXT_COUNT,
    TENSOR_FOR_CONTEXT_FROM_COUNT,
    TOKENS_OF_A_RANK_COUNT,
)

_NAMES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "etp": "expert_tensor"}


def fold(sizes: Sizes, gpus: int, experts: int | None = None) -> Folding:
    """Divide the GPUs by the meshes of attention and experts, which share the same GPUs.

    >>> folded = fold(Sizes(tensor=4, pipeline=4, context=2, expert=64), 256, experts=256)
    >>> folded.data, folded.expert_data
    (8, 1)

    Raises:
        LayoutError: there are too few GPUs, or a size does not divide another.
    """
    text = f"TP{sizes.tensor} CP{sizes.context} PP{sizes.pipeline} EP{sizes.expert} ETP{sizes.expert_tensor}"
    if gpus < sizes.fewest_gpus:
        raise LayoutError(
            f"{text} on {gpus} GPUs — needs PP x max(TP x CP, EP x ETP) = {sizes.pipeline} x"
            f" max({sizes.attention}, {sizes.experts}) = {sizes.fewest_gpus} — reduce a size or add GPUs"
        )
    for name, mesh in (("TP x CP", sizes.attention), ("EP x ETP", sizes.experts)):
        if gpus % (mesh * sizes.pipeline):
            raise LayoutError(
                f"{text} — {gpus} GPUs are not divisible by PP x {name} = {mesh * sizes.pipeline} —"
                " change a size"
            )
    if experts == 0 and sizes.experts > 1:
        raise LayoutError(f"{text} — the model has no experts — leave out EP and ETP")
    if experts is not None and experts % sizes.expert:
        raise LayoutError(f"{text} — {experts} experts are not divisible by EP {sizes.expert} — change EP")
    stages = sizes.pipeline
    data, expert_data = gpus // (sizes.attention * stages), gpus // (sizes.experts * stages)
    return Folding(sizes, gpus, sizes.fewest_gpus, data, expert_data)


def fold_configuration(lookup: Lookup) -> Folding | None:
    """Fold the sizes of a configuration; `None` if GPUs, TP or PP are unknown. Other unset sizes are 1.

    Raises:
        LayoutError: the layout is impossible.
    """

    def size(name: str) -> int | None:
        value = lookup(name)[1]
        return value if isinstance(value, int) else None

    gpus, tensor, pipeline = (
        size(name) for name in ("world_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    )
    if gpus is None or tensor is None or pipeline is None:
        return None
    sizes = Sizes(
        tensor=tensor,
        pipeline=pipeline,
        context=size("context_parallel_size") or 1,
        expert=size("expert_model_parallel_size") or 1,
        expert_tensor=size("expert_tensor_parallel_size") or 1,
    )
    layout = fold(sizes, gpus, size("num_moe_experts"))
    of_training = size("global_batch_size"), size("micro_batch_size")
    of_evaluation = (
        size("eval_global_batch_size") or of_training[0],
        size("eval_micro_batch_size") or of_training[1],
    )
    for prefix, (batch, micro) in (("", of_training), ("eval_", of_evaluation)):
        if batch is not None and micro is not None and batch % (micro * layout.data):
            raise LayoutError(
                f"{prefix}global_batch_size {batch} — is not a multiple of {prefix}micro_batch_size x DP ="
                f" {micro} x {layout.data} — correct the sizes"
            )
    return layout


def parse_sizes(text: str | None) -> dict[str, int]:
    """Parse sizes as `tp4,cp2,pp4,ep64`, by field of `Sizes`.

    >>> parse_sizes("tp4,cp2,PP=4")
    {'tensor': 4, 'context': 2, 'pipeline': 4}

    Raises:
        OptionError: a part is not a size, or occurs twice.
    """
    if not text:
        return {}
    found: dict[str, int] = {}
    for part in re.split(r"[\s,x]+", text.strip().lower()):
        match = re.fullmatch(r"(tp|pp|cp|ep|etp)=?([1-9]\d{0,5})", part)
        name = _NAMES[match[1]] if match else ""
        if match is None or name in found:
            raise OptionError(
                f"--layout {text} — {part!r} is not a size, or is repeated — write --layout tp4,cp2,pp4,ep64"
            )
        found[name] = int(match[2])
    return found


def context_and_tensor(seq_length: int, machine: Machine) -> tuple[int, int]:
    """Return CP and TP for a sequence: one rank per 4,096 tokens, rounded to a power of two.

    On racks of one NVLink domain, from 128K on, TP replaces a part and each rank has 8,192 tokens.
    """
    if machine.is_rack and seq_length >= TENSOR_FOR_CONTEXT_FROM_COUNT:
        ranks = power_of_two(seq_length / (2 * TOKENS_OF_A_RANK_COUNT))
        return max(ranks // TENSOR_FOR_CONTEXT_COUNT, 1), TENSOR_FOR_CONTEXT_COUNT
    return (
        power_of_two(seq_length / TOKENS_OF_A_RANK_COUNT) if seq_length > TOKENS_OF_A_RANK_COUNT else 1
    ), 1


def power_of_two(value: float) -> int:
    """Return the power of two that is nearest on a logarithmic scale, at least 1."""
    return int(2 ** max(round(log2(value)), 0))


def largest_expert(sizes: Sizes, gpus: int, experts: int | None) -> int:
    """Return the largest EP that GPUs, PP, ETP and the number of experts allow."""
    if experts == 0:
        return 1
    room, rest = divmod(gpus, sizes.pipeline * sizes.expert_tensor)
    if rest or not room:
        return 1
    divided = experts or room
    return max(each for each in range(1, room + 1) if room % each == 0 and divided % each == 0)


def check_shards(seq_length: int, context: int) -> None:
    """Refuse a sequence that context parallelism cannot divide.

    Raises:
        LayoutError: the sequence is not a multiple of 2 x CP.
    """
    if context > 1 and seq_length % (2 * context):
        raise LayoutError(
            f"sequence {seq_length:,} — is not divisible by 2 x CP = 2 x {context} — change its length or CP"
        )


def count_accumulation(global_batch: int | None, micro_batch: int, data: int) -> int | None:
    """Return the micro-batches of a step per data-parallel rank; `None` without a global batch.

    Raises:
        LayoutError: the global batch is not a multiple of DP x micro-batch.
    """
    if global_batch is None:
        return None
    if global_batch % (data * micro_batch):
        raise LayoutError(
            f"global batch {global_batch} — is not a multiple of DP x micro-batch = {data} x"
            f" {micro_batch} — change the batch"
        )
    return global_batch // (data * micro_batch)

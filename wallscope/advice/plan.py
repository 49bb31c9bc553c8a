"""A plan for a future run: layout, layouts that fit, checklist, and similar published configurations."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial

from wallscope.advice.conditions import Clause, evaluate, parse_clause
from wallscope.advice.parallel_layout import (
    MemoryOptions,
    ModelShape,
    check_shards,
    context_and_tensor,
    count_accumulation,
    estimate_memory,
    fold,
    largest_expert,
    list_recompute_choices,
    model_shapes,
    power_of_two,
    smallest_states,
)
from wallscope.advice.published import (
    Machine,
    Model,
    find_bands,
    find_long_context,
    nearest_presets,
)
from wallscope.errors import LayoutError, OptionError
from wallscope.files import read_toml
from wallscope.model.advice import (
    PHASES,
    Advice,
    Folding,
    Item,
    MemoryEstimate,
    ShardedLayout,
    Sizes,
    Value,
)
from wallscope.thresholds.verdict import LONG_SEQUENCE_COUNT, RESERVED_MEMORY_SHARE, TOKENS_OF_A_RANK_COUNT
from wallscope.units import size

PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
_YOURS = "your sizes"
_OPTIONS = {
    "bf16": MemoryOptions(),
    "fp8": MemoryOptions(weight_bytes=1, linear_input_bytes=1),
    "mxfp8": MemoryOptions(linear_input_bytes=1),
    "nvfp4": MemoryOptions(linear_input_bytes=1),
}
"""How each precision stores numbers: MXFP8 has weights in both directions; gradients and moments are FP32."""
_SHORT_BYTES = 2
"""Of a gradient in BF16."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The user's options for a run; sizes by field of `Sizes`, missing ones are proposed."""

    model: Model
    machine: Machine
    gpus: int
    seq_length: int
    precision: str
    given: Mapping[str, int]
    global_batch: int | None = None
    micro_batch: int = 1

    def fix_sizes(self, sizes: Sizes) -> Sizes:
        """Return sizes with those that the user gives."""
        return sizes.change(**self.given)

    @property
    def shape(self) -> ModelShape | None:
        """The shape of the model, if it is known."""
        return model_shapes().get(self.model.id)

    @property
    def capacity_bytes(self) -> int | None:
        """The memory of a GPU that a layout may use, if it is known."""
        memory_bytes = self.machine.memory_bytes
        return None if memory_bytes is None else round(memory_bytes * (1 - RESERVED_MEMORY_SHARE))


@dataclass(frozen=True, slots=True)
class _Candidate:
    sizes: Sizes
    source: str
    virtual_pipeline: int | None
    is_sharded: bool = False
    has_short_gradients: bool = False

    def resize(self, sizes: Sizes, source: str) -> "_Candidate":
        """Return the candidate with other sizes, and where these come from."""
        return _Candidate(
            sizes,
            source,
            self.virtual_pipeline,
            self.is_sharded,
            has_short_gradients=self.has_short_gradients,
        )


@dataclass(frozen=True, slots=True)
class _Rule:
    item: Item
    when: tuple[Clause, ...]


def plan_run(wanted: PlanRequest) -> Advice:
    """Return a plan for a run: layout, checklist, similar published configurations.

    Raises:
        LayoutError: no layout is possible, with the reason.
        OptionError: the precision does not run on the machine.
    """
    if wanted.precision in {"mxfp8", "nvfp4"} and not wanted.machine.is_blackwell:
        other = "fp8" if wanted.machine.has_fp8 else "bf16"
        raise OptionError(
            f"--precision {wanted.precision} — does not run on {wanted.machine.id} — use {other} there"
        )
    if wanted.precision == "fp8" and not wanted.machine.has_fp8:
        raise OptionError(f"--precision fp8 — does not run on {wanted.machine.id} — use bf16 there")
    near = nearest_presets(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision)
    chosen, layout = _layout(wanted)
    accumulation = count_accumulation(wanted.global_batch, wanted.micro_batch, layout.data)
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    usual = _OPTIONS[wanted.precision]
    options = usual.change(
        fully_sharded=chosen.is_sharded,
        gradient_bytes=_SHORT_BYTES if chosen.has_short_gradients else usual.gradient_bytes,
    )
    estimate = partial(_estimate, wanted, layout, chosen.virtual_pipeline)
    return Advice(
        schema="wallscope.advice/1",
        model=wanted.model.id,
        machine=wanted.machine.id,
        seq_length=wanted.seq_length,
        precision=wanted.precision,
        layout=layout,
        layout_source=chosen.source,
        largest_expert=largest_expert(layout.sizes, wanted.gpus, wanted.model.experts),
        virtual_pipeline=chosen.virtual_pipeline if layout.sizes.pipeline > 1 else None,
        accumulation=accumulation,
        memory=estimate(options) if wanted.shape else None,
        memory_capacity_bytes=wanted.capacity_bytes,
        recompute=list_recompute_choices(wanted.shape, options, estimate, wanted.capacity_bytes)
        if wanted.shape
        else (),
        feasible=_feasible(wanted),
        sharded=_list_sharded(wanted),
        items=tuple(_items(wanted, chosen, layout, accumulation)),
        presets=near,
        bands=find_bands(wanted.model.id, wanted.machine, is_long=is_long),
    )


def _layout(wanted: PlanRequest) -> tuple[_Candidate, Folding]:
    """Return the first possible candidate with the user's sizes, else the first with a smaller EP.

    Raises:
        LayoutError: none is possible; it names the one that needs the fewest GPUs.
    """
    refused: list[tuple[int, LayoutError]] = []
    for candidate in (*_candidates(wanted), *_with_fewer_experts(wanted)):
        sizes = wanted.fix_sizes(candidate.sizes)
        try:
            layout = fold(sizes, wanted.gpus, wanted.model.experts)
            check_shards(wanted.seq_length, sizes.context)
        except LayoutError as error:
            refused.append((sizes.fewest_gpus, error))
            continue
        excess = _find_excess(wanted, layout)
        if excess is None:
            return _with_given_sizes(candidate, sizes, wanted), layout
        refused.append((sizes.fewest_gpus, excess))
    raise min(refused, key=lambda each: each[0])[1]


def _feasible(wanted: PlanRequest) -> tuple[Sizes, ...]:
    """Return all sizes that divide the run and whose states fit, the least split first."""
    if wanted.shape is None or wanted.capacity_bytes is None:
        return ()
    found = list_feasible_layouts(wanted.shape, wanted.gpus, wanted.seq_length, wanted.capacity_bytes)
    return tuple(layout.sizes for layout in found)


def _list_sharded(wanted: PlanRequest) -> tuple[ShardedLayout, ...]:
    """Return the fully sharded layouts that fit, with the user's sizes if these allow any."""
    if wanted.shape is None or wanted.capacity_bytes is None:
        return ()
    options = _OPTIONS[wanted.precision]
    found = list_sharded_layouts(wanted.shape, wanted.gpus, wanted.seq_length, options, wanted.capacity_bytes)
    return tuple(
        one
        for one in found
        if all(getattr(one.layout.sizes, name) == given for name, given in wanted.given.items())
    )


def _find_excess(wanted: PlanRequest, layout: Folding) -> LayoutError | None:
    """Return why parameters, gradients and optimizer state alone do not fit; `None` if they may."""
    capacity = wanted.capacity_bytes
    needed = None if wanted.shape is None else smallest_states(wanted.shape, layout)
    if needed is None or capacity is None or needed <= capacity:
        return None
    sizes = layout.sizes
    fsdp = ", or shard them all with FSDP" if _list_sharded(wanted) else ""
    return LayoutError(
        f"TP{sizes.tensor} PP{sizes.pipeline} EP{sizes.expert} on {wanted.gpus} GPUs — parameters,"
        f" gradients and optimizer state need {size(needed)} per GPU even in BF16,"
        f" {size(needed - capacity)} more than {wanted.machine.name} has — increase EP, PP or TP, add GPUs"
        f" or offload the optimizer{fsdp}"
    )


def _estimate(
    wanted: PlanRequest, layout: Folding, virtual_stages: int | None, options: MemoryOptions
) -> MemoryEstimate:
    return estimate_memory(
        model_shapes()[wanted.model.id],
        layout,
        wanted.seq_length * wanted.micro_batch,
        options,
        virtual_stages if layout.sizes.pipeline > 1 else None,
    )


def _with_fewer_experts(wanted: PlanRequest) -> Iterator[_Candidate]:
    """Yield candidates whose experts need more GPUs than available, with as many as fit in a group."""
    if "expert" in wanted.given:
        return
    for candidate in _candidates(wanted):
        sizes = wanted.fix_sizes(candidate.sizes)
        if sizes.experts * sizes.pipeline > wanted.gpus:
            expert = largest_expert(sizes, wanted.gpus, wanted.model.experts)
            source = f"{candidate.source}, with EP reduced to fit"
            yield candidate.resize(candidate.sizes.change(expert=expert), source)


def _with_given_sizes(candidate: _Candidate, sizes: Sizes, wanted: PlanRequest) -> _Candidate:
    """Return the candidate with the user's sizes, which replace the stages that belong to others."""
    if not wanted.given or candidate.source == _YOURS:
        return candidate.resize(sizes, candidate.source)
    keeps = sizes.pipeline == candidate.sizes.pipeline
    source = f"{_YOURS}, the rest from {candidate.source}"
    return _Candidate(sizes, source, candidate.virtual_pipeline if keeps else None)


def _candidates(wanted: PlanRequest) -> Iterator[_Candidate]:
    """Yield published configurations for this length, then presets, then starting sizes of heuristics."""
    context, tensor = context_and_tensor(wanted.seq_length, wanted.machine)
    is_complete = {"tensor", "pipeline", "context", "expert"} <= set(wanted.given)
    if is_complete:
        yield _Candidate(Sizes(), _YOURS, None)
        return
    family = find_long_context(wanted.model.id, wanted.machine, wanted.seq_length)
    if family is not None:
        length = "this length" if family.seq_length == wanted.seq_length else f"{family.seq_length:,} tokens"
        yield _Candidate(family.sizes, f"published for {length}: {family.text}", family.virtual_pipeline)
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    count = 0
    for preset in nearest_presets(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision):
        sizes = preset.sizes
        if is_long or wanted.seq_length <= TOKENS_OF_A_RANK_COUNT:
            sizes = sizes.change(
                context=context, tensor=max(sizes.tensor, tensor) if is_long else sizes.tensor
            )
        changes = (", CP by sequence length" if is_long else "") + (
            ", fully sharded" if preset.fully_sharded else ""
        )
        source = f"preset {preset.name}{changes}, with gradients in BF16"
        count += 1
        yield _Candidate(
            sizes, source, preset.virtual_pipeline, preset.fully_sharded, has_short_gradients=True
        )
    start = wanted.model.start
    if start is not None:
        count += 1
        sizes = start.change(context=context, tensor=max(start.tensor, tensor))
        yield _Candidate(sizes, "heuristic sizes of the family", None)
    if count == 0:
        sizes = _least_split(wanted) or Sizes(tensor=tensor, context=context)
        yield _Candidate(sizes, "least split sizes that fit; nothing is published", None)


def _least_split(wanted: PlanRequest) -> Sizes | None:
    """Return the least split sizes that fit with activations, else with all of them recomputed."""
    capacity = wanted.capacity_bytes
    options = _OPTIONS[wanted.precision]
    for tried in (options, options.change(recompute_full=True)):
        for sizes in _feasible(wanted):
            layout = fold(sizes, wanted.gpus, wanted.model.experts)
            if capacity is not None and _estimate(wanted, layout, None, tried).total_bytes <= capacity:
                return sizes
    return None


@cache
def _rules() -> tuple[_Rule, ...]:
    return tuple(
        _Rule(
            Item(table["phase"], table["text"], tuple(table.get("settings", [])), tuple(table["facts"])),
            tuple(map(parse_clause, table.get("when", []))),
        )
        for table in read_toml("advice/advice.toml")["advice"]
    )


def _items(
    wanted: PlanRequest, chosen: _Candidate, layout: Folding, accumulation: int | None
) -> Iterator[Item]:
    sizes = layout.sizes
    facts = _list_plan_facts(wanted, layout)
    first = power_of_two(wanted.seq_length / TOKENS_OF_A_RANK_COUNT)
    virtual = chosen.virtual_pipeline
    words = {
        "fewest": layout.fewest_gpus,
        "tp": sizes.tensor,
        "cp": sizes.context,
        "pp": sizes.pipeline,
        "ep": sizes.expert,
        "etp": sizes.expert_tensor,
        "dp": layout.data,
        "edp": layout.expert_data,
        "domain": wanted.machine.nvlink_domain,
        "machine": wanted.machine.name,
        "vpp": f"={virtual}" if virtual and sizes.pipeline > 1 else "",
        "cp_rule": f"{wanted.seq_length:,} / 4,096 gives {first}, here {sizes.context}",
        "accumulation": f": {accumulation} micro-batches per step" if accumulation else "",
    }
    rules = [rule for rule in _rules() if evaluate(rule.when, lambda key: (key in facts, facts.get(key)))]
    for rule in sorted(rules, key=lambda rule: PHASES.index(rule.item.phase)):
        settings = tuple(setting.format_map(words) for setting in rule.item.settings)
        yield Item(rule.item.phase, rule.item.text.format_map(words), settings, rule.item.facts)


def _list_plan_facts(wanted: PlanRequest, layout: Folding) -> dict[str, Value]:
    """Return the values that conditions of the checklist may use."""
    sizes = layout.sizes
    return {
        **wanted.machine.facts().settings(),
        "seq_length": wanted.seq_length,
        "vision": wanted.model.vision,
        "experts": wanted.model.experts != 0,
        "tensor_model_parallel_size": sizes.tensor,
        "pipeline_model_parallel_size": sizes.pipeline,
        "context_parallel_size": sizes.context,
        "expert_model_parallel_size": sizes.expert,
        "expert_tensor_parallel_size": sizes.expert_tensor,
        "data_parallel_size": layout.data,
    }


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
        sorted(
            _find_layouts(shape, gpus, seq_length, memory_bytes),
            key=lambda layout: _order_layouts(layout.sizes),
        )
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
        sharded = options.change(fully_sharded=True)
        memory = estimate_memory(shape, layout, seq_length, sharded)
        recomputed = estimate_memory(shape, layout, seq_length, sharded.change(recompute_full=True))
        if recomputed.total_bytes <= memory_bytes:
            names = ("Megatron FSDP",) if shape.experts else ("Megatron FSDP", "PyTorch FSDP2")
            found.append(ShardedLayout(layout, names, memory, recomputed.total_bytes))
    return tuple(
        sorted(
            found,
            key=lambda one: (one.layout.sizes.attention, one.layout.sizes.context, one.memory.total_bytes),
        )
    )


def _order_layouts(sizes: Sizes) -> tuple[int, int, int, int]:
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

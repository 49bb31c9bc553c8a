"""A plan for a future run: layout, layouts that fit, checklist, and similar published configurations."""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cache, partial
from math import log2

from wallscope.advice.conditions import Clause, evaluate, parse_clause
from wallscope.advice.fitting import PRECISION_OPTIONS, Load, find_levers, list_stages
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
from wallscope.advice.plan_settings import list_settings, write_arguments, write_bridge
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
    Levers,
    MemoryEstimate,
    MemoryPlan,
    RecomputeChoice,
    ShardedLayout,
    Sizes,
    Value,
)
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    IMAGE_TOKENS_SHARE,
    LONG_SEQUENCE_COUNT,
    RESERVED_MEMORY_SHARE,
    TOKENS_OF_A_RANK_COUNT,
)
from wallscope.units import size

PRECISIONS = ("bf16", "fp16", "fp8", "mxfp8", "nvfp4")
_YOURS = "your sizes"
_VIRTUAL = "virtual_pipeline"
_ALL_SIZES = {"tensor", "pipeline", "context", "expert"}
_SEARCHED = "sizes of a search; nothing published fits"
_OWN_LEVERS, _ALL_BUT_WHOLE = 1, -1
"""Sets of levers: a published run has its own with wider recomputation, the user's sizes all but the last."""
_LEAST = "least split sizes that fit; nothing is published"


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The user's options for a run; sizes by field of `Sizes`, missing ones are proposed.

    `given` may have `virtual_pipeline`, the virtual stages of each rank. `own_shape` is that of a model which
    no family has. `short_gradients` are in BF16; if `None`, as in the published run or in FP32.
    At most `image_tokens` of a sequence come from images; `None`: half of them.
    """

    model: Model
    machine: Machine
    gpus: int
    seq_length: int
    precision: str
    given: Mapping[str, int]
    global_batch: int | None = None
    micro_batch: int = 1
    own_shape: ModelShape | None = None
    short_gradients: bool | None = None
    image_tokens: int | None = None
    freezes_vision: bool = False

    @property
    def given_sizes(self) -> Mapping[str, int]:
        """The sizes that the user gives, without virtual stages."""
        return {name: size for name, size in self.given.items() if name != _VIRTUAL}

    def fix_sizes(self, sizes: Sizes) -> Sizes:
        """Return sizes with those that the user gives."""
        return sizes.change(**self.given_sizes)

    @property
    def shape(self) -> ModelShape | None:
        """The shape of the model, if it is known."""
        found = self.own_shape or model_shapes().get(self.model.id)
        if found is None or found.vision is None:
            return found
        images = self.most_image_tokens / self.seq_length
        return replace(found, vision=replace(found.vision, image_share=images, frozen=self.freezes_vision))

    @property
    def most_image_tokens(self) -> int:
        """The tokens of a sequence that come from images, at most."""
        given = self.image_tokens
        return round(IMAGE_TOKENS_SHARE * self.seq_length) if given is None else min(given, self.seq_length)

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
    levers: Levers = field(default_factory=Levers)
    dispatcher: str = "alltoall"
    plan: MemoryPlan | None = None

    def resize(self, sizes: Sizes, source: str) -> "_Candidate":
        """Return the candidate with other sizes, and where these come from."""
        return replace(self, sizes=sizes, source=source)


@dataclass(frozen=True, slots=True)
class _Rule:
    item: Item
    when: tuple[Clause, ...]


def plan_run(wanted: PlanRequest) -> Advice:
    """Return a plan for a run: layout, levers, settings, checklist, similar published configurations.

    Raises:
        LayoutError: no layout is possible, with the reason.
        OptionError: the precision does not run on the machine.
    """
    _check_precision(wanted)
    chosen, layout = _layout(wanted)
    accumulation = count_accumulation(wanted.global_batch, wanted.micro_batch, layout.data)
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    stages = chosen.virtual_pipeline if layout.sizes.pipeline > 1 else None
    load = _load(wanted, layout, chosen)
    chosen_plan = chosen.plan
    if chosen_plan is None and load is not None:
        chosen_plan = _plan_all(load, chosen, wanted)
    levers = chosen_plan.levers if chosen_plan else chosen.levers
    dispatcher = "" if wanted.model.experts == 0 else chosen.dispatcher
    settings = list_settings(
        shape=wanted.shape,
        layout=layout,
        virtual_stages=stages,
        levers=levers,
        dispatcher=dispatcher,
        precision=wanted.precision,
        machine=wanted.machine,
        is_sharded=chosen.is_sharded,
        seq_length=wanted.seq_length,
        micro_batch=wanted.micro_batch,
        global_batch=wanted.global_batch,
    )
    memory: MemoryEstimate | None = None
    recompute: tuple[RecomputeChoice, ...] = ()
    if load is not None:
        options = load.make_options(replace(levers, recompute=()))
        estimate = partial(_estimate, wanted, load.shape, layout, stages)
        memory = estimate(options)
        recompute = list_recompute_choices(load.shape, options, estimate, wanted.capacity_bytes)
    return Advice(
        schema="wallscope.advice/1",
        model=wanted.model.id,
        machine=wanted.machine.id,
        seq_length=wanted.seq_length,
        precision=wanted.precision,
        layout=layout,
        layout_source=chosen.source,
        largest_expert=largest_expert(layout.sizes, wanted.gpus, wanted.model.experts),
        virtual_pipeline=stages,
        accumulation=accumulation,
        memory=memory,
        memory_capacity_bytes=wanted.capacity_bytes,
        planned=chosen_plan,
        dispatcher=dispatcher,
        bridge=write_bridge(settings, wanted.gpus),
        arguments=write_arguments(settings, wanted.gpus, wanted.shape),
        image_tokens=wanted.most_image_tokens if wanted.shape is not None and wanted.shape.vision else None,
        misses_tower=wanted.model.vision and wanted.shape is not None and wanted.shape.vision is None,
        recompute=recompute,
        feasible=_feasible(wanted),
        sharded=_list_sharded(wanted),
        items=tuple(_items(wanted, chosen, layout, accumulation, levers)),
        presets=nearest_presets(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision),
        bands=find_bands(wanted.model.id, wanted.machine, is_long=is_long),
    )


def _check_precision(wanted: PlanRequest) -> None:
    machine, precision = wanted.machine, wanted.precision
    if precision in {"mxfp8", "nvfp4"} and not machine.is_blackwell:
        other = "fp8" if machine.has_fp8 else machine.best_precision
    elif (precision == "fp8" and not machine.has_fp8) or (
        precision == "bf16" and machine.best_precision != "bf16"
    ):
        other = machine.best_precision
    else:
        return
    raise OptionError(f"--precision {precision} — does not run on {machine.id} — use {other} there")


def _load(wanted: PlanRequest, layout: Folding, candidate: _Candidate) -> Load | None:
    """Return what a GPU must hold in a layout; `None` if the shape of the model is unknown."""
    if wanted.shape is None:
        return None
    tokens = wanted.seq_length * wanted.micro_batch
    stages = candidate.virtual_pipeline
    return Load(wanted.shape, layout, tokens, wanted.precision, stages, candidate.is_sharded)


def _plan_all(load: Load, candidate: _Candidate, wanted: PlanRequest) -> MemoryPlan:
    """Return the cheapest levers that make a load fit, or else what all of them leave."""
    least = _find_least(candidate, wanted)
    found = find_levers((load,), least, wanted.capacity_bytes)
    if found is not None:
        return found[1]
    last = list(list_stages(load.shape, least=least, is_sharded=load.is_sharded))[-1][-1]
    return load.plan_memory(last, wanted.capacity_bytes)


def _find_least(candidate: _Candidate, wanted: PlanRequest) -> Levers:
    """Return the levers of a published run, with gradients as the user wants them."""
    short = candidate.levers.short_gradients if wanted.short_gradients is None else wanted.short_gradients
    return replace(candidate.levers, short_gradients=short)


def _layout(wanted: PlanRequest) -> tuple[_Candidate, Folding]:
    """Return the first candidate that fits, else the first layout of a search that does.

    Candidates are published ones first. Of those that are possible but do not fit, the first is the answer if
    the search finds nothing either.

    Raises:
        LayoutError: none is possible; it names the one that needs the fewest GPUs.
    """
    refused: list[tuple[int, LayoutError]] = []
    possible: list[tuple[_Candidate, Folding]] = []
    for candidate in (*_candidates(wanted), *_with_fewer_experts(wanted)):
        sizes = wanted.fix_sizes(candidate.sizes)
        named = _with_given_sizes(candidate, sizes, wanted)
        try:
            layout = fold(sizes, wanted.gpus, wanted.model.experts)
            check_shards(wanted.seq_length, sizes.context)
            _check_shape(wanted, sizes, named.virtual_pipeline)
        except LayoutError as error:
            refused.append((sizes.fewest_gpus, error))
            continue
        excess = _find_excess(wanted, layout)
        if excess is not None:
            refused.append((sizes.fewest_gpus, excess))
            continue
        load = _load(wanted, layout, named)
        if load is None:
            return named, layout
        most = _ALL_BUT_WHOLE if named.source == _YOURS else _OWN_LEVERS
        found = find_levers((load,), _find_least(named, wanted), wanted.capacity_bytes, most)
        if found is not None:
            return replace(named, plan=found[1]), layout
        possible.append((named, layout))
    searched = _search(wanted) if not wanted.given.keys() >= _ALL_SIZES else None
    if searched is not None:
        return searched
    if possible:
        return possible[0]
    if not refused:
        raise LayoutError(
            f"{wanted.model.id} on {wanted.gpus} GPUs — fits in no layout, even with whole layers recomputed"
            " and the optimizer on the host — add GPUs, or shorten the sequence"
        )
    raise min(refused, key=lambda each: each[0])[1]


def _check_shape(wanted: PlanRequest, sizes: Sizes, virtual_stages: int | None) -> None:
    """Refuse sizes that do not divide the model.

    Raises:
        LayoutError: TP does not divide heads, or there are more stages than layers.
    """
    shape = wanted.shape
    if shape is None:
        return
    if shape.heads % sizes.tensor:
        raise LayoutError(
            f"TP{sizes.tensor} — {shape.heads} attention heads are not divisible by TP — change TP"
        )
    groups = 0 if shape.latent_rank else shape.groups
    if groups % sizes.tensor and sizes.tensor % groups:
        raise LayoutError(
            f"TP{sizes.tensor} — {shape.groups} query groups and TP do not divide each other — change TP"
        )
    if not shape.divides_linear(sizes.attention):
        raise LayoutError(
            f"TP{sizes.tensor} x CP{sizes.context} — {shape.linear_key_heads} heads of linear attention are"
            " not divisible by TP x CP — change TP or CP"
        )
    stages = sizes.pipeline * ((virtual_stages or 1) if sizes.pipeline > 1 else 1)
    if stages > shape.layers:
        raise LayoutError(
            f"PP{sizes.pipeline} x VPP{virtual_stages or 1} — {stages} stages are more than"
            f" {shape.layers} layers — change PP or VPP"
        )


def _search(wanted: PlanRequest) -> tuple[_Candidate, Folding] | None:
    """Return the first layout that fits: levers in the order of documents, then more PP, CP and TP."""
    usual, _ = context_and_tensor(wanted.seq_length, wanted.machine)
    widest = wanted.machine.nvlink_domain or _TENSOR[-1]

    def order(sizes: Sizes) -> tuple[float, ...]:
        far = abs(log2(sizes.context / usual))
        is_odd = sizes.tensor > widest or sizes.pipeline > _USUAL_STAGES or sizes.context > 2 * usual
        return is_odd, sizes.tensor, far, sizes.pipeline, sizes.expert

    source = _SEARCHED if next(_published(wanted), None) is not None else _LEAST
    found: list[_Candidate] = []
    loads: list[Load] = []
    for sizes in sorted(_feasible(wanted), key=order):
        if any(
            getattr(sizes, name) != size for name, size in wanted.given_sizes.items() if name in _ALL_SIZES
        ):
            continue
        candidate = _Candidate(wanted.fix_sizes(sizes), source, wanted.given.get(_VIRTUAL))
        try:
            _check_shape(wanted, candidate.sizes, candidate.virtual_pipeline)
            layout = fold(candidate.sizes, wanted.gpus, wanted.model.experts)
            count_accumulation(wanted.global_batch, wanted.micro_batch, layout.data)
        except LayoutError:
            continue
        if (load := _load(wanted, layout, candidate)) is not None:
            found.append(candidate)
            loads.append(load)
    fitting = find_levers(
        tuple(loads), _find_least(_Candidate(Sizes(), "", None), wanted), wanted.capacity_bytes
    )
    if fitting is None:
        return None
    index, plan = fitting
    return replace(found[index], plan=plan), loads[index].layout


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
    options = PRECISION_OPTIONS[wanted.precision]
    found = list_sharded_layouts(wanted.shape, wanted.gpus, wanted.seq_length, options, wanted.capacity_bytes)
    return tuple(
        one
        for one in found
        if all(getattr(one.layout.sizes, name) == given for name, given in wanted.given_sizes.items())
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
    wanted: PlanRequest,
    shape: ModelShape,
    layout: Folding,
    virtual_stages: int | None,
    options: MemoryOptions,
) -> MemoryEstimate:
    return estimate_memory(
        shape,
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
    given = wanted.given.get(_VIRTUAL)
    if not wanted.given or candidate.source == _YOURS or (sizes == candidate.sizes and given is None):
        return candidate.resize(sizes, candidate.source)
    if sizes == candidate.sizes and given == candidate.virtual_pipeline:
        return candidate
    keeps = sizes.pipeline == candidate.sizes.pipeline
    stages = given or (candidate.virtual_pipeline if keeps else None)
    source = f"{_YOURS}, the rest from {candidate.source}"
    return replace(candidate, sizes=sizes, source=source, virtual_pipeline=stages, levers=Levers())


def _candidates(wanted: PlanRequest) -> Iterator[_Candidate]:
    """Yield published configurations for this length, then presets, then starting sizes of heuristics.

    Of sizes that the user gives in full, only those of a published configuration are others' too.
    """
    published = tuple(_published(wanted))
    if wanted.given.keys() >= _ALL_SIZES:
        given = wanted.given.get(_VIRTUAL)
        freely = replace(wanted, given={})
        yield from (
            one
            for one in (*published, *_with_fewer_experts(freely))
            if one.sizes == wanted.fix_sizes(one.sizes) and given in {None, one.virtual_pipeline}
        )
        yield _Candidate(Sizes(), _YOURS, given)
    else:
        yield from published


def _published(wanted: PlanRequest) -> Iterator[_Candidate]:
    context, tensor = context_and_tensor(wanted.seq_length, wanted.machine)
    family = find_long_context(wanted.model.id, wanted.machine, wanted.seq_length)
    if family is not None:
        length = "this length" if family.seq_length == wanted.seq_length else f"{family.seq_length:,} tokens"
        source = f"published for {length}: {family.text}, with gradients in BF16"
        yield _Candidate(
            family.sizes,
            source,
            family.virtual_pipeline,
            levers=family.levers,
            dispatcher=family.dispatcher,
        )
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    near = nearest_presets(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision)
    for preset in near:
        sizes = preset.sizes
        if is_long or wanted.seq_length <= TOKENS_OF_A_RANK_COUNT:
            sizes = sizes.change(
                context=context, tensor=max(sizes.tensor, tensor) if is_long else sizes.tensor
            )
        changes = (", CP by sequence length" if is_long else "") + (
            ", fully sharded" if preset.fully_sharded else ""
        )
        source = f"preset {preset.name}{changes}, with gradients in BF16"
        yield _Candidate(
            sizes,
            source,
            preset.virtual_pipeline,
            preset.fully_sharded,
            levers=Levers(short_gradients=True),
        )
    start = wanted.model.start
    if start is not None:
        sizes = start.change(context=context, tensor=max(start.tensor, tensor))
        yield _Candidate(sizes, "heuristic sizes of the family", None)
    if wanted.shape is None and start is None and not near:
        yield _Candidate(Sizes(tensor=tensor, context=context), _LEAST, None)


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
    wanted: PlanRequest, chosen: _Candidate, layout: Folding, accumulation: int | None, levers: Levers
) -> Iterator[Item]:
    sizes = layout.sizes
    facts = _list_plan_facts(wanted, layout, levers)
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
        "recompute": ",".join(levers.recompute),
        "dispatcher": "flex" if chosen.dispatcher in {"deepep", "hybridep"} else chosen.dispatcher,
        "accumulation": f": {accumulation} micro-batches per step" if accumulation else "",
    }
    rules = [rule for rule in _rules() if evaluate(rule.when, lambda key: (key in facts, facts.get(key)))]
    for rule in sorted(rules, key=lambda rule: PHASES.index(rule.item.phase)):
        settings = tuple(setting.format_map(words) for setting in rule.item.settings)
        yield Item(rule.item.phase, rule.item.text.format_map(words), settings, rule.item.facts)


def _list_plan_facts(wanted: PlanRequest, layout: Folding, levers: Levers) -> dict[str, Value]:
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
        "recompute_granularity": _name_granularity(levers),
        "use_precision_aware_optimizer": levers.short_moments,
        "optimizer_cpu_offload": levers.offloads_optimizer,
        "plan_is_known": wanted.shape is not None,
    }


def _name_granularity(levers: Levers) -> Value:
    if not levers.recompute:
        return None
    return "full" if levers.recompute == ("full",) else "selective"


_TENSOR = (1, 2, 4, 8)
_MOST_STAGES = 64
_USUAL_STAGES = 16
"""The most pipeline stages of published layouts; a search takes more only if nothing else fits."""


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
    for sizes in _list_parallel_sizes(shape, gpus, seq_length):
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
    for sizes in _list_parallel_sizes(shape, gpus, seq_length):
        try:
            layout = fold(sizes, gpus, shape.experts or None)
        except LayoutError:
            continue
        if smallest_states(shape, layout) <= memory_bytes:
            yield layout


def _list_parallel_sizes(shape: ModelShape, gpus: int, seq_length: int) -> Iterator[Sizes]:
    contexts = [size for size in _divisors(gpus) if size == 1 or seq_length % (2 * size) == 0]
    experts = _divisors(shape.experts) if shape.experts else [1]
    for tensor in _TENSOR:
        if shape.heads % tensor:
            continue
        for pipeline in _divisors(gpus):
            if pipeline > min(_MOST_STAGES, shape.layers):
                break
            for context in contexts:
                if not shape.divides_linear(tensor * context):
                    continue
                yield from (Sizes(tensor, pipeline, context, expert) for expert in experts if expert <= gpus)


def _divisors(number: int) -> list[int]:
    return [size for size in range(1, number + 1) if number % size == 0]

"""A plan for a run that is yet to be: layout, checklist, and what was published nearby."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import log2

from wallscope.errors import LayoutError, OptionError
from wallscope.fixes.conditions import Clause, all_hold, clause
from wallscope.fixes.folding import folding
from wallscope.fixes.hardware import Machine
from wallscope.fixes.published import Model, bands, long_family, nearest
from wallscope.model.advice import Advice, Folding, Item, Sizes
from wallscope.model.configuration import Value
from wallscope.thresholds import (
    LONG_SEQUENCE_COUNT,
    TENSOR_FOR_CONTEXT_COUNT,
    TENSOR_FOR_CONTEXT_FROM_COUNT,
    TOKENS_OF_A_RANK_COUNT,
)

PRECISIONS = ("bf16", "fp8", "mxfp8", "nvfp4")
_NAMES = {"tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "etp": "expert_tensor"}
_YOURS = "your sizes"
_PHASES = ("freeze", "fit", "scale", "profile", "retune", "validate")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user tells of a run; sizes by field of `Sizes`, those left out are proposed."""

    model: Model
    machine: Machine
    gpus: int
    seq_length: int
    precision: str
    given: Mapping[str, int]
    global_batch: int | None = None
    micro_batch: int = 1


@dataclass(frozen=True, slots=True)
class _Candidate:
    sizes: Sizes
    source: str
    virtual_pipeline: int | None


@dataclass(frozen=True, slots=True)
class _Rule:
    item: Item
    when: tuple[Clause, ...]


def given_sizes(text: str | None) -> dict[str, int]:
    """Read `tp4,cp2,pp4,ep64`.

    >>> given_sizes("tp4,cp2,PP=4")
    {'tensor': 4, 'context': 2, 'pipeline': 4}

    Raises:
        OptionError: a part is no size, or is there twice.
    """
    found: dict[str, int] = {}
    for part in re.split(r"[\s,x]+", (text or "").strip().lower()):
        match = re.fullmatch(r"(tp|pp|cp|ep|etp)=?([1-9]\d{0,5})", part)
        name = _NAMES[match[1]] if match else ""
        if match is None or name in found:
            if not text:
                return {}
            raise OptionError(
                f"--layout {text} — {part!r} is no size of its own — write --layout tp4,cp2,pp4,ep64"
            )
        found[name] = int(match[2])
    return found


def context_rule(seq_length: int, machine: Machine) -> tuple[int, int]:
    """CP and TP for a sequence: a rank for 4,096 tokens, rounded to a power of two.

    On racks of one NVLink domain, from 128K on, TP takes its part and ranks hold 8,192 tokens.
    """
    if machine.is_rack and seq_length >= TENSOR_FOR_CONTEXT_FROM_COUNT:
        ranks = _power_of_two(seq_length / (2 * TOKENS_OF_A_RANK_COUNT))
        return max(ranks // TENSOR_FOR_CONTEXT_COUNT, 1), TENSOR_FOR_CONTEXT_COUNT
    return (
        _power_of_two(seq_length / TOKENS_OF_A_RANK_COUNT) if seq_length > TOKENS_OF_A_RANK_COUNT else 1
    ), 1


def _power_of_two(value: float) -> int:
    return int(2 ** max(round(log2(value)), 0))


def advised(wanted: Wanted) -> Advice:
    """The plan.

    Raises:
        LayoutError: no layout can be, with the reason.
        OptionError: the precision does not run on the machine.
    """
    if wanted.precision in {"mxfp8", "nvfp4"} and not wanted.machine.is_blackwell:
        other = "fp8" if wanted.machine.has_fp8 else "bf16"
        raise OptionError(
            f"--precision {wanted.precision} — does not run on {wanted.machine.id} — take {other} there"
        )
    if wanted.precision == "fp8" and not wanted.machine.has_fp8:
        raise OptionError(f"--precision fp8 — does not run on {wanted.machine.id} — take bf16 there")
    near = nearest(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision)
    chosen, layout = _layout(wanted)
    accumulation = _accumulation(wanted, layout)
    largest = _largest_expert(wanted, layout.sizes)
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    return Advice(
        schema="wallscope.advice/1",
        model=wanted.model.id,
        machine=wanted.machine.id,
        seq_length=wanted.seq_length,
        precision=wanted.precision,
        layout=layout,
        layout_source=chosen.source,
        largest_expert=largest,
        virtual_pipeline=chosen.virtual_pipeline if layout.sizes.pipeline > 1 else None,
        accumulation=accumulation,
        items=tuple(_items(wanted, chosen, layout, accumulation)),
        presets=near,
        bands=bands(wanted.model.id, wanted.machine, is_long=is_long),
    )


def _layout(wanted: Wanted) -> tuple[_Candidate, Folding]:
    """The first candidate that can be, the user's sizes in it, else the first that a smaller EP lets be.

    Raises:
        LayoutError: none can be; it speaks of the one that needs the fewest GPUs.
    """
    refused: list[tuple[int, LayoutError]] = []
    for candidate in (*_candidates(wanted), *_with_fewer_experts(wanted)):
        sizes = replace(candidate.sizes, **wanted.given)
        try:
            layout = folding(sizes, wanted.gpus, wanted.model.experts)
            _check_shards(wanted.seq_length, sizes.context)
        except LayoutError as error:
            refused.append((sizes.fewest_gpus, error))
        else:
            return _told_apart(candidate, sizes, wanted), layout
    raise min(refused, key=lambda each: each[0])[1]


def _with_fewer_experts(wanted: Wanted) -> Iterator[_Candidate]:
    """The candidates whose experts need more GPUs than there are, with as many as fit in a group."""
    if "expert" in wanted.given:
        return
    for candidate in _candidates(wanted):
        sizes = replace(candidate.sizes, **wanted.given)
        if sizes.experts * sizes.pipeline > wanted.gpus:
            fewer = replace(candidate.sizes, expert=_largest_expert(wanted, sizes))
            yield replace(candidate, sizes=fewer, source=f"{candidate.source}, EP lowered to what fits")


def _check_shards(seq_length: int, context: int) -> None:
    if context > 1 and seq_length % (2 * context):
        raise LayoutError(
            f"sequence {seq_length:,} — does not divide by 2 x CP = 2 x {context} — change its length or CP"
        )


def _told_apart(candidate: _Candidate, sizes: Sizes, wanted: Wanted) -> _Candidate:
    """The candidate with the user's sizes, which void the stages that went with others."""
    if not wanted.given or candidate.source == _YOURS:
        return replace(candidate, sizes=sizes)
    keeps = sizes.pipeline == candidate.sizes.pipeline
    said = f"{_YOURS}, the rest from {candidate.source}"
    return _Candidate(sizes, said, candidate.virtual_pipeline if keeps else None)


def _candidates(wanted: Wanted) -> Iterator[_Candidate]:
    """Published for this length, then presets of the family nearby, then what heuristics start from."""
    context, tensor = context_rule(wanted.seq_length, wanted.machine)
    is_complete = {"tensor", "pipeline", "context", "expert"} <= set(wanted.given)
    if is_complete:
        yield _Candidate(Sizes(), _YOURS, None)
        return
    family = long_family(wanted.model.id, wanted.machine, wanted.seq_length)
    if family is not None:
        length = "this length" if family.seq_length == wanted.seq_length else f"{family.seq_length:,} tokens"
        yield _Candidate(family.sizes, f"published for {length}: {family.text}", family.virtual_pipeline)
    is_long = wanted.seq_length > LONG_SEQUENCE_COUNT
    count = 0
    for preset in nearest(wanted.model.id, wanted.machine, wanted.gpus, wanted.precision):
        sizes = preset.sizes
        if is_long or wanted.seq_length <= TOKENS_OF_A_RANK_COUNT:
            sizes = replace(
                sizes, context=context, tensor=max(sizes.tensor, tensor) if is_long else sizes.tensor
            )
        said = f"preset {preset.name}" + (", CP by sequence length" if is_long else "")
        count += 1
        yield _Candidate(sizes, said, preset.virtual_pipeline)
    start = wanted.model.start
    if start is not None:
        count += 1
        sizes = replace(start, context=context, tensor=max(start.tensor, tensor))
        yield _Candidate(sizes, "heuristic sizes of the family", None)
    if count == 0:
        sizes = Sizes(tensor=tensor, context=context)
        yield _Candidate(sizes, "smallest sizes; nothing is published", None)


def _largest_expert(wanted: Wanted, sizes: Sizes) -> int:
    """The largest EP that GPUs, PP, ETP and the number of experts leave."""
    room, rest = divmod(wanted.gpus, sizes.pipeline * sizes.expert_tensor)
    if rest or not room:
        return 1
    experts = wanted.model.experts or room
    return max(each for each in range(1, room + 1) if room % each == 0 and experts % each == 0)


def _accumulation(wanted: Wanted, layout: Folding) -> int | None:
    if wanted.global_batch is None:
        return None
    each = layout.data * wanted.micro_batch
    if wanted.global_batch % each:
        raise LayoutError(
            f"global batch {wanted.global_batch} — is no multiple of DP x micro-batch = {layout.data} x "
            f"{wanted.micro_batch} — change the batch"
        )
    return wanted.global_batch // each


@cache
def _rules() -> tuple[_Rule, ...]:
    text = (files("wallscope.fixes") / "advice.toml").read_text(encoding="utf-8")
    return tuple(
        _Rule(
            Item(table["phase"], table["text"], tuple(table.get("settings", [])), tuple(table["facts"])),
            tuple(map(clause, table.get("when", []))),
        )
        for table in tomllib.loads(text)["advice"]
    )


def _items(wanted: Wanted, chosen: _Candidate, layout: Folding, accumulation: int | None) -> Iterator[Item]:
    sizes = layout.sizes
    facts = _facts(wanted, layout)
    first = _power_of_two(wanted.seq_length / TOKENS_OF_A_RANK_COUNT)
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
        "accumulation": f": {accumulation} micro-batches a step" if accumulation else "",
    }
    rules = [rule for rule in _rules() if all_hold(rule.when, lambda key: (key in facts, facts.get(key)))]
    for rule in sorted(rules, key=lambda rule: _PHASES.index(rule.item.phase)):
        settings = tuple(setting.format_map(words) for setting in rule.item.settings)
        yield replace(rule.item, text=rule.item.text.format_map(words), settings=settings)


def _facts(wanted: Wanted, layout: Folding) -> dict[str, Value]:
    """What conditions of the checklist may ask for."""
    sizes = layout.sizes
    return {
        **wanted.machine.facts().settings(),
        "seq_length": wanted.seq_length,
        "vision": wanted.model.vision,
        "tensor_model_parallel_size": sizes.tensor,
        "pipeline_model_parallel_size": sizes.pipeline,
        "context_parallel_size": sizes.context,
        "expert_model_parallel_size": sizes.expert,
        "data_parallel_size": layout.data,
    }

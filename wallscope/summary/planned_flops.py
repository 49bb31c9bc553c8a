"""Whether the kernels of a rank are those that its configuration plans, and the FLOPs that they then have.

A configuration is believed only if the kernels fit it. Their number shows layers and micro-batches, and
whether the steps train. The blocks of their grids show tokens and sequence, where names give the size of a
tile. What neither can show is not checked.
"""

import itertools
import math
import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, Rows, as_integers, combine_codes, find_places, sum_by_group
from wallscope.model.capture import Capture
from wallscope.model.enums import ComputeCategory, OperationClass
from wallscope.model.planned_work import PlanMismatch, PlannedPart, PlannedWork
from wallscope.records import dataclass
from wallscope.summary.kernel_work import ADDING
from wallscope.thresholds.causes import PLANNED_KERNELS_SHARE
from wallscope.thresholds.verdict import MATERIAL_SHARE

_GEMM, _GROUPED, _ATTENTION = (
    CATEGORIES.index(one)
    for one in (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.ATTENTION)
)
_BACKWARD = r"(?i)bwd|backward|bprop|dgrad|dot_do_o|convert_dq|dq_dk_dv"
_COMBINING = r"(?i)combine|reduce"
_TILE = re.compile(r"(?<![\dA-Za-z])(\d{2,3})x(\d{2,3})(?:x\d+)?(?=_|\b)")
_PASSES = {1: "forward", 3: "training", 4: "recomputing"}
"""How often each multiplication of the forward pass occurs in a step, and what the step then is."""
_MOST_MICRO_BATCHES = 512
_PRODUCTS_OF_ATTENTION = 2
_MOST_ODD = 3
"""Kernels of a micro-batch outside layers that may look like those of layers."""
_WHOLE = frozenset((1,))
_MOST_PARTS = 16
"""Blocks among which a library divides the sum of one tile, at most."""
_SWIZZLES = {1: 1, 2: 2, 4: 3, 8: 6}
"""Numbers of tiles in a row that CUTLASS rounds up to, from so many tiles on."""


class PlannedFlops(NamedTuple):
    """FLOPs of a step in one category of kernels: model, executed, and with masked pairs."""

    model: int
    executed: int
    whole_square: int


@dataclass(frozen=True, slots=True)
class FittedPlan:
    """A plan that the kernels fit: its FLOPs of a step by category; `None` with what contradicts it."""

    flops: dict[ComputeCategory, PlannedFlops]
    mismatch: PlanMismatch | None = None


class _Launches(NamedTuple):
    """Kernels with one name and grid, and how many of them a step has on average."""

    name: str
    blocks: int | None
    runs: float
    time_ns: int


def fit_plan(work: TypicalWork, capture: Capture, plan: PlannedWork, rows: Rows) -> FittedPlan:
    """Compare a plan with the kernels of a typical step, and return the FLOPs that they have by it.

    Args:
        work: the typical step of the rank.
        capture: with names and grids of kernels.
        plan: of the rank.
        rows: its compute kernels that repeat no work.
    """
    hidden_ns = work.total_ns(work.rows_of(OperationClass.OPAQUE_GRAPH))
    if hidden_ns > MATERIAL_SHARE * max(work.total_ns(rows), 1):
        return FittedPlan({}, PlanMismatch.HIDDEN_KERNELS)
    products = _list_launches(work, capture, rows, _GEMM)
    grouped = _list_launches(work, capture, rows, _GROUPED)
    attention = _list_launches(work, capture, rows, _ATTENTION)
    forward = [
        one for one in attention if not re.search(_BACKWARD, one.name) and not re.search(_COMBINING, one.name)
    ]
    is_fused, has_grouped = bool(forward), bool(grouped)
    passes = _find_passes(plan, products, forward, has_grouped=has_grouped)
    if isinstance(passes, PlanMismatch):
        return FittedPlan({}, passes)
    divides = bool(_list_launches(work, capture, rows, _GEMM, adds=True))
    if not _has_widths(plan, passes, products, divides=divides):
        return FittedPlan({}, PlanMismatch.OTHER_TOKENS)
    if not _has_scores(plan, passes, forward if is_fused else products, is_fused=is_fused):
        return FittedPlan({}, PlanMismatch.OTHER_SEQUENCE)
    return FittedPlan(dict(_add_parts(plan.parts, passes.times, is_fused=is_fused, has_grouped=has_grouped)))


class _Passes(NamedTuple):
    """How often each multiplication of the forward pass occurs in a micro-batch, and how many those are."""

    times: int
    micro_batches: int


def _list_launches(
    work: TypicalWork, capture: Capture, rows: Rows, category: int, *, adds: bool = False
) -> list[_Launches]:
    """Return the kernels of a category that multiply, or those that only add, by name and blocks."""
    columns = work.columns
    is_adding: Flags = capture.names["text"].str.contains(ADDING).to_numpy()
    own = rows[(columns.category[rows] == category) & columns.begins[rows]]
    own = own[is_adding[columns.name[own]] == adds]
    place = find_places(columns.op[own], capture.kernels["op"].to_numpy())
    blocks = np.append(as_integers(capture.kernels["blocks"], -1), -1)[place].astype(np.int64)
    size = int(blocks.max(initial=0)) + 2
    (name, shape), group = combine_codes(
        (len(capture.names), size), columns.name[own].astype(np.int64), blocks + 1
    )
    count = np.bincount(group, minlength=name.size)
    time_ns = sum_by_group(group, columns.inside_ns[own], name.size)
    texts, steps = capture.names["text"], work.steps.start_ns.size
    return [
        _Launches(texts[one], each - 1 if each else None, number / steps, spent)
        for one, each, number, spent in zip(
            name.tolist(), shape.tolist(), count.tolist(), time_ns.tolist(), strict=True
        )
    ]


def _find_passes(
    plan: PlannedWork, products: list[_Launches], forward: list[_Launches], *, has_grouped: bool
) -> _Passes | PlanMismatch:
    """Find how the number of kernels is that of the layers and micro-batches, or say that it is not."""
    if plan.expert_layers and not has_grouped:
        return PlanMismatch.OTHER_LAYERS  # products of single experts are as many as the routing needs
    number, turns = (sum(one.runs for one in each) for each in (products, forward))
    extra = 0 if forward else _PRODUCTS_OF_ATTENTION
    counts = {
        (plan.layers - plan.expert_layers) * (of_dense + extra)
        + plan.expert_layers * (of_experts + extra)
        + plan.other_products
        for of_dense in plan.layer_products
        for of_experts in plan.expert_products
    }
    batches = [plan.micro_batches] if plan.micro_batches else range(1, _MOST_MICRO_BATCHES)
    for times, batch, count in itertools.product(_PASSES, batches, sorted(counts)):
        is_counted = math.isclose(number, count * times * batch)
        repeats = turns / (plan.layers * batch)
        if is_counted and (not turns or repeats in {1, max(1, times - 2)}):
            found = _Passes(times, batch)
            if _repeats_layers(plan, found, products):
                return found
    if turns and turns % plan.layers:
        return PlanMismatch.OTHER_ATTENTION
    return PlanMismatch.OTHER_LAYERS


def _repeats_layers(plan: PlannedWork, passes: _Passes, products: list[_Launches]) -> bool:
    """Return whether most time is in kernels that occur a whole number of times in each layer."""
    each, odd = plan.layers * passes.micro_batches, _MOST_ODD * passes.micro_batches
    if plan.expert_layers not in {0, plan.layers}:
        return True
    total_ns = sum(one.time_ns for one in products)
    fitting_ns = sum(one.time_ns for one in products if one.runs % each <= odd)
    return fitting_ns >= PLANNED_KERNELS_SHARE * total_ns


def _has_widths(plan: PlannedWork, passes: _Passes, products: list[_Launches], *, divides: bool) -> bool:
    """Return whether kernels have the outputs of each micro-batch, where tiles show it.

    Sums that are divided among blocks have more of them; such outputs count only where all are so.
    """
    tokens, tiled = Fraction(plan.tokens, passes.micro_batches), _select_tiled(products)
    if tokens.denominator != 1:
        return False
    if tiled is None:
        return True
    found = [_count_blocks(tiled, int(tokens), width) for width in plan.widths]
    is_whole = [each >= _WHOLE for each in found]
    return all(is_whole) or (divides and all(found) and not any(is_whole))


def _has_scores(plan: PlannedWork, passes: _Passes, kernels: list[_Launches], *, is_fused: bool) -> bool:
    """Return whether the grids of attention fit sequences and heads, where they show it."""
    sequences = Fraction(plan.tokens, passes.micro_batches * plan.sequence)
    if sequences.denominator != 1:
        return False
    times = int(sequences) * plan.heads
    if is_fused:  # persistent kernels have about as many blocks as the GPU has multiprocessors
        return all(not one.blocks or one.blocks < times or not one.blocks % times for one in kernels)
    tiled = _select_tiled(kernels)
    return tiled is None or _count_blocks(tiled, plan.sequence, plan.sequence, times) >= _WHOLE


def _select_tiled(kernels: list[_Launches]) -> list[_Launches] | None:
    """Return the kernels whose names give the size of a tile; `None` if these are not most of them."""
    tiled = [one for one in kernels if one.blocks and _TILE.search(one.name)]
    tiled_ns, all_ns = (sum(one.time_ns for one in each) for each in (tiled, kernels))
    return tiled if tiled_ns >= PLANNED_KERNELS_SHARE * all_ns else None


def _count_blocks(tiled: Iterable[_Launches], rows: int, columns: int, times: int = 1) -> set[int]:
    """Return by how many blocks each tile of an output of this size is computed in any of the kernels."""
    found = set()
    for one in tiled:
        sizes = _TILE.search(one.name)
        if sizes is None or one.blocks is None:
            continue
        for first, second in itertools.permutations(map(int, sizes.groups())):
            across = -(-columns // second)
            for together in (each for each, least in _SWIZZLES.items() if across >= least):
                needed = -(-rows // first) * round_up(across, together) * times
                parts, rest = divmod(one.blocks, needed)
                if not rest and parts <= _MOST_PARTS:
                    found.add(parts)
    return found


def round_up(number: int, step: int) -> int:
    """Return the next multiple of a step.

    >>> round_up(5, 4), round_up(8, 4)
    (8, 8)
    """
    return -(-number // step) * step


def _add_parts(
    parts: Iterable[PlannedPart], times: int, *, is_fused: bool, has_grouped: bool
) -> Iterator[tuple[ComputeCategory, PlannedFlops]]:
    """Yield the FLOPs of a step in each category of kernels."""
    sums: dict[ComputeCategory, list[Fraction]] = {}
    for part in parts:
        category, gradients = part.category, Fraction(part.gradients)
        executed = part.flops or part.whole_flops
        if category is ComputeCategory.ATTENTION and not is_fused:
            category, executed = ComputeCategory.GEMM, part.whole_flops
        elif category is ComputeCategory.ATTENTION:
            gradients = part.executed_gradients
        if category is ComputeCategory.GROUPED_GEMM and not has_grouped:
            category = ComputeCategory.GEMM
        needed = part.flops * (1 if times == 1 else 1 + part.gradients)
        whole = part.whole_flops * (1 if times == 1 else 1 + part.gradients) if part.flops else Fraction(0)
        ran = executed * (1 if times == 1 else times - 2 + gradients)
        found = sums.setdefault(category, [Fraction(0)] * 3)
        sums[category] = [old + new for old, new in zip(found, (needed, ran, whole), strict=True)]
    for category, (needed, ran, whole) in sums.items():
        yield category, PlannedFlops(round(needed), round(ran), round(whole))

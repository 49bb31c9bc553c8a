"""Whether the kernels of a rank are those that its configuration plans, and the FLOPs that they then have.

A configuration is believed only if the kernels fit it. Their number shows layers and micro-batches, and
whether the steps train. The blocks of their grids show tokens and sequence, where names give the size of a
tile. What neither can show is not checked.
"""

import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, Rows, as_integers, combine_codes, find_places, sum_by_group
from wallscope.model.capture import Capture
from wallscope.model.enums import ComputeCategory, OperationClass, Precision
from wallscope.model.planned_work import PlanMismatch, PlannedKind, PlannedWork
from wallscope.records import dataclass
from wallscope.summary.kernel_bytes import list_block_elements
from wallscope.summary.kernel_work import ADDING, MULTIPLYING
from wallscope.thresholds.causes import PLANNED_KERNELS_SHARE
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.kernel_classes import infer_precisions

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
_OF_LAYERS = (
    *(PlannedKind.LAYERS, PlannedKind.ROUTER, PlannedKind.EXPERTS, PlannedKind.ATTENTION),
    PlannedKind.MIXING,
)
_MIXING = r"(?i)chunk_|scan|delta_|state_|conv1d|mamba|ssm_|_w_u|_wy_|solve_tril|merge_16x16"
"""Kernels of category `other` that mix tokens in state spaces and delta rules."""
_MASKING = r"where_kernel|masked_fill"
_PLAIN = "at::native::"
"""In names of kernels that PyTorch runs one by one."""
_WHOLE = frozenset((1,))
_MOST_PARTS = 16
"""Blocks among which a library divides the sum of one tile, at most."""
_SWIZZLES = {1: 1, 2: 2, 4: 3, 8: 6}
"""Numbers of tiles in a row that CUTLASS rounds up to, from so many tiles on."""


class PlannedFlops(NamedTuple):
    """FLOPs of a step in one category of kernels: model, executed, with masked pairs, and repeated ones.

    They belong to its kernels in one `precision`; if that is `None`, in all that no other entry names.
    """

    category: ComputeCategory
    precision: Precision | None
    model: int
    executed: int
    whole_square: int
    repeated: int


@dataclass(frozen=True, slots=True)
class FittedPlan:
    """A plan that the kernels fit: its FLOPs of a step; none with what contradicts it.

    `knows_repeats` is whether the FLOPs of kernels that repeat forward work are known. `shows_sequence` is
    whether any kernel shows how tokens are divided into sequences.
    """

    flops: tuple[PlannedFlops, ...] = ()
    mismatch: PlanMismatch | None = None
    knows_repeats: bool = True
    shows_sequence: bool = False


class _Launches(NamedTuple):
    """Kernels with one name and grid, and how many of them a step has on average."""

    name: str
    precision: Precision
    blocks: int | None
    runs: float
    time_ns: int


def fit_plan(work: TypicalWork, capture: Capture, plan: PlannedWork, rows: Rows, again: Rows) -> FittedPlan:
    """Compare a plan with the kernels of a typical step, and return the FLOPs that they have by it.

    Args:
        work: the typical step of the rank.
        capture: with names and grids of kernels.
        plan: of the rank.
        rows: its compute kernels that repeat no work.
        again: those that do.
    """
    hidden_ns = work.total_ns(work.rows_of(OperationClass.OPAQUE_GRAPH))
    if hidden_ns > MATERIAL_SHARE * max(work.total_ns(rows), 1):
        return FittedPlan(mismatch=PlanMismatch.HIDDEN_KERNELS)
    fresh, repeated = (_list_multiplying(work, capture, each) for each in (rows, again))
    passes = _find_passes(plan, fresh)
    if not isinstance(passes, PlanMismatch) and not _has_mixing(work, capture, plan, passes, rows):
        passes = PlanMismatch.OTHER_LAYERS
    if isinstance(passes, PlanMismatch):
        return FittedPlan(mismatch=passes)
    divides = bool(_list_launches(work, capture, rows, _GEMM, adds=True))
    if not _has_widths(plan, passes, fresh.products, divides=divides):
        return FittedPlan(mismatch=PlanMismatch.OTHER_TOKENS)
    is_fused = bool(fresh.attention)
    if not _has_scores(plan, passes, fresh.attention or fresh.products, is_fused=is_fused):
        return FittedPlan(mismatch=PlanMismatch.OTHER_SEQUENCE)
    shows_sequence = None if is_fused else _has_masks(plan, passes, _list_pointwise(work, capture, rows))
    if shows_sequence is False:
        return FittedPlan(mismatch=PlanMismatch.OTHER_SEQUENCE)
    repeats = _count_repeats(plan, passes, repeated)
    kept = _find_kept(plan, passes, fresh.products, is_fused=is_fused)
    sums = _add_parts(plan, passes, kept, repeats or {}, is_fused=is_fused)
    return FittedPlan(tuple(sums), None, repeats is not None, shows_sequence is True)


def select_mixing(work: TypicalWork, capture: Capture, rows: Rows) -> Rows:
    """Return the rows of kernels of state spaces and delta rules."""
    mixes: Flags = capture.names["text"].str.contains(_MIXING).to_numpy()
    is_own: Flags = work.columns.category[rows] == CATEGORIES.index(ComputeCategory.OTHER)
    return rows[is_own & mixes[work.columns.name[rows]]]


def _has_mixing(
    work: TypicalWork, capture: Capture, plan: PlannedWork, passes: "_Passes", rows: Rows
) -> bool:
    """Return whether each layer with a state space or a delta rule has as many kernels of these."""
    if not plan.mixing_layers:
        return True
    begun = int(work.columns.begins[select_mixing(work, capture, rows)].sum())
    each = plan.mixing_layers * passes.micro_batches * work.steps.start_ns.size
    return begun > 0 and begun % each == 0


class _Multiplying(NamedTuple):
    """Kernels that multiply, without those that only add: matrices, grouped ones, attention forward."""

    products: list[_Launches]
    grouped: list[_Launches]
    attention: list[_Launches]


class _Passes(NamedTuple):
    """How often each multiplication of the forward pass occurs in a micro-batch, and how many those are.

    In `alone` of these passes, each expert has a kernel of its own; it has a part of a grouped one in others.
    """

    times: int
    micro_batches: int
    alone: int


def _list_multiplying(work: TypicalWork, capture: Capture, rows: Rows) -> _Multiplying:
    attention = [
        one
        for one in _list_launches(work, capture, rows, _ATTENTION)
        if not re.search(_BACKWARD, one.name) and not re.search(_COMBINING, one.name)
    ]
    products, grouped = (_list_launches(work, capture, rows, each) for each in (_GEMM, _GROUPED))
    return _Multiplying(products, grouped, attention)


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
    told = infer_precisions(capture.names)["precision"]
    return [
        _Launches(texts[one], Precision(told[one]), each - 1 if each else None, number / steps, spent)
        for one, each, number, spent in zip(
            name.tolist(), shape.tolist(), count.tolist(), time_ns.tolist(), strict=True
        )
    ]


def _find_passes(plan: PlannedWork, found: _Multiplying) -> _Passes | PlanMismatch:
    """Find how the number of kernels is that of the layers and micro-batches, or say that it is not."""
    number, grouped, turns = (sum(one.runs for one in each) for each in found)
    counts = sorted(_count_products(plan, is_fused=bool(found.attention)))
    batches = [plan.micro_batches] if plan.micro_batches else range(1, _MOST_MICRO_BATCHES)
    for times, batch, count in itertools.product(_PASSES, batches, counts):
        wanted = plan.attention_layers * batch
        if turns and turns not in {wanted, wanted * max(1, times - 2)}:
            continue
        for alone, singles in _list_single_experts(plan, times, grouped / batch):
            fitting = _Passes(times, batch, alone)
            is_counted = math.isclose(number, (count * times + singles) * batch)
            if is_counted and _repeats_layers(plan, fitting, found.products):
                return fitting
    if turns and (not plan.attention_layers or turns % plan.attention_layers):
        return PlanMismatch.OTHER_ATTENTION
    return PlanMismatch.OTHER_LAYERS


def _count_products(plan: PlannedWork, *, is_fused: bool) -> set[int]:
    """Return how many matrix multiplications the forward pass of a micro-batch may be, without experts."""
    extra = 0 if is_fused else _PRODUCTS_OF_ATTENTION
    found = {plan.other_products}
    for kind in plan.layers:
        of_kind = [kind.count * (each + extra * kind.has_attention) for each in kind.products]
        found = {one + each for one in found for each in of_kind}
    return found


def _list_single_experts(plan: PlannedWork, times: int, grouped: float) -> Iterator[tuple[int, int]]:
    """Yield in how many passes experts may have kernels of their own, and how many a micro-batch has.

    If only a part of the passes is grouped, it is not the gradient of the weights, whose sums are over the
    rows of an expert.
    """
    if not plan.expert_layers:
        yield 0, 0
        return
    if grouped:
        yield 0, 0
    of_layers = [plan.expert_layers * one for one in plan.expert_matrices]
    is_partial = times > 1 and grouped in {each * (times - 1) for each in of_layers}
    if grouped and not is_partial:
        return
    alone = 1 if is_partial else times
    yield from ((alone, alone * each * local) for each in of_layers for local in plan.local_experts)


def _count_repeats(
    plan: PlannedWork, passes: _Passes, again: _Multiplying
) -> dict[PlannedKind, Fraction] | None:
    """Return the FLOPs of a step that repeat forward work, by kind; `None` if kernels do not show them.

    Whole layers are known by their number of kernels, parts of layers by the settings of the plan.
    """
    products, grouped, attentions = (sum(one.runs for one in each) / passes.micro_batches for each in again)
    if not products and not grouped and not attentions:
        return {}
    if plan.repeat is not None and products in plan.repeat.products and attentions == plan.repeat.attentions:
        return dict(plan.repeat.flops)
    if len(plan.layers) != 1:
        return None
    (kind,) = plan.layers
    for count in range(1, kind.count + 1):
        again_attentions = count * kind.has_attention
        if attentions == again_attentions and products in {0, *(count * one for one in kind.products)}:
            kinds = {PlannedKind.ATTENTION} if not products and not grouped else set(_OF_LAYERS)
            forward = {part.kind: part.flops or part.whole_flops for part in plan.parts if part.kind in kinds}
            return {one: flops * count / kind.count for one, flops in forward.items()}
    return None


def _find_kept(
    plan: PlannedWork, passes: _Passes, products: list[_Launches], *, is_fused: bool
) -> dict[PlannedKind, Precision]:
    """Return the kinds of multiplications that are in another precision than most, by their numbers.

    Routers, output layers and scores often stay in more bits than linear layers.
    """
    times = Counter[Precision]()
    runs = dict.fromkeys(Precision, 0.0)
    for one in products:
        times[one.precision] += one.time_ns
        runs[one.precision] += one.runs
    numbers = {
        PlannedKind.ROUTER: plan.expert_layers,
        PlannedKind.HEAD: plan.output_products,
        PlannedKind.ATTENTION: 0 if is_fused else _PRODUCTS_OF_ATTENTION * plan.attention_layers,
    }
    found: dict[PlannedKind, Precision] = {}
    for precision, _ in times.most_common()[1:]:
        free = [kind for kind, number in numbers.items() if number and kind not in found]
        fitting = [
            kinds
            for size in range(1, len(free) + 1)
            for kinds in itertools.combinations(free, size)
            if math.isclose(
                runs[precision], sum(numbers[one] for one in kinds) * passes.times * passes.micro_batches
            )
        ]
        if len(fitting) == 1:
            found |= dict.fromkeys(fitting[0], precision)
    return found


def _repeats_layers(plan: PlannedWork, passes: _Passes, products: list[_Launches]) -> bool:
    """Return whether most time is in kernels that occur a whole number of times in each layer."""
    if len(plan.layers) != 1:
        return True
    each, odd = plan.layers[0].count * passes.micro_batches, _MOST_ODD * passes.micro_batches
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
    if sequences.denominator != 1 or not plan.attention_layers:
        return sequences.denominator == 1
    times = int(sequences) * plan.heads
    if is_fused:  # persistent kernels have about as many blocks as the GPU has multiprocessors
        return all(not one.blocks or one.blocks < times or not one.blocks % times for one in kernels)
    tiled = _select_tiled(kernels)
    return tiled is None or _count_blocks(tiled, plan.sequence, plan.sequence, times) >= _WHOLE


def _list_pointwise(work: TypicalWork, capture: Capture, rows: Rows) -> list[_Launches]:
    """Return the kernels that do not multiply, by name and blocks."""
    return [
        one
        for category in np.unique(work.columns.category[rows]).tolist()
        if CATEGORIES[category] not in MULTIPLYING
        for one in _list_launches(work, capture, rows, category)
    ]


def _has_masks(plan: PlannedWork, passes: _Passes, kernels: list[_Launches]) -> bool | None:
    """Return whether a kernel masks the scores of each layer, by its elements; `None` if that cannot be seen.

    A causal mask is applied to scores outside multiplications. Where no kernel is named after a mask, any
    pointwise one may apply it, and other tensors may have as many elements as the scores.
    """
    if not plan.is_causal or not plan.attention_layers:
        return None
    scores = plan.tokens // passes.micro_batches * plan.heads * plan.sequence
    of_layers = [one for one in kernels if one.runs >= plan.attention_layers * passes.micro_batches]
    pointwise = [one for one in of_layers if one.blocks and list_block_elements(one.name)]
    masks = [one for one in pointwise if re.search(_MASKING, one.name)]
    has_one = any(
        -(-scores // size) == one.blocks
        for one in masks or pointwise
        for size in list_block_elements(one.name)
    )
    if masks or not has_one:
        return has_one if masks or (of_layers and all(_PLAIN in one.name for one in of_layers)) else None
    return None


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
    plan: PlannedWork,
    passes: _Passes,
    kept: Mapping[PlannedKind, Precision],
    repeats: Mapping[PlannedKind, Fraction],
    *,
    is_fused: bool,
) -> Iterator[PlannedFlops]:
    """Yield the FLOPs of a step in each category of kernels, and apart those in a precision of their own."""
    sums: dict[tuple[ComputeCategory, Precision | None], list[Fraction]] = {}
    repeated = dict(repeats)

    def add(category: ComputeCategory, kind: PlannedKind, *flops: Fraction) -> None:
        key = category, kept.get(kind) if category is ComputeCategory.GEMM else None
        sums[key] = [old + new for old, new in zip(sums.get(key, [Fraction(0)] * 4), flops, strict=True)]

    times = passes.times
    for part in plan.parts:
        category, gradients = part.category, Fraction(part.gradients)
        executed = part.flops or part.whole_flops
        if part.kind is PlannedKind.ATTENTION and not is_fused:
            category, executed = ComputeCategory.GEMM, part.whole_flops
        elif part.kind is PlannedKind.ATTENTION:
            gradients = part.executed_gradients
        needed = part.flops * (1 if times == 1 else 1 + part.gradients)
        whole = part.whole_flops * (1 if times == 1 else 1 + part.gradients) if part.flops else Fraction(0)
        ran = executed * (1 if times == 1 else times - 2 + gradients)
        flops = needed, ran, whole
        if part.kind is PlannedKind.EXPERTS and passes.alone:
            share = Fraction(passes.alone, times)
            add(ComputeCategory.GEMM, part.kind, *(one * share for one in flops), Fraction(0))
            flops = needed * (1 - share), ran * (1 - share), whole * (1 - share)
            category = ComputeCategory.GEMM if share == 1 else category
        add(category, part.kind, *flops, repeated.pop(part.kind, Fraction(0)))
    for (category, precision), (needed, ran, whole, again) in sums.items():
        yield PlannedFlops(category, precision, *map(round, (needed, ran, whole, again)))

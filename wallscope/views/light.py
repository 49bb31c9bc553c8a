"""What is said of the ledger from the ideal to the measured step: how near to the peak, and the largest loss.

Numbers describe the typical step. Where something is unknown, the text says what makes it known.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from wallscope import units
from wallscope.advice.measurements import is_near_peak
from wallscope.model.advice import Fix
from wallscope.model.enums import ComputeCategory, Precision, Wall
from wallscope.model.planned_work import PlanMismatch
from wallscope.model.speed_of_light import (
    OF_MATRICES,
    BelowPeak,
    LedgerEntry,
    LedgerLine,
    LossUnknown,
    MatrixWork,
    SpeedOfLight,
)
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    NAMED_LOSS_SHARE,
    NAMED_UNCOUNTED_SHARE,
    SHOWN_LINE_SHARE,
)

_SLOW = (Precision.FP32, Precision.TF32, Precision.FP64)
_SIXTEEN_BITS = (Precision.BF16, Precision.FP16)
_LOSSES = frozenset(
    (
        LedgerLine.PRECISION,
        LedgerLine.COMPUTED_TWICE,
        LedgerLine.EMULATED_PRECISION,
        LedgerLine.BELOW_PEAK,
        LedgerLine.ABOVE_FLOOR,
    )
)
"""Lines of compute kernels that are lost, in proven size."""
LINE_WALLS: Final = {
    LedgerLine.RECOMPUTATION: Wall.MEMORY,
    LedgerLine.EXPOSED_COMMUNICATION: Wall.COMMUNICATION,
    LedgerLine.COPIES: Wall.MEMORY,
    LedgerLine.HOST: Wall.HOST,
    LedgerLine.OPAQUE_GRAPHS: Wall.UNATTRIBUTED,
    LedgerLine.UNATTRIBUTED: Wall.UNATTRIBUTED,
}
"""Lines that are not compute, and their walls."""
_NAMES = {
    LedgerLine.HAND_OVER: "gaps between kernels",
    LedgerLine.RECOMPUTATION: "recomputation",
    LedgerLine.EXPOSED_COMMUNICATION: "exposed communication",
    LedgerLine.COPIES: "copies",
    LedgerLine.HOST: "host",
    LedgerLine.OPAQUE_GRAPHS: "opaque graphs",
    LedgerLine.UNATTRIBUTED: "unattributed",
    LedgerLine.AT_BANDWIDTH: "memory-bound at bandwidth",
    LedgerLine.ABOVE_FLOOR: "memory-bound above bandwidth",
}
_SOURCES = {"shapes": "operator shapes", "user": "your count", "configuration": "configuration"}
_MISMATCHES = {
    PlanMismatch.SIZES_UNKNOWN: "it lacks sizes of the model, or they do not fit each other",
    PlanMismatch.MODEL_UNKNOWN: "the FLOPs of its kind of model are not known",
    PlanMismatch.BATCH_UNKNOWN: "it lacks sequence length, batch or number of GPUs",
    PlanMismatch.STAGE_UNKNOWN: "the pipeline stage of the rank is unknown",
    PlanMismatch.OTHER_ATTENTION: "attention kernels are not as many as its layers need",
    PlanMismatch.OTHER_LAYERS: "matrix kernels are not as many as its layers need",
    PlanMismatch.OTHER_TOKENS: "grids of kernels do not fit its tokens",
    PlanMismatch.OTHER_SEQUENCE: "grids of attention do not fit its sequence length",
    PlanMismatch.HIDDEN_KERNELS: "kernels inside CUDA graphs cannot be checked against it",
}
_UNKNOWN = {
    LossUnknown.FLOPS_UNKNOWN: "FLOPs unknown",
    LossUnknown.BYTES_UNKNOWN: "bytes unknown",
    LossUnknown.KERNEL_UNKNOWN: "names not recognized",
    LossUnknown.PRECISION_UNKNOWN: "precision unknown",
    LossUnknown.PEAK_UNKNOWN: "peak unknown",
    LossUnknown.ABOVE_PEAK: "as fast as the peak",
    LossUnknown.IMPOSSIBLE_FLOPS: "more FLOPs than the GPU can do in this time",
}
_BELOW = {
    BelowPeak.FEW_ROWS: "too few rows to be limited by compute",
    BelowPeak.SHORT_KERNELS: "kernels shorter than 10 µs",
    BelowPeak.UNFILLED_GPU: "fewer thread blocks than SMs",
    BelowPeak.LAST_WAVE: "a last wave with few thread blocks",
    BelowPeak.BANDWIDTH: "memory bandwidth",
    BelowPeak.LOW_CLOCK: "a clock below that of the peak",
    BelowPeak.FEW_EXPERT_ROWS: "few rows for each expert",
    BelowPeak.OLD_KERNELS: "kernels made for an older GPU",
    BelowPeak.FINE_ACCUMULATION: "FP8 with block-wise scales",
}
_ALL = units.percent(1.0)
_MOST_NAMED = 2
_FLOORLESS = "FLOPs are unknown, so this assumes that these kernels take no time and nothing replaces them"
_LONGEST_NAME = 30
"""Letters of the name of a line, so that bar and numbers have room."""


@dataclass(frozen=True, slots=True)
class LightRow:
    """A line as text: its name, time, wall, whether compute loses it, and what explains it.

    `subject` is its name in a sentence, where that says more.
    """

    name: str
    ns: int
    wall: Wall
    is_loss: bool
    note: str
    subject: str = ""


def find_peak_share(found: SpeedOfLight | None) -> tuple[str, float] | None:
    """Return the share of the peak that a step reaches, with the name of the measure: MFU, else HFU."""
    if found is None or found.is_step is False:
        return None
    if found.mfu is not None:
        return "MFU", found.mfu
    return None if found.hfu is None else ("HFU", found.hfu)


def write_peak_share(found: SpeedOfLight | None) -> str:
    """Say at what share of the peak a step runs, to follow the name of its wall; empty if it is unknown."""
    share = find_peak_share(found)
    if share is None or found is None:
        return ""
    return f"at {_tell_least(found)}{units.percent(share[1])} of peak"


def _tell_least(found: SpeedOfLight) -> str:
    return "at least " if found.covered is not None and found.covered < 1 and found.source == "shapes" else ""


def measure_proven_loss(found: SpeedOfLight | None) -> int:
    """Return the ns of the typical step that compute kernels lose, as far as that is known."""
    return 0 if found is None else sum(one.ns for one in found.lines if one.line in _LOSSES)


def explain_light(found: SpeedOfLight | None) -> Iterator[str]:
    """Say in sentences how near to the peak compute kernels run and what loses most, or what is missing."""
    if found is None or not found.window_ns:
        return
    share = find_peak_share(found)
    if share is None or found.peak is None:
        yield from _explain_unknown(found)
        return
    yield f"{_tell_rate(found)}."
    row = find_largest_loss(found)
    if row is not None and row.ns >= NAMED_LOSS_SHARE * found.window_ns:
        of_step = units.percent(row.ns / found.window_ns)
        yield f"Largest loss: {row.subject or row.name}, {units.duration(row.ns)} ({of_step})."
    if is_near_peak(found):
        yield "This is near what the hardware reaches in this precision."


def _tell_rate(found: SpeedOfLight) -> str:
    """Say how many FLOPs a step does each second, of those that the GPU can do in the leading precision."""
    (measure, share), leading = find_peak_share(found) or ("", 0.0), find_leading(found)
    flops = found.model_flops if measure == "MFU" else found.executed_flops
    rate, precision = (None, "") if leading is None else leading
    least, done = _tell_least(found), units.flops((flops or 0) * 1e9 / found.window_ns)
    what = "The model does" if measure == "MFU" else "Kernels do"
    of_peak = "" if rate is None else f" of the GPU's {units.flops(rate)} ({precision})"
    taken = units.percent(found.total(*OF_MATRICES) / found.window_ns)
    of_step = f"; matrix kernels take {taken} of the step" if has_lines(found) else ""
    return f"{what} {least}{done}{of_peak}, {measure} {units.percent(share)}{of_step}"


def find_leading(found: SpeedOfLight) -> tuple[float, str] | None:
    """Return the peak rate and the name of the precision in which most time multiplies."""
    if not found.matrices or found.peak is None:
        return None
    first = max(found.matrices, key=lambda one: one.ns)
    rate = found.peak.find_rate(first.precision)
    return None if rate is None else (rate, name_precision(first.precision))


def name_precision(precision: Precision) -> str:
    """Name a precision as data sheets do.

    >>> name_precision(Precision.BF16)
    'BF16'
    """
    return precision.upper()


def _explain_unknown(found: SpeedOfLight) -> Iterator[str]:
    """Say why it is unknown how near to the peak the step is, and what makes it known."""
    reasons = {each.reason for one in found.lines for each in one.reasons}
    head = "The share of peak is unknown"
    if LossUnknown.IMPOSSIBLE_FLOPS in reasons:
        yield f"{head}: {_UNKNOWN[LossUnknown.IMPOSSIBLE_FLOPS]}, so the FLOPs or the peak are wrong."
    elif found.refused is not None:
        yield f"{head}, because the configuration gives no FLOPs: {_MISMATCHES[found.refused]}."
    elif found.source is not None and found.peak is None:
        yield f"{head}, because the peak of this GPU is not known."
    elif LossUnknown.FLOPS_UNKNOWN in reasons or found.total(LedgerLine.OPAQUE_GRAPHS):
        options = f"{'' if _mostly_convolves(found) else '--config or '}--flops-per-step"
        yield f"To see the share of the GPU's peak, pass {options}."
    yield from _describe_uncounted(found)


def _mostly_convolves(found: SpeedOfLight) -> bool:
    """Return whether most kernels of unknown FLOPs convolve, of which a configuration says nothing."""
    works = {one.category: 0 for one in found.uncounted}
    for one in found.uncounted:
        works[one.category] += one.work_ns
    return 2 * works.get(ComputeCategory.CONVOLUTION, 0) > sum(works.values())


def _describe_uncounted(found: SpeedOfLight) -> Iterator[str]:
    """Say how much of the step multiplies with unknown FLOPs, at which peaks, and what slows kernels."""
    multiplying = {one.category for one in found.uncounted}
    own = [one for one in found.lines if one.line is LedgerLine.COMPUTE_UNKNOWN]
    taken_ns = sum(one.ns for one in own if one.category in multiplying)
    if taken_ns < NAMED_UNCOUNTED_SHARE * found.window_ns:
        return
    kinds: dict[tuple[Precision, int, float | None], int] = {}
    for one in found.uncounted:
        key = (one.precision, one.products, one.peak_flops_per_s)
        kinds[key] = kinds.get(key, 0) + one.work_ns
    all_ns = sum(kinds.values())
    named = sorted(((ns, *key) for key, ns in kinds.items()), key=lambda one: -one[0])[:_MOST_NAMED]
    shares = [units.percent(ns / all_ns) for ns, *_ in named]
    parts = [
        ("all of it" if share == _ALL else share if place else f"{share} of their time is")
        + f" in {_name_products(precision, products)}"
        + ("" if rate is None else f" (peak {units.flops(rate)})")
        for place, (share, (ns, precision, products, rate)) in enumerate(zip(shares, named, strict=True))
        if ns >= NAMED_LOSS_SHARE * all_ns
    ]
    whole = f"{units.percent(taken_ns / found.window_ns)} of the {'step' if found.is_step else 'time'}"
    yield f"Matrix kernels take {whole}{',' if shares[0] == _ALL else ';'} {' and '.join(parts)}."
    large = [one for one in found.uncounted if one.work_ns >= NAMED_UNCOUNTED_SHARE * found.window_ns]
    reasons = dict.fromkeys(_BELOW[each] for one in large for each in one.reasons)
    if reasons:
        shown = "Kernel names, grid sizes and samples" if found.sampled else "Kernel names and grid sizes"
        yield f"{shown} suggest why these kernels are slow: {', '.join(reasons)}."


def _name_products(precision: Precision, products: int) -> str:
    """Name the products of kernels as data sheets do.

    >>> _name_products(Precision.TF32, 3), _name_products(Precision.BF16, 1)
    ('FP32 as 3 TF32 products', 'BF16')
    """
    if precision is Precision.UNKNOWN:
        return "an unknown precision"
    named = name_precision(precision)
    return named if products == 1 else f"FP32 as {products} {named} products"


def find_largest_loss(found: SpeedOfLight) -> LightRow | None:
    """Return the line of compute kernels that loses most, in proven size."""
    rows = [row for row in list_light_rows(found, least_share=0.0) if row.is_loss]
    return max(rows, key=lambda row: row.ns, default=None)


def list_light_rows(found: SpeedOfLight, least_share: float = SHOWN_LINE_SHARE) -> tuple[LightRow, ...]:
    """List the lines from the ideal to the measured step, those below a share of it together in the last."""
    rows = [row for row in _list_rows(found) if row.ns]
    least_ns = least_share * found.window_ns
    shown = [row for row in rows if row.ns >= least_ns or row.name.startswith("ideal")]
    small = [row for row in rows if row not in shown]
    if small:
        shown.append(LightRow(_name_together(small), sum(row.ns for row in small), Wall.COMPUTE, False, ""))
    return tuple(shown)


def _name_together(rows: Sequence[LightRow]) -> str:
    """Name small lines together by the largest of them, if there is room for it."""
    names = [row.name for row in sorted(rows, key=lambda row: -row.ns)]
    named = f"{names[0]} and others" if len(names) > _MOST_NAMED else ", ".join(names)
    return named if len(named) <= _LONGEST_NAME else "all other lines"


def _list_rows(found: SpeedOfLight) -> Iterator[LightRow]:
    """Yield the lines in order, those of several categories together where that says the same."""
    source = "" if found.source is None else _SOURCES[found.source]
    precisions = _name_precisions(found.matrices)
    ideal_in = precisions if set(_list_used(found)) <= {*_SIXTEEN_BITS, Precision.FP8} else "16 bit"
    ideal = f"ideal math, {ideal_in}" if ideal_in else "ideal math"
    yield _sum_line(found, LedgerLine.IDEAL_MATH, ideal, source)
    yield _sum_line(found, LedgerLine.PRECISION, f"{_name_slow(found)} instead of 16 bit", "", is_loss=True)
    yield _sum_line(
        found, LedgerLine.COMPUTED_TWICE, "computed again or masked", "not needed by the model", is_loss=True
    )
    yield _sum_line(found, LedgerLine.EMULATED_PRECISION, "FP32 as three TF32 products", "", is_loss=True)
    for one in found.lines:
        if one.line is LedgerLine.BELOW_PEAK:
            yield _describe_below_peak(found, one)
    yield _sum_line(found, LedgerLine.AT_BANDWIDTH, _NAMES[LedgerLine.AT_BANDWIDTH], "")
    yield _sum_line(found, LedgerLine.ABOVE_FLOOR, _NAMES[LedgerLine.ABOVE_FLOOR], "", is_loss=True)
    yield _describe_unknown(found)
    for line, name in _NAMES.items():
        if line not in {LedgerLine.AT_BANDWIDTH, LedgerLine.ABOVE_FLOOR}:
            wall = LINE_WALLS.get(line, Wall.COMPUTE)
            yield LightRow(name, found.total(line), wall, False, "")


def _sum_line(
    found: SpeedOfLight, line: LedgerLine, name: str, note: str, *, is_loss: bool = False
) -> LightRow:
    return LightRow(name, found.total(line), Wall.COMPUTE, is_loss, note)


def _describe_below_peak(found: SpeedOfLight, one: LedgerEntry) -> LightRow:
    """Describe how far below their peak the kernels of a category are."""
    share = measure_category_share(found, one.category)
    note = "" if share is None else f"{units.percent(share)} of peak"
    best = "" if share is None else _write_best(found, one.category)
    reasons = [f"{_BELOW[each.reason]}{_write_part(each.ns)}" for each in one.explained_by]
    note = ", ".join(filter(None, (note, best, *reasons)))
    if one.category is None:
        note += ", with what is computed twice"
    name = name_category(one.category)
    subject = "" if share is None else f"{name} at {units.percent(share)} of peak"
    return LightRow(f"{name} below peak", one.ns, Wall.COMPUTE, True, note, subject)


def _write_best(found: SpeedOfLight, category: ComputeCategory | None) -> str:
    """Write the share of the peak that libraries were measured to reach in the only precision of kernels."""
    precisions = {one.precision for one in found.matrices if one.category is category}
    if found.peak is None or len(precisions) != 1:
        return ""
    (precision,) = precisions
    best, rate = found.peak.find_best_rate(precision), found.peak.find_rate(precision)
    return "" if best is None or rate is None else f"best measured {units.percent(best / rate)}"


def name_reason(reason: BelowPeak) -> str:
    """Name why kernels are below the peak."""
    return _BELOW[reason]


def _write_part(part_ns: int | None) -> str:
    return "" if part_ns is None else f" ({units.duration(part_ns)})"


def name_category(category: ComputeCategory | None) -> str:
    """Name kernels that multiply; all of them together without a category."""
    return "matrix kernels" if category is None else str(category)


def measure_category_share(found: SpeedOfLight, category: ComputeCategory | None) -> float | None:
    """Return the share of the peak that the kernels of a category reach, `None` if it is unknown."""
    return measure_matrices(found.matrices, category)[1]


def measure_matrices(
    matrices: Sequence[MatrixWork], category: ComputeCategory | None
) -> tuple[int, float | None]:
    """Return the ns of the kernels of a category, and the share of the peak that they reach, if known."""
    own = [one for one in matrices if one.category is category]
    time_ns = sum(one.ns for one in own)
    if not time_ns or any(one.peak_share is None for one in own):
        return time_ns, None
    return time_ns, sum(one.ns * (one.peak_share or 0.0) for one in own) / time_ns


def _describe_unknown(found: SpeedOfLight) -> LightRow:
    """Describe the kernels of which it is unknown how much they lose, with the largest categories."""
    own = [one for one in found.lines if one.line is LedgerLine.COMPUTE_UNKNOWN]
    own.sort(key=lambda one: -one.ns)
    named = ", ".join(
        f"{name_category(one.category)} {units.duration(one.ns)}" for one in own[:_MOST_NAMED] if one.ns
    )
    of_bytes = {each.reason for one in own for each in one.reasons} == {LossUnknown.BYTES_UNKNOWN}
    name = "memory-bound, bytes unknown" if of_bytes else "kernels, loss unknown"
    return LightRow(name, sum(one.ns for one in own), Wall.COMPUTE, False, named)


def _list_used(found: SpeedOfLight) -> list[Precision]:
    return [one.precision for one in found.matrices]


def _name_precisions(matrices: Sequence[MatrixWork]) -> str:
    """Name the precisions that take most time."""
    times: dict[Precision, int] = {}
    for one in matrices:
        times[one.precision] = times.get(one.precision, 0) + one.ns
    listed = sorted(times, key=lambda one: -times[one])[:_MOST_NAMED]
    return " and ".join(map(name_precision, listed))


def _name_slow(found: SpeedOfLight) -> str:
    """Name the precisions that are slower than 16 bits."""
    slow = [
        one for one in found.matrices if one.precision in {Precision.FP32, Precision.TF32, Precision.FP64}
    ]
    return _name_precisions(slow) or "more bits"


def write_shares(found: SpeedOfLight, *, is_brief: bool = False) -> str:
    """Write MFU and HFU, and at length MFU by 16 bits where it differs, and the rate; empty if unknown."""
    shares = {"MFU": found.mfu, "HFU": found.hfu}
    is_other = units.percent(found.mfu_16bit) != units.percent(found.mfu)
    if not is_brief and found.mfu_16bit is not None and is_other:
        shares["MFU (16 bit)"] = found.mfu_16bit
    least = _tell_least(found)
    parts = [f"{name} {least}{units.percent(share)}" for name, share in shares.items() if share is not None]
    if not is_brief and found.model_flops_per_s is not None:
        parts.append(f"{least}{units.flops(found.model_flops_per_s)} of the model")
    return ", ".join(parts)


def has_lines(found: SpeedOfLight | None) -> bool:
    """Return whether the ledger has lines of kernels with known FLOPs."""
    return found is not None and any(one.line in OF_MATRICES for one in found.lines)


def write_worth(fix: Fix) -> str:
    """Write what a fix wins: at most by the ledger, else about at assumed rates, else up to the bound."""
    return units.write_gain(fix.speedup_ceiling, fix.most_speedup, has_floor=fix.keeps_floor is True)


def is_estimate(fix: Fix) -> bool:
    """Return whether what is written of a fix is not a bound, because FLOPs are unknown."""
    return fix.most_speedup is not None and fix.speedup_ceiling is not None and not fix.keeps_floor


def describe_expectation(fix: Fix) -> str:
    """Write the other speedup of a fix that the ledger bounds; empty elsewhere.

    That is the one at assumed rates, or where FLOPs are unknown the one without any time of its kernels.
    """
    if fix.most_speedup is None:
        return ""
    if fix.speedup_ceiling is None:
        return "" if fix.keeps_floor is not False else _FLOORLESS
    if is_estimate(fix):
        return f"FLOPs are unknown: {units.write_loose_most(fix.most_speedup)}"
    if units.write_speedup(fix.speedup_ceiling) == units.write_speedup(fix.most_speedup):
        return ""
    return f"about {units.write_speedup(fix.speedup_ceiling)} at the rates that libraries reach"


def describe_briefly(fix: Fix, *, is_first: bool = True) -> str:
    """Write what the speedup of a fix assumes, with the one at assumed rates where that is not shown.

    What holds of all bounds without FLOPs is said of the first fix alone.
    """
    if fix.speedup_ceiling is None and fix.most_speedup is not None and not is_first:
        return fix.assumes
    if fix.speedup_ceiling is None:
        return describe_assumptions(fix)
    if is_estimate(fix) or not describe_expectation(fix):
        return fix.assumes
    return f"estimate of about {units.write_speedup(fix.speedup_ceiling or 1.0)}: {fix.assumes}"


def describe_assumptions(fix: Fix) -> str:
    """Write what the speedup of a fix rests on: the other one that is known, and what it assumes."""
    expected = describe_expectation(fix)
    if is_estimate(fix):
        return "; ".join(filter(None, (fix.assumes, expected)))
    return ": ".join(filter(None, (expected, fix.assumes)))

"""The verdict in three lengths: two words, one sentence, a paragraph; all from the data of an answer.

`list_sentences` is the author of the paragraph in JSON, `list_explanation` of the sentence on screens. What
they say of the same fact comes from the same function. No other module says which wall is the largest loss.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from wallscope.advice.condition_words import join_words
from wallscope.model.analysis import Analysis, Anchor, Rank, Step
from wallscope.model.cause_catalogue import (
    MEMORY_ALLOCATOR,
    MEMORY_DRIVER_LOCK,
    MEMORY_FILL,
    MEMORY_RECOMPUTE,
    PEER_WAIT,
    UNATTRIBUTED_HELD_WHILE_IDLE,
    describe_cause,
    is_part,
    name_cause,
    split_meaning,
)
from wallscope.model.diagnosis import (
    Confidence,
    Diagnosis,
    Dominant,
    RareStall,
    StatedBound,
    UnknownWall,
    Walls,
    WallShare,
    WallShares,
)
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.ranks.job_sentences import (
    describe_late_unit,
    describe_left_out,
    describe_missing,
    list_job_sentences,
)
from wallscope.records import dataclass
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import (
    LOSSES,
    find_overall_wall,
    find_scope,
    find_stated_ceiling,
    is_mostly_outside,
    list_steady_walls,
    measure_unrecognized_share,
)
from wallscope.thresholds.steps import MEAN_ABOVE_MEDIAN_RATIO, SLOWER_KERNELS_RATIO
from wallscope.thresholds.verdict import (
    DOMINANT_LEAD_SHARE,
    DOMINANT_SHARE,
    LITTLE_GAIN_SHARE,
    MATERIAL_SHARE,
    MOSTLY_HIDDEN_SHARE,
    MOSTLY_WAITING_PARTS_COUNT,
    MUCH_COMMUNICATION_SHARE,
    NAMED_LOSS_SHARE,
    SHARED_DEVICE_SHARE,
    SHOWN_HIDDEN_SHARE,
    STALLED_STEP_RATIO,
    TOLD_CAUSE_SHARE,
    TOLD_CAUSES_COUNT,
    TOLD_UNRECOGNIZED_SHARE,
)
from wallscope.units import capitalize, duration, percent, plural, write_ceiling
from wallscope.views.light import explain_light, has_lines, measure_proven_loss
from wallscope.views.sections.words import explain_choice, name_rank

_MOST_NAMED_COUNT = 3
_KINDS_OF_MEMORY = {
    MEMORY_FILL: "memsets",
    MEMORY_ALLOCATOR: "memory allocation",
    MEMORY_DRIVER_LOCK: "memory allocation",
    MEMORY_RECOMPUTE: "recomputed forward work",
}
"""What a cause of memory time is, where it is not a copy."""
_NAME_OF_WALL = {Wall.UNATTRIBUTED: "unattributed time"}
_LEAST_LOSS = f"{100 * NAMED_LOSS_SHARE:.0f} %"
_LONGEST_RANGE = 60
_SHORT_AND_LONG = 2
_OF_TYPICAL = frozenset({"typical", "median"})
"""Bases whose times are those of the typical step."""


def state_verdict(analysis: Analysis) -> Analysis:
    """Return the analysis with its scope, the bound that it states, and the paragraph: it is complete."""
    diagnosis = analysis.diagnosis
    rank = analysis.ranks[diagnosis.rank_index]
    bound = find_stated_ceiling(rank, analysis.opportunities, diagnosis.steps_wall, analysis.fixes or ())
    verdict = " ".join(list_sentences(rank, analysis.anchor, diagnosis, bound))
    stated = replace(diagnosis, bound=bound, verdict=verdict)
    return replace(analysis, scope=find_scope(analysis), diagnosis=stated)


def list_verdict_sentences(analysis: Analysis) -> tuple[str, ...]:
    """Return the sentences of the verdict of an answer; of one by an older version, its paragraph."""
    diagnosis = analysis.diagnosis
    if diagnosis.steps_wall is None and diagnosis.unknown is None:
        return (diagnosis.verdict,)
    return list_sentences(analysis.ranks[diagnosis.rank_index], analysis.anchor, diagnosis, diagnosis.bound)


def list_job_verdict(analysis: Analysis) -> tuple[str, ...]:
    """Return the sentences on the ranks of a job; none about an answer on one rank."""
    if analysis.job is None:
        return ()
    sentences = list_job_sentences(analysis.job, analysis.anchor.unit)
    return (*sentences, *describe_left_out(analysis.capture.findings))


def list_absent(analysis: Analysis) -> tuple[str, ...]:
    """Return which ranks of a job are missing, and which exports were left out and why."""
    missing = () if analysis.job is None else describe_missing(analysis.job)
    return (*missing, *describe_left_out(analysis.capture.findings))


def list_sentences(
    rank: Rank, anchor: Anchor, diagnosis: Diagnosis, bound: StatedBound | None
) -> tuple[str, ...]:
    """Return the sentences on one rank: the wall, its causes, hidden communication, and the worst step."""
    unknown, unit = diagnosis.unknown, anchor.window
    if unknown is not None and unknown.kind == "no-kernels":
        return (
            f"{capitalize(describe_missing_kernels(unknown))}: there is no verdict.",
            explain_cure(unknown),
        )
    cure = "" if unknown is None else explain_cure(unknown)
    return (
        *_overall(rank, diagnosis, unit),
        *_shared_device(rank, unit),
        *_dominant(rank, diagnosis, anchor),
        *_add_unrecognized(rank, diagnosis, unit),
        *describe_rare_stalls(rank, diagnosis, anchor),
        *((cure,) if cure else ()),
        *_inferred(diagnosis.confidence, unit),
        *(() if diagnosis.is_mean else _name_largest_causes(rank, diagnosis)),
        *(describe_memory_time(rank) if diagnosis.steps_wall == "memory" else ()),
        *tell_hidden_communication(rank, unit),
        *_write_upper_bound(bound, diagnosis.steps_wall, unit),
        *describe_uneven_steps(rank, unit),
        *_before(rank, unit),
    )


def _overall(rank: Rank, diagnosis: Diagnosis, unit: str) -> Iterator[str]:
    """Yield the wall of the whole capture, if it is not that of the steps."""
    wall = find_overall_wall(rank)
    if wall is not None and wall != diagnosis.steps_wall and rank.whole_walls is not None:
        whole_ns = sum(rank.whole_walls.parts())
        share = percent(getattr(rank.whole_walls, wall) / whole_ns)
        yield (
            f"{name_wall(Wall(wall))} is the largest loss of the whole capture: {share} of its"
            f" {duration(whole_ns)}."
        )
        yield f"Most of this time is spent before the first {unit}. In the {unit}s:"


def _dominant(rank: Rank, diagnosis: Diagnosis, anchor: Anchor) -> Iterator[str]:
    """Yield what the wall of the steps is, and how much of them it takes."""
    unit, basis = anchor.window, name_steps(diagnosis, anchor)
    if diagnosis.unknown is not None:
        reason = explain_unknown(rank, diagnosis.unknown, unit)
        if reason.then:
            yield f"The wall is unknown: {reason.text}{reason.kernels and f', namely {reason.kernels}'}."
            yield f"{reason.then} ({basis})."
        else:
            parts = f": {reason.parts}" if reason.parts else ""
            yield f"The wall is unknown: {reason.text}{parts} ({basis})."
        return
    wall, second = diagnosis.steps_wall, Wall(diagnosis.runner_up or Wall.COMPUTE)
    share = {one: diagnosis.share(one) for one in Wall}
    if wall == "mixed":
        yield f"No single wall: {state_losses_by_share(share)} of the {unit} ({basis})."
    elif wall == "compute":
        yield f"Compute takes {percent(share[Wall.COMPUTE])} of the {unit} ({basis})."
        yield _name_largest_other(rank, second, share[second], unit)
        yield from explain_light(rank.speed_of_light)
    else:
        yield from _name_loss(rank, diagnosis, Wall(wall or diagnosis.dominant_wall), anchor)


def _name_largest_other(rank: Rank, wall: Wall, share: float, unit: str) -> str:
    """Say which wall takes most besides compute; of shares too small to matter, that none does."""
    if not share:
        return f"None of the {unit} is lost to other walls."
    if share < NAMED_LOSS_SHARE:
        return f"Every other wall takes less than {_LEAST_LOSS} of the {unit}."
    loss = f"largest loss is {name_wall_time(wall)}: {percent(share)} of the {unit}."
    return f"Outside compute, the {loss}" if has_lines(rank.speed_of_light) else f"The {loss}"


def _name_loss(rank: Rank, diagnosis: Diagnosis, dominant: Wall, anchor: Anchor) -> Iterator[str]:
    """Yield how much the dominant loss takes, which loss follows, and in how many steps it leads."""
    unit, second = anchor.window, Wall(diagnosis.runner_up or Wall.COMPUTE)
    is_waiting = dominant is Wall.COMMUNICATION and _is_waiting(rank)
    called = "Waiting for peers" if is_waiting else name_wall(dominant)
    because = _name_deciding_stall(rank, dominant, unit) if diagnosis.is_mean else ""
    basis = f"{name_steps(diagnosis, anchor)}{because}"
    yield f"{called} is the largest loss: {percent(diagnosis.share(dominant))} of the {unit} ({basis})."
    if diagnosis.share(second) >= NAMED_LOSS_SHARE:
        yield f"{name_wall(second)} follows with {percent(diagnosis.share(second))}."
    else:
        yield f"Every other loss takes less than {_LEAST_LOSS} of the {unit}."
    if diagnosis.steady_steps > 1:
        led, count = diagnosis.led_steps or 0, diagnosis.decided_steps
        only = "only " if 2 * led < count else ""
        yield f"{called} is the largest loss in {only}{led} of these {count} {unit}s."
    yield from _add_light(rank, diagnosis.share(dominant))


def _add_light(rank: Rank, share: float) -> Iterator[str]:
    """Yield how near to the peak kernels run, where they lose more than a wall of this share."""
    lost = measure_proven_loss(rank.speed_of_light) / max(rank.typical.step_ns, 1)
    if lost >= DOMINANT_SHARE and lost > share:
        yield "Compute kernels lose more than this wall."
        yield from explain_light(rank.speed_of_light)


def name_steps(diagnosis: Diagnosis, anchor: Anchor) -> str:
    """Say whose shares decide: the median or the mean of the steady steps, or what stands for them."""
    if not diagnosis.steady_steps:
        return "no step was found" if anchor.kind == "whole-trace" else f"no {anchor.window} is steady"
    counted = plural(diagnosis.decided_steps, f"steady {anchor.window}")
    if diagnosis.decided_steps < 2:
        return counted
    return f"{'mean' if diagnosis.is_mean else 'median'} of {counted}"


def state_losses_by_share(share: Mapping[Wall, float]) -> str:
    """Say in a clause what share each loss takes, the largest first, without those that take no time.

    >>> state_losses_by_share({Wall.HOST: 0.5, Wall.MEMORY: 0.25, Wall.COMMUNICATION: 0.0})
    'host takes 50.0 % and memory 25.0 %'
    """
    losses = sorted((wall for wall in LOSSES if share[wall]), key=lambda wall: -share[wall])
    parts = [f"{wall}{'' if place else ' takes'} {percent(share[wall])}" for place, wall in enumerate(losses)]
    return join_words(parts, "and")


def _name_deciding_stall(rank: Rank, dominant: Wall, unit: str) -> str:
    """Say on what few steps lose so much that it decides the wall of the mean step."""
    stall = next((one for one in rank.rare_stalls if one.wall is dominant), None)
    if stall is None:
        return f", because a few {unit}s stall for long"
    return f", because {len(stall.steps)} of them stall on {name_cause(stall.cause)}"


def _shared_device(rank: Rank, unit: str) -> Iterator[str]:
    """Yield a sentence on launched work that waits on an idle device without a cause in this process."""
    idle = next((entry for entry in rank.causes if entry.cause == UNATTRIBUTED_HELD_WHILE_IDLE), None)
    if idle is not None and idle.share >= SHARED_DEVICE_SHARE:
        yield (
            f"For {duration(idle.typical_ns)} ({percent(idle.share)} of the {unit}), launched kernels waited"
            " on an idle GPU, which is probably shared with another process."
        )


def _inferred(confidence: Confidence | None, unit: str) -> Iterator[str]:
    """Yield how much depends on waits that are inferred from timing."""
    if confidence is not None and confidence.inferred_share >= MATERIAL_SHARE:
        yield (
            "The capture does not record what ended some waits, so this was inferred from timing."
            f" Because {percent(confidence.inferred_share)} of the {unit} depends on it, the confidence is"
            f" {confidence.level}."
        )


def _list_unrecognized(rank: Rank) -> str:
    """Return the largest unrecognized kernels, with the share of their work."""
    from wallscope.trace.kernel_classes import shorten_kernel  # noqa: PLC0415  # few captures need it

    named = [f"{shorten_kernel(one.name)} ({percent(one.share)})" for one in rank.unmatched_kernels]
    left = len(named) - _MOST_NAMED_COUNT
    return join_words([*named[:_MOST_NAMED_COUNT], *([f"{left} more"] if left > 0 else [])], "and")


def _add_unrecognized(rank: Rank, diagnosis: Diagnosis, unit: str) -> Iterator[str]:
    """Yield the time in unrecognized kernels, if it matters and is not mentioned yet."""
    share, unknown = measure_unrecognized_share(rank), diagnosis.unknown
    is_told = unknown is not None and unknown.kind == "unrecognized-kernels"
    if not is_told and share >= TOLD_UNRECOGNIZED_SHARE:
        yield f"Kernels with unrecognized names take {percent(share)} of the {unit}."


def _is_waiting(rank: Rank) -> bool:
    """Return whether waiting for other ranks takes at least half of the communication wall."""
    waiting_ns = sum(
        entry.typical_ns for entry in rank.causes if is_part(entry.cause) and entry.cause.endswith(PEER_WAIT)
    )
    return MOSTLY_WAITING_PARTS_COUNT * waiting_ns >= max(rank.typical.walls.communication, 1)


def _name_largest_causes(rank: Rank, diagnosis: Diagnosis) -> Iterator[str]:
    """Yield the causes that take most of the wall."""
    walls = {"unknown": (), "mixed": LOSSES}.get(str(diagnosis.steps_wall), (diagnosis.steps_wall,))
    own = [entry for entry in rank.causes if entry.wall in walls]
    total_ns = sum(entry.typical_ns for entry in own)
    large = [entry for entry in own if entry.typical_ns >= TOLD_CAUSE_SHARE * total_ns][:TOLD_CAUSES_COUNT]
    if large and total_ns:
        whole = "lost time" if len(walls) > 1 else f"{own[0].wall} time"
        parts = [f"{duration(one.typical_ns)} goes to {describe_cause(one.cause)}" for one in large]
        if duration(large[0].typical_ns) == duration(total_ns):
            yield f"All {whole} ({duration(total_ns)}) goes to {describe_cause(large[0].cause)}."
        else:
            yield f"Of the {duration(total_ns)} of {whole}, {', and '.join(parts)}."
    place = None if rank.host_details is None else rank.host_details.range
    if diagnosis.steps_wall == "host" and place is not None:
        share = percent(place.host_ns / max(rank.typical.walls.host, 1))
        yield f"{duration(place.host_ns)} of the host time ({share}) is spent in the range {place.name}."


def describe_memory_time(rank: Rank) -> Iterator[str]:
    """Yield what time counts as memory: it is not the time of kernels that DRAM bandwidth limits."""
    if large := list_memory_kinds(rank):
        yield f"Memory time here is {large}; kernels limited by DRAM bandwidth count as compute."


def describe_rare_stalls(rank: Rank, diagnosis: Diagnosis, anchor: Anchor) -> Iterator[str]:
    """Yield the losses of a few steps, the largest first, and the largest usual loss."""
    if rank.rare_stalls:
        yield f"The {anchor.typical} leaves out rare stalls."
    for stall in rank.rare_stalls[:TOLD_CAUSES_COUNT]:
        yield from _tell_stall(rank, stall, anchor)
    usual = next((entry for entry in rank.causes if entry.wall in LOSSES), None)
    if diagnosis.is_mean and usual is not None and usual.share >= MATERIAL_SHARE:
        yield (
            f"The largest loss of the {anchor.typical} is {describe_cause(usual.cause)}:"
            f" {duration(usual.typical_ns)}, {percent(usual.share)}."
        )


def _tell_stall(rank: Rank, stall: RareStall, anchor: Anchor) -> Iterator[str]:
    """Yield how much longer than usual a cause takes on few steps, and how often that is."""
    steady, unit = sum(step.steady for step in rank.steps), anchor.window
    least, most = duration(stall.least_ns), duration(stall.most_ns)
    verb = "spends" if len(stall.steps) == 1 else "spend"
    yield (
        f"{len(stall.steps)} of {plural(steady, f'steady {unit}')} {verb}"
        f" {least if least == most else f'{least} to {most}'} more than usual on"
        f" {name_cause(stall.cause)}: {percent(stall.share)} of the time of all {unit}s."
    )
    if stall.period is not None:  # not all of its steps may follow the period
        is_all = (stall.steps[-1] - stall.steps[0]) == (len(stall.steps) - 1) * stall.period
        yield f"{'These' if is_all else 'The longest of these'} come every {stall.period} {unit}s."


def _write_upper_bound(bound: StatedBound | None, dominant: Dominant | None, unit: str) -> Iterator[str]:
    """Yield the upper bound on removing the cause that gains most, and what limits the step then."""
    if bound is None:
        return
    lead, without = "", f"Without {name_cause(bound.cause)}"
    if dominant in set(LOSSES) and bound.wall != dominant:
        lead = f"The largest possible gain in the typical {unit} is in {bound.wall}: "
        without = f"without {name_cause(bound.cause)}"
    its = "its wall would still" if bound.next_wall == dominant else "its next wall would"
    yield (
        f"{lead}{without}, the {unit} would take at least {duration(bound.step_ceiling_ns)} ("
        f"{write_ceiling(bound.speedup_ceiling)}) and {its} be {bound.next_wall}."
    )
    if bound.assumes is not None:
        yield f"This bound assumes that {bound.assumes}."


def _before(rank: Rank, unit: str) -> Iterator[str]:
    """Yield what was excluded, if it is most of the capture."""
    if is_mostly_outside(rank):
        idle = percent(rank.outside_idle_ns / rank.outside_ns)
        yield (
            f"The breakdown leaves out the {duration(rank.outside_ns)} before the first {unit}. This time is"
            f" longer than all {unit}s together, and the GPU is idle for {idle} of it."
        )


def describe_uneven_steps(rank: Rank, unit: str) -> Iterator[str]:
    """Yield sentences on the slowest step, on kinds of steps, and from which step on kernels are slower."""
    yield from describe_worst_step(rank, unit)
    yield from _modes(rank, unit)
    yield from _slower(rank, unit)


def describe_worst_step(rank: Rank, unit: str) -> Iterator[str]:
    """Yield a sentence on the longest steady step if it is an outlier."""
    steady = [step for step in rank.steps if step.steady]
    if not steady:
        return
    middle_ns = float(np.median([_measure_length(step) for step in steady]))
    worst = max(steady, key=_measure_length)
    over_ns = _measure_length(worst) - middle_ns
    if _measure_length(worst) <= STALLED_STEP_RATIO * middle_ns or worst.walls is None:
        return
    usual = np.median([step.walls.parts() for step in steady if step.walls is not None], axis=0)
    excess = np.array(worst.walls.parts()) - usual
    wall = list(Wall)[int(excess.argmax())]
    name = _NAME_OF_WALL.get(wall, f"{wall} time")
    most_ns = round(float(excess.max()))
    rest_ns = round(over_ns) - most_ns
    rest = f" and {duration(abs(rest_ns))} {'more' if rest_ns > 0 else 'less'} other time"
    yield (
        f"The slowest steady {unit} ({worst.index}) takes {duration(round(over_ns))} more than the median"
        f" {unit}: {duration(most_ns)} more {name}"
        f"{rest if abs(rest_ns) >= MATERIAL_SHARE * over_ns else ''}."
    )


def _measure_length(step: Step) -> int:
    return step.end_ns - step.start_ns


def _modes(rank: Rank, unit: str) -> Iterator[str]:
    """Yield the mean step if it differs from the usual one."""
    mean_ns, median_ns = rank.mean_step_ns, rank.median_step_ns
    if mean_ns is None or median_ns is None:
        return
    if kinds := describe_kinds(rank, unit):
        yield (
            f"{capitalize(kinds)}. The mean, which determines throughput, is {duration(mean_ns)}."
            f"{_describe_levels(rank)}"
        )
    elif mean_ns > MEAN_ABOVE_MEDIAN_RATIO * median_ns:
        yield (
            f"The median {unit} takes {duration(median_ns)}. The mean, which determines throughput, is"
            f" {duration(mean_ns)}."
        )


def describe_kinds(rank: Rank, unit: str) -> str:
    """Say in a clause how long the steps of each kind take, where there are several kinds; else empty."""
    if not rank.modes:
        return ""
    steady = sum(step.steady for step in rank.steps)
    kinds = [
        f"{len(mode.steps)}{'' if place else f' of {steady} {unit}s'} take about {duration(mode.median_ns)}"
        for place, mode in enumerate(rank.modes)
    ]
    return join_words(kinds, "and")


def count_typical_kinds(rank: Rank) -> list[str]:
    """Count the steps of each kind that the typical step is the mean of; empty where there is one kind."""
    steady = [step for step in rank.steps if step.steady]
    if not rank.modes or not steady:
        return []
    from wallscope.trace.steps import is_ordinary  # noqa: PLC0415  # as above

    chosen = is_ordinary(np.array([_measure_length(step) for step in steady]))
    taken = {step.index for step, is_taken in zip(steady, chosen.tolist(), strict=True) if is_taken}
    names = [f"of about {duration(mode.median_ns)}" for mode in rank.modes]
    if len(names) == _SHORT_AND_LONG:
        names = ["short", "long"]
    counts = [len(taken.intersection(mode.steps)) for mode in rank.modes]
    return [f"{count} {name}" for count, name in zip(counts, names, strict=True) if count]


def _describe_levels(rank: Rank) -> str:
    """Return that longer kinds of steps have slower kernels, except where all later steps do."""
    ratio = max(mode.kernel_ratio or 0.0 for mode in rank.modes)
    if rank.slower_kernels is not None or ratio < SLOWER_KERNELS_RATIO:
        return ""
    from wallscope.summary.unusual_losses import UNKNOWN_SLOWNESS  # noqa: PLC0415  # as above

    return f" In the longest, the same compute kernels take {ratio:.2f} times as long: {UNKNOWN_SLOWNESS}."


def _slower(rank: Rank, unit: str) -> Iterator[str]:
    """From which step on kernels are slower."""
    slower = rank.slower_kernels
    if slower is not None:
        from wallscope.summary.unusual_losses import explain_slower_kernels  # noqa: PLC0415  # as above

        yield (
            f"From {unit} {slower.since_step} on, the same compute kernels take {slower.ratio:.2f} times as"
            f" long: {explain_slower_kernels(slower)}."
        )


@dataclass(frozen=True, slots=True)
class TimeBasis:
    """What the verdict is about: times and shares of its walls, its name in a sentence, a title of its bars.

    Where the verdict is based on medians of shares, the times are those of the typical step.
    """

    kind: Literal["median", "typical", "mean", "whole", "job"]
    walls: Walls
    whole: str
    title: str = ""
    shares: WallShares | None = None

    @property
    def total_ns(self) -> int:
        """Length of the time."""
        return sum(self.walls.parts())

    def share(self, wall: Wall) -> float:
        """Share of a wall of it."""
        if self.shares is not None:
            found: WallShare = getattr(self.shares, wall)
            mean = found.mean_share
            return mean if self.kind == "mean" and mean is not None else found.share
        part_ns: int = getattr(self.walls, wall)
        return part_ns / max(self.total_ns, 1)


def choose_basis(analysis: Analysis, rank: Rank) -> TimeBasis:
    """Choose the time that the verdict is about; every screen shows its shares first.

    This is the mean over the ranks where they were matched. It is the whole capture or the mean step where
    the verdict is about these. Else it is the median of the shares of the deciding steps, if there are some.
    """
    anchor, job, shares = analysis.anchor, analysis.job, analysis.diagnosis.walls
    window = anchor.window
    if job is not None and job.collectives.matched:
        length = duration(sum(job.walls.parts()))
        title = f"Mean of {job.ranks} ranks"
        if any(one.cause_wall is not None for one in job.stragglers):
            title += "; waiting for a late unit is attributed to what delays that unit"
        return TimeBasis("job", job.walls, f"the {length} {window} (mean of {job.ranks} ranks)", title)
    shown = "" if len(analysis.ranks) == 1 else f"{capitalize(name_rank(rank))}, {explain_choice(analysis)}"
    has_steps = any(step.steady for step in rank.steps)
    if rank.whole_walls is not None and find_scope(analysis).time == "start-up":
        length = duration(sum(rank.whole_walls.parts()))
        title = f"Whole capture, most of it before the first {window}"
        return TimeBasis("whole", rank.whole_walls, f"the whole {length} capture", title)
    if has_steps and analysis.diagnosis.is_mean:
        walls = _average_steps(rank)
        length = duration(sum(walls.parts()))
        title = shown or f"Mean of the steady {window}s"
        return TimeBasis("mean", walls, f"the {length} mean {window}", title, shares)
    if shares is not None and (counted := count_deciding(analysis, rank)):
        return TimeBasis("median", rank.typical.walls, f"the {window} (median of {counted})", shown, shares)
    whole = f"the {duration(rank.typical.step_ns)} {window}"
    return TimeBasis("typical", rank.typical.walls, whole, shown)


def count_deciding(analysis: Analysis, rank: Rank) -> str:
    """Count the steps whose shares decide, in words; empty for one."""
    steady, window = sum(step.steady for step in rank.steps), analysis.anchor.window
    if max(steady, 0 if steady else len(rank.steps)) < 2:
        return ""
    return plural(steady, f"steady {window}") if steady else plural(len(rank.steps), window)


def name_basis(analysis: Analysis, basis: TimeBasis) -> str:
    """Name the time that the bar and the large number show."""
    window, ranks = analysis.anchor.window, len(analysis.ranks)
    return {
        "median": analysis.anchor.typical,
        "typical": analysis.anchor.typical,
        "mean": f"mean {window}, slow ones included",
        "whole": "whole capture",
        "job": f"{window}, mean of {plural(ranks, 'rank')}",
    }[basis.kind]


def _average_steps(rank: Rank) -> Walls:
    """Return the walls of the mean steady step."""
    return Walls(*np.rint(list_steady_walls(rank).mean(axis=0)).astype(int).tolist())


def find_dominant(analysis: Analysis) -> str:
    """Return the dominant wall, that of the job where its ranks were matched."""
    job = analysis.job
    return str(
        job.dominant_wall if job is not None and job.collectives.matched else analysis.diagnosis.dominant_wall
    )


def find_deciding_stall(rank: Rank, basis: TimeBasis, dominant: str) -> RareStall | None:
    """Return the stall of few steps that makes a wall the dominant one of the mean step, if one does."""
    stalls = [one for one in rank.rare_stalls if one.wall == dominant]
    return stalls[0] if basis.kind == "mean" and stalls else None


def list_explanation(analysis: Analysis, rank: Rank, basis: TimeBasis) -> tuple[str, ...]:
    """Return the sentences after the opening: the unit that holds a job up, then the dominant wall.

    They leave out what the opening says, the main cause; there are none where nothing is left to say.
    """
    job, window = analysis.job, analysis.anchor.window
    late = "" if job is None else describe_late_unit(job, window, has_cost=False)
    if late and find_dominant(analysis) in {*LOSSES}:
        return late, *_explain_wall(analysis, rank, basis)[:1]
    return (*((late,) if late else ()), *_explain_wall(analysis, rank, basis))


def _explain_wall(analysis: Analysis, rank: Rank, basis: TimeBasis) -> tuple[str, ...]:
    """Return the sentences that explain the dominant wall."""
    dominant = find_dominant(analysis)
    if dominant == "unknown":
        return tuple(_explain_no_verdict(analysis, rank))
    share = {wall: basis.share(wall) for wall in Wall}
    first, second = sorted(LOSSES, key=lambda wall: (-share[wall], wall))[:2]
    if dominant == "mixed":
        unit = analysis.anchor.window
        is_led = share[first] >= max(DOMINANT_SHARE, share[second] + DOMINANT_LEAD_SHARE)
        return (f"The largest loss differs from {unit} to {unit}.",) if is_led else ()
    wall = Wall(dominant)
    taken, reasons = f"{percent(share[wall])} of {basis.whole}", _explain_share(analysis, rank, wall, basis)
    if basis.kind == "whole":
        return reasons
    if wall is Wall.COMPUTE:
        loss = _name_largest_other(rank, first, share[first], analysis.anchor.window)
        window = analysis.anchor.typical
        hidden = tell_hidden_communication(rank, window) if _tells_hidden(basis, wall) else ()
        light = tuple(explain_light(rank.speed_of_light)) if basis.kind in _OF_TYPICAL else ()
        parts = light if has_lines(rank.speed_of_light) and light else (*reasons, *light)
        return (f"Compute takes {taken}.", *parts, loss, *hidden)
    is_stalled = find_deciding_stall(rank, basis, wall) is not None
    is_useful = share[Wall.COMPUTE] > share[wall] and basis.kind != "job" and not is_stalled
    name, useful = name_wall(wall), " Compute takes more, but it is useful work." if is_useful else ""
    if wall is Wall.MEMORY and (kinds := list_memory_kinds(rank)):
        name, useful = f"Memory time ({kinds}, not DRAM bandwidth)", ""
    lead = f"{name} is the largest loss: {taken}.{useful}"
    lost = tuple(_add_light(rank, share[wall])) if basis.kind in _OF_TYPICAL else ()
    return (lead, *reasons, *_locate_host_time(rank, wall, basis), *lost)


def _tells_hidden(basis: TimeBasis, dominant: str) -> bool:
    """Return whether the sentence on the wall also says how much communication compute hides."""
    return dominant == Wall.COMPUTE and basis.kind in _OF_TYPICAL


def _explain_no_verdict(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Yield what the reason for an unknown wall rests on, and what would make the wall known."""
    unknown = analysis.diagnosis.unknown
    if unknown is None:
        yield analysis.diagnosis.verdict  # of an older version
        return
    yield from explain_no_verdict(analysis, rank)[1]
    yield from _shared_device(rank, analysis.anchor.window)
    yield from (one.lead for one in analysis.capture.findings if one.code == FindingCode.SILENT_WAITS)
    if cure := explain_cure(unknown):
        yield cure


def explain_no_verdict(analysis: Analysis, rank: Rank) -> tuple[str, tuple[str, ...]]:
    """Say why no wall is known, and in lines of which kernels, time and steps this was found."""
    unknown = analysis.diagnosis.unknown
    if unknown is None:
        return "Unknown", ()
    reason = explain_unknown(rank, unknown, analysis.anchor.window)
    is_of_steps = unknown.kind == "open-causes"
    basis = name_steps(analysis.diagnosis, analysis.anchor) if is_of_steps else ""
    parts = f"{capitalize(reason.parts)} ({basis})" if reason.parts and basis else capitalize(basis)
    kernels = f"These kernels are {reason.kernels}" if reason.kernels else ""
    return capitalize(reason.text), tuple(f"{line}." for line in (kernels, parts) if line)


@dataclass(frozen=True, slots=True)
class UnknownReason:
    """Why the wall is unknown: a clause, the kernels in question, the parts of the time, what then holds."""

    text: str
    kernels: str = ""
    parts: str = ""
    then: str = ""


def explain_unknown(rank: Rank, unknown: UnknownWall, unit: str) -> UnknownReason:
    """Explain why there is no verdict, without the words of the headline."""
    if unknown.kind == "no-kernels":
        return UnknownReason(f"{describe_missing_kernels(unknown)}: there is no verdict")
    if unknown.kind == "unrecognized-kernels":
        share = percent(measure_unrecognized_share(rank))
        communicating, computing = _name_hinge(unknown.if_communicating), _name_hinge(unknown.if_computing)
        return UnknownReason(
            f"{share} of the {unit} is spent in kernels with unrecognized names",
            _list_unrecognized(rank),
            then=f"If they communicate, {communicating}; if they compute, {computing}",
        )
    opened = [entry for entry in rank.causes if entry.unresolved_ns]
    parts = [
        f"{percent(entry.share)}{'' if place else f' of the {unit} goes'} to {describe_cause(entry.cause)}"
        for place, entry in enumerate(opened)
    ]
    return UnknownReason(f"too much of the {unit} is unexplained", parts=join_words(parts, "and"))


def _name_hinge(wall: str | None) -> str:
    return "no single wall" if wall == "mixed" else f"{wall} is the wall"


def describe_missing_kernels(unknown: UnknownWall) -> str:
    """Say in a clause how little of the time kernels ran for."""
    if not unknown.kernel_share:
        is_elsewhere = unknown.has_kernels_elsewhere
        return "no kernel ran in the analyzed time" if is_elsewhere else "this export contains no kernels"
    whole = "the analyzed time" if unknown.has_kernels_elsewhere else "this capture"
    return f"kernels ran for {percent(unknown.kernel_share)} of {whole}"


def explain_cure(unknown: UnknownWall) -> str:
    """Say in a sentence what makes the wall known; empty if nothing that the capture shows does."""
    if unknown.kind == "no-kernels":
        return (
            "Analyze a time with kernels."
            if unknown.has_kernels_elsewhere
            else "Capture again with --trace=cuda,nvtx while training runs on the GPU."
        )
    return "Classify the kernels with --kernels FILE." if unknown.asks_for_names else ""


def _explain_share(analysis: Analysis, rank: Rank, wall: Wall, basis: TimeBasis) -> tuple[str, ...]:
    """Say of the main cause what its removal wins; of the mean step and the whole capture, where it lies."""
    unit = analysis.anchor.window
    stall = find_deciding_stall(rank, basis, wall)
    if stall is not None:
        return tuple(_describe_stall(rank, stall, unit))
    if basis.kind == "whole":
        before = f"Most of this time is spent before the first {unit}."
        return before, _describe_steps_alone(rank, unit)
    return tuple(_doubt_main_cause(analysis, rank, wall))


def _describe_steps_alone(rank: Rank, unit: str) -> str:
    """Say what takes most of the typical step, where the verdict is about the whole capture."""
    times_ns = dict(zip(Wall, rank.typical.walls.parts(), strict=True))
    largest = max(times_ns, key=lambda wall: times_ns[wall])
    share = percent(times_ns[largest] / max(rank.typical.step_ns, 1))
    return f"{largest.capitalize()} takes {share} of the typical {duration(rank.typical.step_ns)} {unit}."


def _describe_stall(rank: Rank, stall: RareStall, unit: str) -> Iterator[str]:
    """Say what few steps cost in all, and which loss is the largest of the typical step, without them."""
    count = len(stall.steps)
    slow = f"the slow {unit}" if count == 1 else f"the {count} slow {unit}s"
    cause = split_meaning(stall.cause)[0]
    yield f"In {slow}, {cause} accounts for {percent(stall.share)} of the total time of all {unit}s."
    parts = {wall: getattr(rank.typical.walls, wall) for wall in LOSSES}
    largest = max(LOSSES, key=lambda wall: parts[wall])
    if largest == stall.wall or not parts[largest]:
        return
    share = percent(parts[largest] / max(rank.typical.step_ns, 1))
    whole = f"the typical {duration(rank.typical.step_ns)} {unit}"
    yield f"In {whole}, the largest loss is {name_wall_time(largest)}: {share}."


def _doubt_main_cause(analysis: Analysis, rank: Rank, wall: Wall) -> Iterator[str]:
    """Say so where removing the largest cause of a wall gains little, because of other work."""
    own = [entry for entry in rank.causes if entry.wall == wall]
    if not own:
        return
    largest = max(own, key=lambda entry: entry.typical_ns)
    won_ns = next((one.recoverable_ns for one in analysis.opportunities if one.cause == largest.cause), None)
    if won_ns is not None and won_ns < LITTLE_GAIN_SHARE * largest.typical_ns:
        yield (
            f"Without {split_meaning(largest.cause)[0]}, the {analysis.anchor.window} would be at most"
            f" {duration(won_ns)} shorter."
        )


def _locate_host_time(rank: Rank, wall: Wall, basis: TimeBasis) -> Iterator[str]:
    """Name the range in which most host time of the typical step passes."""
    place = None if rank.host_details is None else rank.host_details.range
    if wall is Wall.HOST and basis.kind in _OF_TYPICAL and place is not None:
        name = visible(place.name, most=_LONGEST_RANGE)
        yield f"{duration(place.host_ns)} of the host time is spent in the range {name}."


def describe_hidden_communication(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Say how much communication runs, where most of it delays nothing and the headline does not say so."""
    found, window, lost_ns = rank.communication, analysis.anchor.typical, rank.typical.walls.communication
    spare_ns = found.union_ns - lost_ns
    if spare_ns < lost_ns or spare_ns < SHOWN_HIDDEN_SHARE * max(rank.typical.step_ns, 1):
        return
    is_told = _tells_hidden(choose_basis(analysis, rank), find_dominant(analysis))
    if is_told and any(tell_hidden_communication(rank, window)):
        return
    hidden_ns, unit = found.union_ns - found.exposed_ns, analysis.anchor.window
    delay = f"delays the {unit} by {duration(lost_ns)}" if lost_ns else f"does not delay the {unit}"
    by = f" ({duration(hidden_ns)} of it hidden by compute)" if hidden_ns else ""
    and_so = "and" if lost_ns else "but"
    yield f"Communication runs for {duration(found.union_ns)} of the {window}{by} {and_so} {delay}."


def name_wall_time(wall: Wall) -> str:
    """Name the time of a wall, in the middle of a sentence.

    >>> name_wall_time(Wall.MEMORY), name_wall_time(Wall.COMMUNICATION)
    ('memory time', 'communication')
    """
    if wall is Wall.UNATTRIBUTED:
        return "unattributed time"
    return f"{wall} time" if wall in {Wall.HOST, Wall.MEMORY} else str(wall)


def name_wall(wall: Wall) -> str:
    """Name the time of a wall, at the beginning of a sentence."""
    return "Host time" if wall is Wall.HOST else wall.capitalize()


def list_memory_kinds(rank: Rank) -> str:
    """Return the kinds of memory time that take most: copies, memsets, allocation, recomputed work."""
    own = [entry for entry in rank.causes if entry.wall is Wall.MEMORY]
    parts_ns = dict.fromkeys(("copies", "memsets", "memory allocation", "recomputed forward work"), 0)
    for entry in own:
        parts_ns[_KINDS_OF_MEMORY.get(entry.cause, "copies")] += entry.typical_ns
    total_ns = sum(parts_ns.values())
    large = [kind for kind, time_ns in parts_ns.items() if time_ns >= max(TOLD_CAUSE_SHARE * total_ns, 1)]
    large.sort(key=lambda kind: -parts_ns[kind])
    return " and ".join(large[:2])


def tell_hidden_communication(rank: Rank, unit: str) -> Iterator[str]:
    """Yield how much communication compute hides, if there is much and most of it is hidden."""
    found, step_ns = rank.communication, rank.typical.step_ns
    is_much = found.union_ns >= MUCH_COMMUNICATION_SHARE * step_ns > 0
    if is_much and found.hidden_share is not None and found.hidden_share > MOSTLY_HIDDEN_SHARE:
        left, lost_ns = "", rank.typical.walls.communication
        if found.exposed_ns:
            left = f" The remaining {duration(found.exposed_ns)} is exposed"
            if lost_ns < found.exposed_ns:
                left += f", and {duration(lost_ns) if lost_ns else 'none'} of it delays later work"
            left += "."
        yield (
            f"Compute hides {percent(found.hidden_share)} of the {duration(found.union_ns)} of communication"
            f" in the {unit}.{left}"
        )

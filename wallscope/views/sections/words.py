"""Words and sentences that sections share; the verdict of an analysis in one sentence."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from wallscope import units
from wallscope.advice.definitions import define_terms
from wallscope.model.analysis import Analysis, Anchor, Rank
from wallscope.model.capture import Export, Profiler
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import MemoryPressure, RareStall, Throughput, Walls, WallShare, WallShares
from wallscope.model.enums import DeviceState, Wall
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES
from wallscope.summary.scope import decide_steady_steps, find_scope, list_steady_walls
from wallscope.summary.verdict import list_memory_kinds, name_wall, tell_hidden_communication
from wallscope.thresholds.steps import ENOUGH_STEPS_COUNT
from wallscope.thresholds.verdict import (
    DOMINANT_LEAD_SHARE,
    DOMINANT_SHARE,
    LITTLE_GAIN_SHARE,
    NAMED_LOSS_SHARE,
    SHOWN_HIDDEN_SHARE,
)

WALL_WORDS: Final = {
    Wall.COMPUTE: "A compute kernel runs, or the GPU is between two kernels and waits for neither the host"
    " nor"
    " communication nor memory. Recomputed forward work counts as memory.",
    Wall.COMMUNICATION: "No compute kernel runs, and the step waits for an operation between ranks: for the"
    " transfer of data or for other ranks.",
    Wall.MEMORY: "No compute kernel runs, and the step waits for a copy, a memset or a memory allocation."
    " Forward"
    " work that the backward pass recomputes counts as memory too.",
    Wall.HOST: "No compute kernel runs, and the step waits for the host: launches, blocking calls, Python and"
    " framework, data loading, small copies.",
    Wall.UNATTRIBUTED: "wallscope cannot assign the time to another wall. The cause is unknown, the profiler"
    " blocked the program, or only a CUDA graph or kernel of unknown content ran.",
}
"""What time of a step is attributed to each wall."""
STATE_WORDS: Final = {
    DeviceState.COMPUTE: "At least one compute kernel ran.",
    DeviceState.OPAQUE_GRAPH: "A CUDA graph ran whose kernels are not in the capture, and no other compute"
    " kernel.",
    DeviceState.EXPOSED_COMMUNICATION: "Communication ran, and neither a compute kernel nor an opaque CUDA"
    " graph.",
    DeviceState.EXPOSED_COPY: "A copy or memset ran, and no compute kernel, opaque CUDA graph or"
    " communication.",
    DeviceState.IDLE: "No operation ran on the GPU.",
}
"""What the device did, in order of precedence."""
WORDS: Final = define_terms("analysis")
"""Of the answer."""
COMPARISON_WORDS: Final = define_terms("comparison")
"""Of a comparison."""
_LONGEST_RANGE = 60
_OF_TYPICAL = frozenset({"typical", "median"})
"""Bases whose times are those of the typical step."""
STATE_NAMES = {
    DeviceState.COMPUTE: "compute",
    DeviceState.OPAQUE_GRAPH: "opaque graphs",
    DeviceState.EXPOSED_COMMUNICATION: "exposed communication",
    DeviceState.EXPOSED_COPY: "exposed copies",
    DeviceState.IDLE: "idle",
}


def describe_pressure(pressure: MemoryPressure) -> str:
    """Say how high memory pressure is.

    >>> describe_pressure(MemoryPressure("near"))
    'near the limit'
    """
    return "near the limit" if pressure.level == "near" else pressure.level


def explain_cause(cause: str) -> str:
    """Explain a cause in a few words, and what the words of its name mean that need it.

    >>> explain_cause("communication/pp/transfer").split(". ")[1]
    'Time in which data moves after all ranks have arrived'
    """
    return ". ".join(
        [describe_cause(cause), *(WORDS[part] for part in cause.split("/")[1:] if part in WORDS)]
    )


def name_rank(rank: Rank) -> str:
    """Identify a rank: its number in the job if known, its process and device."""
    place = name_process(rank, "process {}, device {}")
    return place if rank.rank is None else f"rank {rank.rank} ({place})"


def name_process(rank: Rank, template: str) -> str:
    """Fill process and device of a rank into a template."""
    return template.format(*("unknown" if value is None else value for value in (rank.pid, rank.device)))


def explain_choice(analysis: Analysis) -> str:
    """Say why this rank is shown."""
    job = analysis.job
    is_critical = (
        job is not None and job.collectives.matched and job.critical_place == analysis.diagnosis.rank_index
    )
    return f"which {'waits least for others' if is_critical else 'has the smallest share of compute'}"


def describe_capture(analysis: Analysis, place: int) -> str:
    """Say what was analyzed: the export at that index, its version, GPUs, ranks."""
    export = analysis.inputs[place]
    used = [analysis.inputs[rank.input].gpu(rank.gpu) for rank in analysis.ranks]
    models = sorted({gpu.name for gpu in used if gpu is not None and gpu.name})
    parts = [
        visible(export.name, most=60) if len(analysis.inputs) == 1 else count_exports(analysis),
        describe_profiler(export),
        ", ".join(models) or "GPU unknown",
        _count_ranks(analysis),
    ]
    return visible(" · ".join(parts))


def describe_profiler(export: Export) -> str:
    """Say what recorded a capture, and its version; PyTorch's traces do not hold one."""
    if export.profiler == Profiler.TORCH:
        return "PyTorch profiler"
    return f"nsys {export.nsys_version}" if export.nsys_version else "nsys version unknown"


def count_exports(analysis: Analysis) -> str:
    """Say how many exports there are, from how many hosts."""
    hosts = {export.hostname for export in analysis.inputs if export.hostname}
    where = f" of {units.plural(len(hosts), 'host')}" if hosts else ""
    return f"{units.plural(len(analysis.inputs), 'export')}{where}"


def _count_ranks(analysis: Analysis) -> str:
    """Say how many ranks there are, of how many."""
    supplied, of_all = len(analysis.ranks), analysis.capture.world_size
    if of_all is None or of_all <= 1:
        return units.plural(supplied, "rank")
    number = analysis.ranks[0].rank
    is_one = number is not None and supplied == 1
    return f"rank {number} of {of_all}" if is_one else f"{supplied} of {of_all} ranks"


def describe_steps(anchor: Anchor, rank: Rank) -> tuple[str, ...]:
    """Say in one or two lines how long steps take, how many count, and by what they were found."""
    if anchor.kind == "whole-trace":
        whole = "whole capture" if anchor.selected_time_ns is None else "selected time"
        return (f"No step found: the {whole} is one window",)
    steady = sorted(step.end_ns - step.start_ns for step in rank.steps if step.steady)
    counted = f"{units.plural(len(steady), f'steady {anchor.unit}')} of {len(rank.steps)}"
    by = "bursts of optimizer kernels" if anchor.kind == "optimizer" else "the repeating kernel sequence"
    by = f"ranges {visible(anchor.name, most=60)}" if anchor.name else by
    found, inner = f"found by {by}", anchor.inner
    if len(steady) < ENOUGH_STEPS_COUNT and inner is not None:
        spread = f"median {units.duration(inner.median_ns)}, {_describe_spread(inner.p10_ns, inner.p90_ns)}"
        name = visible(inner.name, most=40)
        return f"{counted}, {found}", f"{inner.count} times {name} inside ({inner.unit}): {spread}"
    if len(steady) < 2:
        return (f"{counted}{f': {units.duration(steady[0])}' if steady else ''}, {found}",)
    if len(steady) < ENOUGH_STEPS_COUNT:
        listed = ", ".join(map(units.duration, steady))
        return f"{counted}: {listed}", found
    low, median, high = (_decile(steady, tenths) for tenths in (1, 5, 9))
    return f"{counted}: median {units.duration(median)}, {_describe_spread(low, high)}", found


def _decile(ordered: Sequence[int], tenths: int) -> int:
    """Find the time below which so many tenths of the sorted times lie, between neighbors in proportion.

    >>> _decile([10, 20, 40], 5), _decile([10, 20, 40], 9), _decile([7], 1)
    (20, 36, 7)
    """
    place, beyond = divmod((len(ordered) - 1) * tenths, 10)
    if not beyond:
        return ordered[place]
    return ordered[place] + (ordered[place + 1] - ordered[place]) * beyond // 10


def _describe_spread(low_ns: int, high_ns: int) -> str:
    return f"p10-p90 {units.duration(low_ns)} to {units.duration(high_ns)}"


def describe_throughput(found: Throughput | None) -> Iterator[str]:
    """Compare the capture with an unprofiled step; show tokens and FLOPs, and their source."""
    if found is None:
        return
    if found.perturbation is not None:
        unprofiled = units.duration(found.unprofiled_step_ns)
        yield f"Unprofiled step {unprofiled}: in the capture it takes {found.perturbation:.2f}x as long"
    parts, is_partial = [], found.flops_share is not None and found.flops_share < 1
    least = "at least " if is_partial else ""
    if found.tokens_per_s is not None:
        parts.append(f"{units.number(round(found.tokens_per_s))} tokens/s of the job")
    if found.flops_per_s is not None:
        source = "operator shapes" if found.flops_source == "shapes" else "your count"
        parts.append(f"{least}{units.flops(found.flops_per_s)} per GPU, from {source}")
        if least:
            share = units.percent(found.flops_share)
            parts[-1] += f" (known for {share} of the time of GEMM and convolution kernels)"
    if parts:
        yield f"In the capture: {', '.join(parts)}"
    if found.mfu is not None and found.peak is not None:
        peak = f"{units.flops(found.peak.flops_per_s)} dense {found.peak.precision}"
        counted = ", recomputed work counted" if found.flops_source == "shapes" else ""
        yield f"MFU {least}{units.percent(found.mfu)} of {peak} ({found.peak.source}{counted})"


def shorten_anchor(name: str) -> str:
    """Return the last part of a dotted name of ranges, without the mark of its number.

    >>> shorten_anchor("megatron.bridge.training.train.train.training_step_#"), shorten_anchor("step #")
    ('training_step', 'step')
    """
    last = name if " " in name else name.rpartition(".")[2] or name
    return last.removesuffix("#").rstrip("_ ") or last


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
        length = units.duration(sum(job.walls.parts()))
        title = f"Mean of {job.ranks} ranks; a wait for a late rank counts as what delayed that rank"
        return TimeBasis("job", job.walls, f"the mean {window} of {job.ranks} ranks ({length})", title)
    shown = (
        "" if len(analysis.ranks) == 1 else f"{units.capitalize(name_rank(rank))}, {explain_choice(analysis)}"
    )
    decision = decide_steady_steps(rank)
    if rank.whole_walls is not None and find_scope(analysis).time == "start-up":
        length = units.duration(sum(rank.whole_walls.parts()))
        title = f"Whole capture; most of it lies before the first {window}"
        return TimeBasis("whole", rank.whole_walls, f"the whole capture ({length})", title)
    if decision is not None and decision.is_mean:
        walls = _average_steps(rank)
        length = units.duration(sum(walls.parts()))
        title = shown or f"Mean of the steady {window}s"
        return TimeBasis("mean", walls, f"the mean {window} ({length})", title, shares)
    if shares is not None and (counted := count_deciding(analysis, rank)):
        return TimeBasis("median", rank.typical.walls, f"the {window} (median of {counted})", shown, shares)
    whole = f"the {units.duration(rank.typical.step_ns)} {window}"
    return TimeBasis("typical", rank.typical.walls, whole, shown)


def count_deciding(analysis: Analysis, rank: Rank) -> str:
    """Count the steps whose shares decide, in words; empty for one."""
    steady, window = sum(step.steady for step in rank.steps), analysis.anchor.window
    if max(steady, 0 if steady else len(rank.steps)) < 2:
        return ""
    return units.plural(steady, f"steady {window}") if steady else units.plural(len(rank.steps), window)


def name_basis(analysis: Analysis, basis: TimeBasis) -> str:
    """Name the time that the bar and the large number show."""
    window, ranks = analysis.anchor.window, len(analysis.ranks)
    return {
        "median": analysis.anchor.typical,
        "typical": analysis.anchor.typical,
        "mean": f"mean {window}, slow ones included",
        "whole": "whole capture",
        "job": f"{window}, mean of {units.plural(ranks, 'rank')}",
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


def explain_verdict(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Explain the dominant wall in a sentence: its share, of what, and its largest cause."""
    dominant = find_dominant(analysis)
    if dominant == "unknown":
        return " ".join(filter(None, explain_unknown(analysis)))
    shares = sorted(((basis.share(wall), wall) for wall in LOSSES), reverse=True)
    if dominant == "mixed":
        listed = ", ".join(f"{wall} {units.percent(share)}" for share, wall in shares if share)
        largest, second_share = shares[0][0], shares[1][0]
        is_led = largest >= max(DOMINANT_SHARE, second_share + DOMINANT_LEAD_SHARE)
        differs = f" The largest loss differs from {analysis.anchor.window} to {analysis.anchor.window}."
        return f"No wall dominates {basis.whole}: {listed}.{differs if is_led else ''}"
    wall = Wall(dominant)
    taken = units.percent(basis.share(wall))
    reason = _explain_share(analysis, rank, wall, basis)
    if wall is not Wall.COMPUTE:
        is_useful = basis.share(Wall.COMPUTE) > basis.share(wall) and basis.kind != "job"
        is_useful = is_useful and not reason.startswith(",")
        useful = "; compute is not a loss" if is_useful else ""
        name = name_wall(wall)
        if wall is Wall.MEMORY and (kinds := list_memory_kinds(rank)):
            name, useful = f"Memory time ({kinds}, not DRAM bandwidth)", ""
        lead = f"{name} is the largest loss: {taken} of {basis.whole}{useful}"
        return " ".join((f"{lead}{reason}.", *_locate_host_time(rank, wall, basis)))
    lead = f"Compute takes {taken} of {basis.whole}"
    share, second = shares[0]
    loss = (
        f"The largest loss is {second}: {units.percent(share)}."
        if share >= NAMED_LOSS_SHARE
        else f"No loss reaches {100 * NAMED_LOSS_SHARE:.0f} %."
        if share
        else "No time is lost to the other walls."
    )
    is_of_rank = basis.kind in _OF_TYPICAL
    hidden = tell_hidden_communication(rank, analysis.anchor.typical) if is_of_rank else ()
    return " ".join((f"{lead}{reason}.", loss, *hidden))


def describe_hidden_communication(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Say how much communication runs, where most of it delays nothing and the headline does not say so."""
    found, window, lost_ns = rank.communication, analysis.anchor.typical, rank.typical.walls.communication
    spare_ns = found.union_ns - lost_ns
    if spare_ns < lost_ns or spare_ns < SHOWN_HIDDEN_SHARE * max(rank.typical.step_ns, 1):
        return
    sentence = " ".join(tell_hidden_communication(rank, window))
    if sentence and explain_verdict(analysis, rank, choose_basis(analysis, rank)).endswith(sentence):
        return
    hidden_ns, unit = found.union_ns - found.exposed_ns, analysis.anchor.window
    delay = f"delays the {unit} by {units.duration(lost_ns)}" if lost_ns else f"does not delay the {unit}"
    by = f". Compute hides {units.duration(hidden_ns)} of this time; communication" if hidden_ns else " and"
    yield f"Communication runs for {units.duration(found.union_ns)} of the {window}{by} {delay}."


def _locate_host_time(rank: Rank, wall: Wall, basis: TimeBasis) -> Iterator[str]:
    """Name the range in which most host time of the typical step passes."""
    place = None if rank.host_details is None else rank.host_details.range
    if wall is Wall.HOST and basis.kind in _OF_TYPICAL and place is not None:
        name = visible(place.name, most=_LONGEST_RANGE)
        yield f"{units.duration(place.host_ns)} of the host time is in the range {name}."


def _explain_share(analysis: Analysis, rank: Rank, wall: Wall, basis: TimeBasis) -> str:
    """Say what a wall is mostly made of; of the mean step and the whole capture, where it lies."""
    unit, job = analysis.anchor.window, analysis.job
    stall = find_deciding_stall(rank, basis, wall)
    if stall is not None:
        return _describe_stall(rank, stall, unit)
    if basis.kind == "whole":
        before = f". Most of this time passes before the first {unit}"
        return f"{before}{_describe_steps_alone(rank, unit)}"
    where = "" if job is None else f" on {job.members[analysis.diagnosis.rank_index].name}"
    if basis.kind in {"median", "mean", "job"}:
        typical = "" if basis.kind == "job" else "typical "
        where = f" of the {typical}{units.duration(rank.typical.step_ns)} {unit}{where}"
    return _name_main_cause(analysis, rank, wall, where)


def _describe_steps_alone(rank: Rank, unit: str) -> str:
    """Say what takes most of the typical step, where the verdict is about the whole capture."""
    times_ns = dict(zip(Wall, rank.typical.walls.parts(), strict=True))
    largest = max(times_ns, key=lambda wall: times_ns[wall])
    share = units.percent(times_ns[largest] / max(rank.typical.step_ns, 1))
    return f". Of the typical {units.duration(rank.typical.step_ns)} {unit}, {largest} takes {share}"


def find_deciding_stall(rank: Rank, basis: TimeBasis, dominant: str) -> RareStall | None:
    """Return the stall of few steps that makes a wall the dominant one of the mean step, if one does."""
    stalls = [one for one in rank.rare_stalls if one.wall == dominant]
    return stalls[0] if basis.kind == "mean" and stalls else None


def _describe_stall(rank: Rank, stall: RareStall, unit: str) -> str:
    """Say what few steps cost in all, and which loss is the largest of the typical step, without them."""
    steady = sum(step.steady for step in rank.steps)
    text = (
        f", because {len(stall.steps)} of {steady} {unit}s take up to {units.duration(stall.most_ns)} more"
        f" for {describe_cause(stall.cause)} ({units.percent(stall.share)} of the time of all {unit}s)"
    )
    parts = {wall: getattr(rank.typical.walls, wall) for wall in LOSSES}
    largest = max(LOSSES, key=lambda wall: parts[wall])
    if largest == stall.wall or not parts[largest]:
        return text
    share = units.percent(parts[largest] / max(rank.typical.step_ns, 1))
    typical = f"the typical {units.duration(rank.typical.step_ns)} {unit}"
    return f"{text}. In {typical}, the largest loss is {largest}: {share}"


def explain_unknown(analysis: Analysis) -> tuple[str, str]:
    """Return why there is no verdict, without the words of the headline, and what to do, if that is known."""
    first, _, rest = analysis.diagnosis.verdict.partition(". ")
    reason = units.capitalize(first.removeprefix("The wall is unknown: ").rstrip("."))
    cure = rest.partition(". ")[0].rstrip(".")
    return f"{reason}.", f"{cure}." if cure.startswith(("Capture", "Classify")) else ""


def _name_main_cause(analysis: Analysis, rank: Rank, wall: Wall, where: str) -> str:
    """Name the largest cause of a wall; where its removal gains little, because of other work, say so."""
    own = [entry for entry in rank.causes if entry.wall == wall]
    if not own:
        return ""
    largest = max(own, key=lambda entry: entry.typical_ns)
    name = describe_cause(largest.cause)
    if wall is Wall.COMMUNICATION:
        name = name.partition(", ")[0]
    label = "Largest part" if wall is Wall.COMPUTE else "Main cause"
    text = f". {label}: {name}, {units.duration(largest.typical_ns)}{where}"
    won_ns = next((one.recoverable_ns for one in analysis.opportunities if one.cause == largest.cause), None)
    if won_ns is None or won_ns >= LITTLE_GAIN_SHARE * largest.typical_ns:
        return text
    unit = analysis.anchor.window
    return f"{text}. Without this cause, the {unit} is at most {units.duration(won_ns)} shorter"

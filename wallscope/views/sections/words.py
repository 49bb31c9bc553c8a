"""Words and sentences that sections share; the verdict of an analysis in one sentence."""

from collections.abc import Iterator, Sequence
from typing import Final

from wallscope import units
from wallscope.advice.condition_words import join_words
from wallscope.advice.definitions import define_terms
from wallscope.model.analysis import Analysis, Anchor, Rank
from wallscope.model.capture import Export, Profiler
from wallscope.model.cause_catalogue import describe_cause, split_meaning
from wallscope.model.diagnosis import LoggedSteps, MemoryPressure, Throughput, WallInflation
from wallscope.model.enums import DeviceState, Wall
from wallscope.render.texts import visible
from wallscope.thresholds.logs import LOG_CONTRADICTION_SHARE
from wallscope.thresholds.steps import ENOUGH_STEPS_COUNT

WALL_WORDS: Final = {
    Wall.COMPUTE: "A compute kernel runs, or the GPU is between two kernels without waiting for the host,"
    " communication or memory. Recomputed forward work counts as memory instead.",
    Wall.COMMUNICATION: "No compute kernel runs, and the step waits for communication between ranks: either"
    " for data to arrive or for other ranks.",
    Wall.MEMORY: "No compute kernel runs, and the step waits for a copy, a memset or a memory allocation."
    " Forward work that the backward pass recomputes also counts as memory.",
    Wall.HOST: "No compute kernel runs, and the step waits for the host: launches, blocking calls, Python and"
    " framework code, data loading, or small copies.",
    Wall.UNATTRIBUTED: "The time fits no other wall, because its cause is unknown, the profiler blocked the"
    " program, or only unrecognized kernels or a CUDA graph traced as a whole ran.",
}
"""What time of a step is attributed to each wall."""
STATE_WORDS: Final = {
    DeviceState.COMPUTE: "At least one compute kernel ran.",
    DeviceState.OPAQUE_GRAPH: "A CUDA graph whose kernels are not in the capture ran, but no compute kernel"
    " did.",
    DeviceState.EXPOSED_COMMUNICATION: "Communication ran, but no compute kernel or opaque CUDA graph did.",
    DeviceState.EXPOSED_COPY: "A copy or memset ran, but no compute kernel, opaque CUDA graph or"
    " communication did.",
    DeviceState.IDLE: "No operation ran on the GPU.",
}
"""What the device did, in order of precedence."""
WORDS: Final = define_terms("analysis")
"""Of the answer."""
COMPARISON_WORDS: Final = define_terms("comparison")
"""Of a comparison."""
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


def split_cause(cause: str) -> tuple[str, tuple[str, ...]]:
    """Split the description of a cause of communication into its operation and what it consists of.

    >>> split_cause("communication/ep/unsplit")
    ('Expert-parallel all-to-all (dispatch and combine)', ('Including waiting for peers.',))
    >>> split_cause("host/framework")
    ('Host time outside CUDA calls (Python, framework, program)', ())
    """
    head, rest = split_meaning(cause)
    return units.capitalize(head), (f"{units.capitalize(rest)}.",) if rest else ()


def explain_cause(cause: str) -> str:
    """Explain a cause in a few words, and what the words of its name mean that need it.

    >>> explain_cause("communication/pp/transfer").split(". ")[1]
    'Time in which data moves, after all ranks have arrived'
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
    return " · ".join(list_capture_facts(analysis, place))


def list_capture_facts(analysis: Analysis, place: int) -> tuple[str, ...]:
    """Return what was analyzed: the export at that index, its version, GPUs, ranks."""
    export = analysis.inputs[place]
    used = [analysis.inputs[rank.input].gpu(rank.gpu) for rank in analysis.ranks]
    models = sorted({gpu.name for gpu in used if gpu is not None and gpu.name})
    parts = [
        visible(export.name, most=60) if len(analysis.inputs) == 1 else count_exports(analysis),
        describe_profiler(export),
        ", ".join(models) or "GPU unknown",
        _count_ranks(analysis),
    ]
    return tuple(map(visible, parts))


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
        return (f"No step was found, so the {whole} is one window",)
    steady = sorted(step.end_ns - step.start_ns for step in rank.steps if step.steady)
    counted = f"{units.plural(len(steady), f'steady {anchor.unit}')} of {len(rank.steps)}"
    found, inner = describe_finder(anchor), anchor.inner
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


def describe_finder(anchor: Anchor) -> str:
    """Say by what steps were found."""
    if anchor.name:
        return f"found by ranges {visible(anchor.name, most=60)}"
    is_optimizer = anchor.kind == "optimizer"
    return f"found by {'bursts of optimizer kernels' if is_optimizer else 'the repeating kernel sequence'}"


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
        slower = f"{found.perturbation:.2f}x as long"
        yield f"Without the profiler, the step takes {unprofiled}; in the capture, it takes {slower}"
    if found.logged is not None:
        yield from _describe_log(found.logged, found)
    if found.inflation and any(one.inflated != "no" for one in found.inflation):
        yield f"Profiling inflates {_describe_inflation(found.inflation)}"
    parts, is_partial = [], found.flops_share is not None and found.flops_share < 1
    least = "at least " if is_partial else ""
    if found.tokens_per_s is not None:
        parts.append(f"{units.number(round(found.tokens_per_s))} tokens/s for the whole job")
    if found.flops_per_s is not None:
        source = "operator shapes" if found.flops_source == "shapes" else "your count"
        parts.append(f"{least}{units.flops(found.flops_per_s)} per GPU, computed from {source}")
        if least:
            share = units.percent(found.flops_share)
            parts[-1] += f" (known for {share} of GEMM and convolution time)"
    if parts:
        yield f"The captured run reaches {' and '.join(parts)}"
    if found.mfu is not None and found.peak is not None:
        peak = f"the dense {found.peak.precision.upper()} peak of {units.flops(found.peak.flops_per_s)}"
        counted = ", counting recomputed work" if found.flops_source == "shapes" else ""
        yield f"MFU is {least}{units.percent(found.mfu)} of {peak} ({found.peak.source}{counted})"


def _describe_log(log: LoggedSteps, found: Throughput) -> Iterator[str]:
    """Say what the step time of a log rests on, and what the log states besides."""
    source = f"{join_words(log.formats, 'and')} log" if log.formats else "log"
    if log.step_ns is not None:
        yield f"Step time from the {source}: {', '.join(_describe_log_basis(log))}"
    parts = [*_list_log_figures(log, found.logged_mfu)]
    if parts:
        yield f"Without the profiler, according to the {source}: {', '.join(parts)}"
    if log.mfu and log.flops_per_s and found.peak is not None:
        assumed = log.flops_per_s / log.mfu
        if abs(assumed / found.peak.flops_per_s - 1) > LOG_CONTRADICTION_SHARE:
            own = f"{units.flops(found.peak.flops_per_s)} dense {found.peak.precision}"
            peak = units.flops(assumed)
            yield f"The MFU in the log assumes a peak of {peak}, but the captured GPU has {own}"


def _list_log_figures(log: LoggedSteps, mfu: float | None) -> Iterator[str]:
    if log.tokens_per_s is not None:
        yield f"{units.number(round(log.tokens_per_s))} tokens/s of the job"
    if log.gpu_tokens_per_s is not None:
        yield f"{units.number(round(log.gpu_tokens_per_s))} tokens/s per GPU"
    if log.flops_per_s is not None:
        yield f"{units.flops(log.flops_per_s)} per GPU"
    if mfu is not None:
        yield f"MFU {units.percent(mfu)}"
    if log.skipped_steps:
        yield units.plural(log.skipped_steps, "skipped step")
    if log.loss_scale is not None:
        yield f"loss scale {units.number(round(log.loss_scale))}"


def _describe_log_basis(log: LoggedSteps) -> Iterator[str]:
    """Say which reports the step time of a log rests on, and which are left out."""
    if log.basis == "whole-run":
        yield "mean of the whole run, warm-up included"
        return
    about = f" about {units.plural(log.steps, 'step')}" if log.steps > log.reports else ""
    yield f"median of {units.plural(log.reports, 'report')}{about}"
    if log.low_ns is not None and log.high_ns is not None:
        yield _describe_spread(log.low_ns, log.high_ns)
    yield f"{log.warm_up_reports} of warm-up left out"
    if log.broken_reports:
        yield f"{units.plural(log.broken_reports, 'broken line')} not read"


def _describe_inflation(inflation: Sequence[WallInflation]) -> str:
    """Say which walls the capture inflates, which it may inflate, and which not."""
    sure = [f"{one.wall} by {units.duration(one.most_ns)}" for one in inflation if one.inflated == "yes"]
    possible = [
        f"{one.wall} by up to {units.duration(one.most_ns)}"
        for one in inflation
        if one.inflated == "possible"
    ]
    none = [str(one.wall) for one in inflation if one.inflated == "no"]
    parts = [*sure, *([f"perhaps {join_words(possible, 'and')}"] if possible else [])]
    if none:
        parts.append(f"and not {join_words(none)}")
    return ", ".join(parts)


def shorten_anchor(name: str) -> str:
    """Return the last part of a dotted name of ranges, without the mark of its number.

    >>> shorten_anchor("megatron.bridge.training.train.train.training_step_#"), shorten_anchor("step #")
    ('training_step', 'step')
    """
    last = name if " " in name else name.rpartition(".")[2] or name
    return last.removesuffix("#").rstrip("_ ") or last

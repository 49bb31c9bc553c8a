"""What supports a fix: evidence of the capture, the changes of its replay in words, what its bound assumes.

Readers find the kernels, copies and calls in Nsight Systems by these names.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from wallscope.advice.condition_words import join_words
from wallscope.model.capture import Profiler
from wallscope.model.cause_catalogue import (
    DRAINED,
    HOST_DATA_LOADING,
    HOST_FRAMEWORK,
    HOST_LAUNCH_CALL,
    HOST_LAUNCH_LATENCY,
    HOST_SMALL_COPY,
    HOST_SYNCHRONISATION,
    LAUNCHING,
    MEMORY_ALLOCATOR,
    MEMORY_DRIVER_LOCK,
    MEMORY_OFFLOAD,
    MEMORY_RECOMPUTE,
    REFILL,
    WAIT,
    describe_cause,
    name_cause,
)
from wallscope.model.enums import CopyDirection, Wall
from wallscope.model.rank_summaries import CopyWork
from wallscope.model.whatif import Answer, Question
from wallscope.records import dataclass
from wallscope.thresholds.causes import BULK_COPY_BYTES
from wallscope.thresholds.verdict import (
    EVIDENCE_LINES_COUNT,
    MATERIAL_SHARE,
    MOSTLY_IN_RANGE_SHARE,
    SMALL_PART_OF_CAUSE_SHARE,
)
from wallscope.units import duration, number, percent, plural, size, write_speedup

if TYPE_CHECKING:
    from wallscope.advice.measurements import MeasuredRun


_COPIES = {
    "staging": (CopyDirection.HOST_TO_DEVICE,),
    "readback": (CopyDirection.DEVICE_TO_HOST,),
    "offload": (CopyDirection.HOST_TO_DEVICE, CopyDirection.DEVICE_TO_HOST),
    "device-copy": (CopyDirection.DEVICE_TO_DEVICE,),
    "migration": (
        CopyDirection.MIGRATION_TO_DEVICE,
        CopyDirection.MIGRATION_TO_HOST,
        CopyDirection.MIGRATION_BETWEEN_DEVICES,
    ),
    "fill": (CopyDirection.FILL,),
}
_DRIVER_LOCK = MEMORY_DRIVER_LOCK
_WHERE_PARTS_COUNT = 2


def list_evidence(
    run: "MeasuredRun", causes: tuple[str, ...], measured: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return the evidence of the representative rank for a fix and its causes, one line per kind.

    `measured` are the measurements that the conditions of the fix name.
    """
    lines = dict.fromkeys(_list_attention(run) if "unfused_attention_share" in measured else ())
    lines |= dict.fromkeys(line for cause in causes for line in _list_cause_evidence(run, cause))
    return tuple(lines)[:EVIDENCE_LINES_COUNT]


def _list_attention(run: "MeasuredRun") -> Iterator[str]:
    """Yield what runs between the multiplications of attention."""
    details = run.rank.compute_details
    if details is not None and (found := details.unfused_attention) is not None:
        shown = ", ".join(found.ranges[:_WHERE_PARTS_COUNT])
        yield (
            f"{plural(found.between_kernels, 'kernel')} that do not multiply, in ranges {shown}:"
            f" {duration(found.between_ns)} per {run.window}"
        )


def _list_cause_evidence(run: "MeasuredRun", cause: str) -> Iterator[str]:
    wall, kind, *_ = [*cause.split("/"), ""]
    yield from _list_stalls(run, cause)
    if wall == "compute":
        yield from _list_kernels(run, kind)
    elif cause == _DRIVER_LOCK:
        yield from _list_locked_calls(run)
    elif wall == "memory":
        yield from _list_copies(run, kind)
    elif wall == "communication":
        yield from _list_collectives(run, kind)
    elif cause.startswith(DRAINED):
        yield from _list_blocking_calls(run, cause.removeprefix(DRAINED))
    elif cause == HOST_DATA_LOADING:
        yield from _list_loading(run)
    elif cause == HOST_SMALL_COPY:
        yield from _list_small_copies(run)
    elif cause in LAUNCHING:
        yield from _list_launches(run)


def _list_stalls(run: "MeasuredRun", cause: str) -> Iterator[str]:
    """Yield the few steps with most of a cause's time."""
    for stall in run.rank.rare_stalls:
        if stall.cause == cause and run.rare_share(cause):
            shown = ", ".join(map(str, stall.steps[:3]))
            yield (
                f"{plural(len(stall.steps), 'step')} ({shown}{' …' if len(stall.steps) > 3 else ''}) take"
                f" {duration(stall.least_ns)} to {duration(stall.most_ns)} more than usual;"
                f" together this is {percent(stall.share)} of the time of all {run.window}s"
            )


def _list_kernels(run: "MeasuredRun", category: str) -> Iterator[str]:
    details = run.rank.compute_details
    for kernel in () if details is None else details.leading_kernels:
        if kernel.category == category:
            precision = "" if kernel.precision == "unknown" else f", {kernel.precision}"
            yield (
                f"{plural(kernel.kernels, 'kernel')} {kernel.name}{precision}: {duration(kernel.work_ns)}"
                f" per {run.window}"
            )


def _list_copies(run: "MeasuredRun", kind: str) -> Iterator[str]:
    for copy in run.rank.memory.copies:
        if copy.direction in _COPIES.get(kind, ()) and copy.count:
            yield f"{_describe_copy(copy)} per {run.window}"


def _name_copies(copy: CopyWork) -> str:
    noun = ("memset", "memsets") if copy.direction == "fill" else ("copy", "copies")
    return f"{'' if copy.direction == 'fill' else f'{copy.direction} '}{noun[copy.count != 1]}"


def _describe_copy(copy: CopyWork) -> str:
    pinned = "" if copy.pinned is None else ", pinned" if copy.pinned else ", pageable"
    return (
        f"{number(copy.count)} {_name_copies(copy)}{pinned}: {size(copy.bytes)} in {duration(copy.work_ns)}"
        f" ({duration(copy.exposed_ns)} not overlapped)"
    )


def _list_collectives(run: "MeasuredRun", axis: str) -> Iterator[str]:
    for entry in run.rank.communication.operations:
        if entry.axis == axis:
            detail = f"; axis known from: {entry.evidence[0]}" if entry.evidence else ""
            yield (
                f"{number(entry.count)} {entry.operation} ({entry.backend}): {duration(entry.work_ns)}"
                f" per {run.window}, {duration(entry.exposed_ns)} exposed{detail}"
            )


def _list_blocking_calls(run: "MeasuredRun", name: str) -> Iterator[str]:
    host = run.rank.host_details
    for call in () if host is None else host.blocking_calls:
        if call.name == name:
            where = (
                ""
                if call.path is None
                else f" (range {' / '.join(call.path.split(' / ')[-_WHERE_PARTS_COUNT:])})"
            )
            yield (
                f"{_count_mean_calls(call.count)} of {call.name} per {run.window}: the host waits"
                f" {duration(call.waited_ns)}, then the GPU is idle for {duration(call.drained_ns)}{where}"
            )


def _count_mean_calls(count: float) -> str:
    """Count calls per step: a mean, so without its decimal only where all steps agree.

    >>> _count_mean_calls(24.0), _count_mean_calls(1.7), _count_mean_calls(1.0)
    ('24 calls', '1.7 calls', '1 call')
    """
    return f"{count:,.1f}".removesuffix(".0") + (" call" if count == 1 else " calls")


def _list_loading(run: "MeasuredRun") -> Iterator[str]:
    host = run.rank.host_details
    own = [one for one in run.rank.memory.copies if one.direction == CopyDirection.HOST_TO_DEVICE]
    if own:
        largest = max(own, key=lambda one: one.bytes)
        yield f"the waits end with the copy of a batch: {_describe_copy(largest)}"
    yield from _count_loader_threads(run)
    if host is not None and host.cpu is not None:
        yield f"the launching thread runs on a CPU for {percent(host.cpu.share)} of the {run.window}"


def _count_loader_threads(run: "MeasuredRun") -> Iterator[str]:
    """Yield how many threads and worker processes of loaders the export names."""
    if run.loader_threads:
        counts = (f"{number(count)} {kind}" for kind, count in sorted(run.loader_threads.items()))
        yield f"loader threads and worker processes by their names: {', '.join(counts)}"
    elif run.framework == "pytorch" and run.profiler == Profiler.NSYS:
        yield "no thread or process in the export has the name of a loader worker: their number is unknown"


def _list_small_copies(run: "MeasuredRun") -> Iterator[str]:
    for copy in run.rank.memory.copies:
        crosses = copy.direction in _COPIES["offload"]
        if crosses and copy.count and copy.bytes < BULK_COPY_BYTES * copy.count:
            yield f"{_describe_copy(copy)} per {run.window}"


def _list_locked_calls(run: "MeasuredRun") -> Iterator[str]:
    host = run.rank.host_details
    for call in () if host is None else host.locked_calls:
        yield (
            f"{_count_mean_calls(call.count)} of {call.name} per {run.window} wait while another thread"
            f" is in {call.holder}: {duration(call.waited_ns)}"
        )


def _list_launches(run: "MeasuredRun") -> Iterator[str]:
    host = run.rank.host_details
    if host is not None and host.launches is not None:
        cost = host.launches
        yield (
            f"{number(cost.calls)} launch calls per {run.window}, median"
            f" {duration(cost.median_ns)}; {percent(cost.outpaced_share)} take longer than the launched"
            " kernel"
        )


THINK, LAUNCH = "think", "launch"
_AXES = {
    "ep": "expert-parallel",
    "dp-gradient": "gradient",
    "dp-parameter": "parameter",
    "tp": "tensor-parallel",
    "cp": "context-parallel",
    "pp": "pipeline",
}
_TARGETS = {
    THINK: "host time outside CUDA calls",
    LAUNCH: "launch calls and launch latency",
    "copies": "copies",
    "jitter": "jitter of communication",
    "synchronisation": "synchronizing calls",
    "allocator": "allocator calls",
    "recompute": "recomputation",
    "offload": "offload copies",
}


_OF_CALL = {WAIT: "the wait in", REFILL: "host time after"}


def name_target(target: str) -> str:
    """Return what a replay changes in words: a wall of traffic, a category of kernels, a cause.

    >>> name_target("communication:ep"), name_target("category:gemm"), name_target("collective:all-to-all")
    ('expert-parallel communication', 'gemm kernels', 'all-to-all collectives')
    >>> name_target("wait:cudaStreamSynchronize"), name_target("refill:cudaStreamSynchronize")
    ('the wait in cudaStreamSynchronize', 'host time after cudaStreamSynchronize')
    >>> name_target("host/other-call")
    'host time inside other CUDA calls (neither launches nor waits)'
    """
    kind, _, detail = target.partition(":")
    if kind == "communication" and detail:
        return f"{_AXES.get(detail, detail)} communication"
    if kind in {"category", "collective"}:
        return f"{detail} {'kernels' if kind == 'category' else 'collectives'}"
    if f"{kind}:" in _OF_CALL:
        return f"{_OF_CALL[f'{kind}:']} {detail}"
    if "/" in target:
        return describe_cause(target)
    return _TARGETS.get(target, target)


def describe_share(question: Question) -> str:
    """Say what share of a target stays.

    >>> describe_share(Question("scale", "category:gemm", 0.25))
    'gemm kernels at 25 %'
    """
    return f"{name_target(question.target)} at {100 * (question.share or 0.0):.3g} %"


def describe_question(question: Question) -> str:
    """Say what a replay changes, in words that follow "replay".

    >>> describe_question(Question("hide", "communication:ep"))
    'with expert-parallel communication fully hidden'
    >>> describe_question(Question("scale", "think", 0.5))
    'with host time outside CUDA calls at 50 % of the current time'
    """
    target = name_target(question.target)
    match question.kind:
        case "scale":
            return (
                f"with {describe_share(question)} of the current time"
                if question.share
                else f"without {target}"
            )
        case "without":
            return f"without {target}"
        case "graph":
            launched = "all launches" if question.target == "*" else f"launches in {question.target}"
            return f"with {launched} as CUDA graphs"
        case "hide":
            return f"with {target} fully hidden"
        case "overlap":
            return f"with {target} on a stream of its own"


def describe_questions(questions: Sequence[Question]) -> str:
    """Say what a replay changes, in words that follow "replay"; scaled times share their last words.

    >>> describe_questions((Question("scale", "copies", 0.5), Question("scale", "think", 0.5)))
    'with copies at 50 % and host time outside CUDA calls at 50 % of the current time'
    """
    scaled = [one for one in questions if one.kind == "scale" and one.share]
    others = [describe_question(one) for one in questions if one not in scaled]
    if scaled:
        others.insert(0, f"with {describe_remaining_shares(scaled)}")
    return " and ".join(others)


def describe_remaining_shares(questions: Sequence[Question]) -> str:
    """Say what shares of several targets stay."""
    return f"{join_words([*map(describe_share, questions)], 'and')} of the current time"


def describe_assumed_shares(questions: Sequence[Question], whole: str = "time") -> str:
    """Say what scaled targets are assumed to take of a whole: `time`, or a length.

    >>> gemm, norm = Question("scale", "category:gemm", 0.25), Question("scale", "category:norm", 0.5)
    >>> describe_assumed_shares((gemm, norm))
    'assumes 25 % of the current time for gemm kernels and 50 % for norm kernels'
    """
    of_whole = (f" of the current {whole}", *[""] * len(questions))
    parts = [
        f"{100 * (one.share or 0.0):.3g} %{of} for {name_target(one.target)}"
        for one, of in zip(questions, of_whole, strict=False)
    ]
    return f"assumes {join_words(parts, 'and')}"


_FRAMEWORK = HOST_FRAMEWORK
_REACHED = {
    THINK: (_FRAMEWORK, DRAINED),
    LAUNCH: (HOST_LAUNCH_CALL, HOST_LAUNCH_LATENCY),
}
"""Beginnings of the causes whose time a target of a replay holds."""


def _list_reached_beginnings(question: Question) -> tuple[str, ...]:
    """Return the beginnings of the causes whose time a question changes."""
    kind, colon, detail = question.target.partition(":")
    match question.kind:
        case "graph":
            return (*_REACHED[LAUNCH], *_REACHED[THINK])
        case "without" if question.target in _LOST:
            return _LOST[question.target]
        case _ if question.target in _REACHED:
            return _REACHED[question.target]
        case _ if kind == "communication":
            return (f"{kind}/{detail}/" if colon else f"{kind}/",)
        case _ if f"{kind}:" in _OF_CALL:
            return (f"{DRAINED}{detail}",)
        case _:
            return (f"compute/{detail}" if kind == "category" else question.target,)


_LOST = {
    "allocator": (MEMORY_ALLOCATOR,),
    "synchronisation": (HOST_SYNCHRONISATION, DRAINED),
    "recompute": (MEMORY_RECOMPUTE, *_REACHED[THINK], *_REACHED[LAUNCH]),
    "offload": (MEMORY_OFFLOAD,),
    "jitter": ("communication/",),
}
"""The same of what `--without` removes."""


def name_further_changes(replay: Answer | None, causes: Sequence[str], run: "MeasuredRun") -> Iterator[str]:
    """Say what a fix also changes, if it gains more than the bound of any of its causes."""
    bounds = [one.recoverable_ns for one in run.rank.causes if one.cause in causes]
    known = [won_ns for won_ns in bounds if won_ns is not None]
    if replay is None or not known or replay.won_ns <= max(known):
        return
    begins = tuple(begin for one in replay.questions for begin in _list_reached_beginnings(one))
    further = [one for one in run.rank.causes if one.cause.startswith(begins) and one.cause not in causes]
    named = [f"{name_cause(one.cause)} ({duration(one.typical_ns)})" for one in further]
    what = " and ".join(named[:_NAMED_FURTHER_COUNT]) or "less frequent work"
    yield f"also affects {what}"


_NAMED_FURTHER_COUNT = 2


def select_reached_causes(causes: Sequence[str], questions: Collection[Question]) -> tuple[str, ...]:
    """Return the causes whose time the questions change; all of them if that cannot be said.

    >>> questions = (Question("scale", "launch", 0.5),)
    >>> select_reached_causes(("host/framework", "host/launch-call"), questions)
    ('host/launch-call',)
    """
    if not questions or any(one.kind != "scale" or one.target not in _REACHED for one in questions):
        return tuple(causes)
    begins = tuple(begin for one in questions for begin in _REACHED[one.target])
    return tuple(cause for cause in causes if cause.startswith(begins)) or tuple(causes)


@dataclass(frozen=True, slots=True)
class Assumption:
    """What the upper bound on a fix assumes: as a sentence of its own, and after the words "the bound"."""

    sentence: str
    predicate: str


NOTHING_ASSUMED = Assumption("", "")


def state_assumption(
    won_ns: int, replay: Answer | None, counted: Sequence[str], run: "MeasuredRun"
) -> Assumption:
    """Say what the upper bound on a fix assumes, nothing if its replay removes its causes.

    Args:
        won_ns: the bound.
        replay: the replay of the fix, `None` without one.
        counted: the causes whose own bounds are that of a fix without a replay.
        run: the run.
    """
    if replay is None:
        assumed = f"assumes that {name_cause(_find_largest(counted, run))} will disappear"
        return Assumption(f"not simulated: the bound {assumed}", assumed)
    least_ns = MATERIAL_SHARE * run.step_ns
    if (rare_ns := won_ns - replay.won_ns) >= least_ns:
        rare = duration(rare_ns)
        parts = f", including {rare} from stalls in a few steps"
        if replay.won_ns < least_ns:
            parts = ", mostly from stalls in a few steps"
        whole = f"{duration(won_ns)} per step on average{parts}"
        return Assumption(f"saves up to {whole}", f"is {whole}")
    scaled = [one for one in replay.questions if one.kind == "scale" and one.share]
    if len(scaled) == 1 and scaled[0].target == THINK:
        assumed = describe_assumed_shares(scaled, _describe_host_time(run))
    elif scaled:
        assumed = describe_assumed_shares(scaled)
    else:
        return NOTHING_ASSUMED
    return Assumption(assumed, assumed)


def explain_gain(
    won_ns: int, replay: Answer | None, causes: Sequence[str], counted: Sequence[str], run: "MeasuredRun"
) -> Iterator[str]:
    """Say why the upper bound on a fix differs much from the time of its causes; the first three as above."""
    if replay is None:
        yield from _compare_times(won_ns, (_find_largest(counted, run),), run)
    elif state_assumption(won_ns, replay, counted, run) == NOTHING_ASSUMED:
        yield from _compare_times(replay.won_ns, causes, run)


def _find_largest(causes: Sequence[str], run: "MeasuredRun") -> str:
    return max(causes, key=lambda cause: run.worth_ns(cause) or 0)


def _describe_host_time(run: "MeasuredRun") -> str:
    """Say how much host time passes outside CUDA calls, after which call, and in which range."""
    times_ns = {
        entry.cause: entry.typical_ns for entry in run.rank.causes if entry.cause.startswith(_REACHED[THINK])
    }
    whole_ns = sum(times_ns.values())
    details: list[str] = []
    largest = max(times_ns, key=lambda cause: times_ns[cause], default="")
    if largest.startswith(DRAINED):
        part, call = duration(times_ns[largest]), largest.removeprefix(DRAINED)
        details = [f"{'all' if part == duration(whole_ns) else part} of it after {call}"]
    details += _name_range(run, whole_ns)
    listed = ", ".join(details)
    return f"{duration(whole_ns)} ({listed})" if listed else duration(whole_ns)


def _name_range(run: "MeasuredRun", part_ns: int) -> Iterator[str]:
    """Name the range that holds most of a part of the host time, wherever the rest of that time is."""
    largest = None if run.rank.host_details is None else run.rank.host_details.range
    if largest is None:
        return
    others_ns = run.rank.typical.walls.host - part_ns
    if largest.host_ns - others_ns >= MOSTLY_IN_RANGE_SHARE * part_ns:
        yield f"mostly in the range {largest.name}"


def _compare_times(won_ns: int, causes: Sequence[str], run: "MeasuredRun") -> Iterator[str]:
    """Say why a gain is much more, or much less, than the time of the causes that vanish."""
    own_ns, least_ns = sum(map(run.typical_ns, causes)), MATERIAL_SHARE * run.step_ns
    drained = [cause.removeprefix(DRAINED) for cause in causes if cause.startswith(DRAINED)]
    lost = f"{duration(own_ns)} lost to {'this cause' if len(causes) == 1 else 'these causes'}"
    if own_ns and won_ns - own_ns >= least_ns:
        yield f"saves {duration(won_ns)}, more than the {lost}, because {_explain_more(causes)}"
    elif own_ns - won_ns >= least_ns and (drained or won_ns < SMALL_PART_OF_CAUSE_SHARE * own_ns):
        rest = f"the host work after {drained[0]} remains" if drained else "other work then limits the step"
        yield f"saves only {duration(won_ns)} of the {lost}, because {rest}"


def _explain_more(causes: Sequence[str]) -> str:
    if any(cause.startswith(f"{Wall.HOST}/") for cause in causes):
        return "the host then runs ahead"
    return "later work then starts earlier too"


def assume_no_host_time(time_ns: int, step_ns: int, alone_ns: int) -> str:
    """Say what must vanish for the bound of a call that drains the queue, and what the call alone gains."""
    bound = write_speedup(step_ns / max(step_ns - alone_ns, 1))
    return (
        f"all {duration(time_ns)} of host time after the call disappears and the call stays; if the host time"
        f" stays and the call does not block, the bound is {bound}"
    )

"""What the upper bound on a fix assumes, in words; and one bound for a cause and the fix that removes it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.replay_words import LAUNCH, THINK, describe_share
from wallscope.model.advice import Fix
from wallscope.model.analysis import Analysis
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import Opportunity
from wallscope.model.enums import Wall
from wallscope.model.whatif import Question
from wallscope.thresholds.verdict import MATERIAL_SHARE, MOSTLY_IN_RANGE_SHARE, SMALL_PART_OF_CAUSE_SHARE
from wallscope.units import duration

_DRAINED = "host/queue-drained/"
_FRAMEWORK = "host/framework"
_REACHED = {
    THINK: (_FRAMEWORK, _DRAINED),
    LAUNCH: ("host/launch-call", "host/launch-latency"),
}
"""Beginnings of the causes whose time a target of a replay holds."""
_ALONE = "; without the call alone, the bound is "
_WITHOUT = {"allocator": "memory/allocator"}


def select_reached_causes(causes: Sequence[str], questions: Collection[Question]) -> tuple[str, ...]:
    """Return the causes whose time the questions change; all of them if that cannot be said.

    >>> asked = (Question("scale", "launch", 0.5),)
    >>> select_reached_causes(("host/framework", "host/launch-call"), asked)
    ('host/launch-call',)
    """
    if not questions or any(one.kind != "scale" or one.target not in _REACHED for one in questions):
        return tuple(causes)
    begins = tuple(begin for one in questions for begin in _REACHED[one.target])
    return tuple(cause for cause in causes if cause.startswith(begins)) or tuple(causes)


def describe_assumption(fix: Fix, run: MeasuredRun, counted: Sequence[str]) -> str:
    """Say what the upper bound on a fix assumes, and why it differs much from the time of its causes.

    Args:
        fix: the fix, with its bound and its replay.
        run: the run.
        counted: the causes whose own bounds are that of a fix without a replay.
    """
    if fix.speedup_ceiling is None or fix.recoverable_ns is None:
        return ""
    if fix.replay is None:
        largest = max(counted, key=lambda cause: run.worth_ns(cause) or 0)
        assumed = f"not replayed: assumes zero time for {_name_briefly(largest)}"
        return "; ".join((assumed, *_compare_times(fix.recoverable_ns, (largest,), run)))
    if (rare_ns := fix.recoverable_ns - fix.replay.won_ns) >= MATERIAL_SHARE * run.step_ns:
        return (
            f"gains up to {duration(fix.recoverable_ns)} per step on average, {duration(rare_ns)} of it"
            " from stalls on few steps"
        )
    scaled = [one for one in fix.replay.questions if one.kind == "scale" and one.share]
    if len(scaled) == 1 and scaled[0].target == THINK:
        return f"assumes {describe_share(scaled[0])} of today's {_describe_host_time(run)}"
    if scaled:
        return f"assumes {' and '.join(map(describe_share, scaled))} of today's duration"
    return "; ".join(_compare_times(fix.replay.won_ns, fix.causes, run))


def _name_briefly(cause: str) -> str:
    """Return the meaning of a cause without what is in parentheses."""
    return describe_cause(cause).partition(" (")[0]


def _describe_host_time(run: MeasuredRun) -> str:
    """Say how much host time passes outside CUDA calls, after which call, and in which range."""
    times_ns = {
        entry.cause: entry.typical_ns for entry in run.rank.causes if entry.cause.startswith(_REACHED[THINK])
    }
    whole_ns = sum(times_ns.values())
    said = duration(whole_ns)
    largest = max(times_ns, key=lambda cause: times_ns[cause], default="")
    if largest.startswith(_DRAINED):
        part, call = duration(times_ns[largest]), largest.removeprefix(_DRAINED)
        said += f", {'all' if part == said else part} of it after {call}"
    return ", ".join((said, *_name_range(run, whole_ns)))


def _name_range(run: MeasuredRun, part_ns: int) -> Iterator[str]:
    """Name the range that holds most of a part of the host time, wherever the rest of that time is."""
    place = None if run.rank.host_details is None else run.rank.host_details.range
    if place is None:
        return
    others_ns = run.rank.typical.walls.host - part_ns
    if place.host_ns - others_ns >= MOSTLY_IN_RANGE_SHARE * part_ns:
        yield f"mostly in the range {place.name}"


def _compare_times(won_ns: int, causes: Sequence[str], run: MeasuredRun) -> Iterator[str]:
    """Say why a gain is much more, or much less, than the time of the causes that vanish."""
    own_ns, least_ns = sum(_find_time(run, cause) for cause in causes), MATERIAL_SHARE * run.step_ns
    drained = [cause.removeprefix(_DRAINED) for cause in causes if cause.startswith(_DRAINED)]
    owner = "its cause" if len(causes) == 1 else "its causes"
    if own_ns and won_ns - own_ns >= least_ns:
        yield f"gains more than the {duration(own_ns)} of {owner}, because {_explain_more(causes)}"
    elif own_ns - won_ns >= least_ns and (drained or won_ns < SMALL_PART_OF_CAUSE_SHARE * own_ns):
        verb = "takes" if len(causes) == 1 else "take"
        rest = "other work then limits the step"
        rest = f"host time after {drained[0]} remains" if drained else rest
        yield f"gains {duration(won_ns)}, although {owner} {verb} {duration(own_ns)}: {rest}"


def _explain_more(causes: Sequence[str]) -> str:
    if any(cause.startswith(f"{Wall.HOST}/") for cause in causes):
        return "the host then runs ahead of the GPU"
    return "later work then starts earlier too"


def _find_time(run: MeasuredRun, cause: str) -> int:
    return next((entry.typical_ns for entry in run.rank.causes if entry.cause == cause), 0)


def align_bounds(analysis: Analysis) -> Analysis:
    """Return the analysis in which a cause has the bound of the fix whose replay removes it, and it alone.

    A call that drains the queue keeps its bound without the host time after it, if that is larger. Its
    assumption then states the replay of the call alone. A hidden transfer may gain more than a removed one.
    """
    removed: dict[str, int] = {}
    for fix in analysis.fixes or ():
        cause = _find_removed_cause(fix)
        if cause is not None and fix.replay is not None:
            removed[cause] = max(fix.replay.won_ns, removed.get(cause, 0))
    place = analysis.diagnosis.rank_index
    rank = analysis.ranks[place]
    step_ns = rank.typical.step_ns
    won_ns = {
        entry.cause: removed[entry.cause]
        for entry in analysis.opportunities
        if entry.cause in removed and (entry.assumes is None or entry.recoverable_ns < removed[entry.cause])
    }
    opportunities = tuple(_align(entry, removed, won_ns, step_ns) for entry in analysis.opportunities)
    causes = tuple(
        replace(entry, recoverable_ns=won_ns.get(entry.cause, entry.recoverable_ns)) for entry in rank.causes
    )
    ranks = (*analysis.ranks[:place], replace(rank, causes=causes), *analysis.ranks[place + 1 :])
    ordered = sorted(opportunities, key=lambda entry: (-entry.recoverable_ns, entry.cause))
    return replace(analysis, ranks=ranks, opportunities=tuple(ordered))


def _align(entry: Opportunity, removed: dict[str, int], won_ns: dict[str, int], step_ns: int) -> Opportunity:
    if entry.cause in won_ns:
        left_ns = max(step_ns - won_ns[entry.cause], 1)
        return replace(
            entry,
            recoverable_ns=won_ns[entry.cause],
            step_ceiling_ns=left_ns,
            speedup_ceiling=step_ns / left_ns,
            assumes=None,
        )
    if entry.cause in removed and entry.assumes is not None and _ALONE in entry.assumes:
        alone = f"{step_ns / max(step_ns - removed[entry.cause], 1):.2f}x"
        return replace(entry, assumes=f"{entry.assumes.partition(_ALONE)[0]}{_ALONE}{alone}")
    return entry


def _find_removed_cause(fix: Fix) -> str | None:
    """Return the cause that the replay of a fix removes, if that is all that it changes."""
    if fix.replay is None or len(fix.replay.questions) != 1:
        return None
    (question,) = fix.replay.questions
    cause = _WITHOUT.get(question.target, question.target)
    is_removed = question.kind in {"hide", "without"} or (question.kind == "scale" and not question.share)
    return cause if is_removed and cause in fix.causes else None

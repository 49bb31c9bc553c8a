"""Which fixes a run gets, and in which order: by what their causes could win, open before blocked ones."""

import re
from collections.abc import Callable, Sequence

from wallscope.fixes.predicates import LAUNCHING, Run, holds
from wallscope.fixes.rules import PRESSURE, Phase, Rule
from wallscope.model.analysis import CauseTime
from wallscope.model.catalogue import PEER_WAIT, is_part
from wallscope.model.fixes import Fix, Precondition, Setting, System
from wallscope.model.kinds import Wall
from wallscope.thresholds import NEXT_WALL_OF_FIX_SHARE
from wallscope.units import duration, percent

_LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
_PHASES = tuple(Phase)
_OF_FRAMEWORK: dict[object, tuple[System, ...]] = {
    "megatron": ("megatron-bridge", "megatron-lm"),
    "pytorch": ("pytorch",),
    None: ("program", "environment", "launcher", "nsys"),
}
_OF_EXPERTS = re.compile(r"(model\.|--)(moe|expert)[-_]")
_CONTRACT = (
    "A/B: change this alone, hold versions, GPUs, parallel sizes, precision, routing, sequence and batch"
    " fixed{besides}; screen 6 to 12 steps after warm-up, accept on 50 or more without the profiler."
)

Checker = Callable[[Sequence[str], tuple[Setting, ...]], tuple[Precondition, ...]]
"""Tells of preconditions by their ids whether they are met once some settings are made."""


def ranked(run: Run, rules: Sequence[Rule], checked: Checker) -> tuple[Fix, ...]:
    """The fixes that answer the material causes of a run, the most worth first."""
    found = []
    for rule in rules:
        causes = _answered(rule, run)
        if causes and holds(rule.when, run, causes):
            settings = _settings(rule, run)
            fix = _fix(rule, run, causes, settings, checked(rule.preconditions, settings))
            found.append((_rank(fix, rule, run), fix))
    return tuple(fix for _, fix in sorted(found, key=lambda entry: entry[0]))


def divided(run: Run, rules: Sequence[Rule], before: Sequence[Fix]) -> tuple[Fix, ...]:
    """Fixes found before causes were divided, by what their rules answer now, and those that answer waiting.

    Conditions other than the share were judged when a fix was found, with more at hand.
    """
    known = {fix.id: fix for fix in before}
    found = []
    for rule in rules:
        causes = _answered(rule, run)
        fix = known.get(rule.id)
        least = rule.when.at_least.get("share", 0.0)
        if fix is not None and (not fix.causes or (causes and max(map(run.weight, causes)) >= least)):
            told = _fix(rule, run, causes, fix.settings, fix.preconditions)
        elif (
            fix is None
            and any(map(is_part, causes))
            and _answers_waiting(rule)
            and holds(rule.when, run, causes)
        ):
            told = _fix(rule, run, causes, _settings(rule, run), ())
        else:
            continue
        found.append((_rank(told, rule, run), told))
    return tuple(fix for _, fix in sorted(found, key=lambda entry: entry[0]))


def _answers_waiting(rule: Rule) -> bool:
    return not rule.preconditions and all(cause.endswith(PEER_WAIT) for cause in rule.causes)


def _answered(rule: Rule, run: Run) -> tuple[str, ...]:
    """The material causes of the run that a rule answers, the weightiest first."""
    material = tuple(cause for cause in run.material if rule.answers(cause))
    pressed = PRESSURE in rule.causes and run.analysis.diagnosis.memory_pressure.level in {"near", "high"}
    return (*material, PRESSURE) if pressed else material


def _rank(fix: Fix, rule: Rule, run: Run) -> tuple[object, ...]:
    """What orders fixes: the kind, worth, status, whether blocked, the rule's place, the workflow.

    What has no ceiling counts by what its causes own. It comes behind what has one: compute last, unless
    compute is the wall; time without an owner before that, unless it hides the wall.
    """
    dominant = run.analysis.diagnosis.dominant_wall
    if fix.wall == Wall.COMPUTE:
        kind = 0 if dominant == "compute" else 3
    elif fix.recoverable_ns is None:
        kind = 0 if dominant == "unknown" and fix.causes else 2
    else:
        kind = 1
    owned_ns = max((_entry(run, cause).typical_ns for cause in fix.causes), default=0)
    worth_ns = owned_ns if fix.recoverable_ns is None else fix.recoverable_ns
    statuses = {entry.status for entry in run.analysis.opportunities if entry.cause in fix.causes}
    return (
        kind,
        -worth_ns,
        "trace-verified" not in statuses,
        fix.blocked,
        rule.order,
        _PHASES.index(rule.phase),
        rule.id,
    )


def _fix(
    rule: Rule,
    run: Run,
    causes: tuple[str, ...],
    settings: tuple[Setting, ...],
    preconditions: tuple[Precondition, ...],
) -> Fix:
    timed = tuple(cause for cause in causes if cause != PRESSURE)
    counted = _counted(run, timed)
    opportunities = [entry for entry in run.analysis.opportunities if entry.cause in counted]
    best = max(opportunities, key=lambda entry: entry.recoverable_ns, default=None)
    return Fix(
        id=rule.id,
        title=rule.title,
        wall=rule.wall,
        causes=timed,
        why=_why(rule, run, timed),
        settings=settings,
        preconditions=preconditions,
        blocked=any(entry.status == "unmet" for entry in preconditions),
        recoverable_ns=best.recoverable_ns if best else None,
        speedup_ceiling=best.speedup_ceiling if best else None,
        expected_gain=rule.gain.quoted() if rule.gain else None,
        caveats=rule.caveats,
        verify=f"{rule.active} {_CONTRACT.format(besides=f', {rule.compare}' if rule.compare else '')}",
        source=rule.source,
        next_wall=_next_wall(run, rule.wall, best.recoverable_ns) if best else None,
    )


def _counted(run: Run, causes: tuple[str, ...]) -> tuple[str, ...]:
    """The causes whose ceilings tell what a fix is worth.

    What refills a drained queue is not worth more than not draining it, while both are answered.
    """
    draining = tuple(cause for cause in causes if cause not in LAUNCHING)
    return draining if draining and run.measured("drained", ()) else causes


def _settings(rule: Rule, run: Run) -> tuple[Setting, ...]:
    """The settings, those of the run's own framework first.

    A program without a framework gets none of theirs, a model without experts none of experts, and what
    the environment has already is left out.
    """
    first = _OF_FRAMEWORK[run.framework]
    ordered = sorted(rule.all_settings(), key=lambda entry: entry.system not in first)
    return tuple(
        entry
        for entry in ordered
        if (run.framework is not None or entry.system in first)
        and not (entry.system == "environment" and run.environment.get(entry.key) == entry.value)
        and (run.measured("experts", ()) or not _OF_EXPERTS.match(entry.key))
    )


def _why(rule: Rule, run: Run, causes: tuple[str, ...]) -> str:
    """What was measured, and why the fix answers it."""
    owned = [_entry(run, cause) for cause in causes[:2]]
    said = [f"{entry.cause} owns {duration(entry.typical_ns)} ({percent(entry.share)})" for entry in owned]
    if not said:
        evidence = "; ".join(run.analysis.diagnosis.memory_pressure.evidence)
        said = [f"memory pressure is {run.analysis.diagnosis.memory_pressure.level}: {evidence}"]
    return f"{', '.join(said)}. {rule.because}"


def _entry(run: Run, cause: str) -> CauseTime:
    return next(entry for entry in run.rank.causes if entry.cause == cause)


def _next_wall(run: Run, wall: Wall, won_ns: int) -> str:
    """The largest loss of what is left once a fix won all that it could: a tenth of it, else compute."""
    left_ns = max(run.step_ns - won_ns, 1)
    losses = {loss: getattr(run.rank.typical.walls, loss) for loss in _LOSSES}
    if wall in losses:
        losses[wall] = max(losses[wall] - won_ns, 0)
    largest = max(losses, key=lambda loss: losses[loss])
    return str(largest if losses[largest] >= NEXT_WALL_OF_FIX_SHARE * left_ns else Wall.COMPUTE)

"""Which fixes an analysis gets, and in which order: by what their causes could win, blocked ones last."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import polars as pl

from wallscope.advice.measurements import LAUNCHING, MeasuredRun
from wallscope.advice.preconditions import judge_preconditions
from wallscope.advice.rules import PRESSURE, Rule, fix_rules
from wallscope.advice.set_already import (
    is_done,
    is_set,
    list_impossible_sizes,
    list_ineffective,
)
from wallscope.advice.settings import add_settings
from wallscope.advice.trace_facts import merge_trace_facts
from wallscope.model.advice import PHASES, Fix, Precondition, RunConfiguration, Setting, System, TraceFacts
from wallscope.model.analysis import Analysis, CauseTime
from wallscope.model.cause_catalogue import PEER_WAIT, is_part
from wallscope.model.enums import Wall
from wallscope.model.whatif import Question
from wallscope.thresholds import NEXT_WALL_OF_FIX_SHARE
from wallscope.units import duration, percent

_LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
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

Judge = Callable[[Sequence[str], tuple[Setting, ...]], tuple[Precondition, ...]]
"""Judges preconditions by their ids once some settings are made."""


def replay_questions(fix: Fix) -> tuple[Question, ...]:
    """Return what a replay of the steps is asked, together, for what a fix would win; may be nothing."""
    rule = next(rule for rule in fix_rules() if rule.id == fix.id)
    return rule.questions(fix.causes)


def add_fixes(analysis: Analysis, written: RunConfiguration, trace: TraceFacts, names: pl.Series) -> Analysis:
    """Return the analysis with its fixes, ranked, and with contradictions between file and trace as findings.

    What the configuration file states and what the trace shows count together; preconditions are judged for
    what they would be with the fix. `names` are those of kernels and ranges: they show the framework.
    """
    configuration, contradictions = merge_trace_facts(written, trace)

    def judge(ids: Sequence[str], settings: tuple[Setting, ...]) -> tuple[Precondition, ...]:
        return judge_preconditions(ids, add_settings(configuration, settings), trace)

    has_work = all(finding.code != "no-kernels" for finding in analysis.capture.findings)
    run = MeasuredRun(analysis, configuration, names, written)
    fixes = rank_fixes(run, fix_rules(), judge) if has_work else ()
    ineffective = list_ineffective(written, trace, run.rank)
    odd = (*contradictions, *list_impossible_sizes(written, trace), *ineffective)
    findings = (*odd, *analysis.capture.findings)
    return _replace_fixes(replace(analysis, capture=replace(analysis.capture, findings=findings)), fixes)


def update_fixes(analysis: Analysis, names: pl.Series) -> Analysis:
    """Return the analysis with fixes for its causes after waiting was split off from transfers.

    Fixes that answer moving or waiting stay where these matter, with settings and preconditions as they
    were; those that answer waiting alone are new. `names` are those of kernels and ranges.
    """
    run = MeasuredRun(analysis, RunConfiguration(), names)
    return _replace_fixes(analysis, rerank_fixes(run, fix_rules(), analysis.fixes or ()))


def _replace_fixes(analysis: Analysis, fixes: tuple[Fix, ...]) -> Analysis:
    """Return the analysis with other fixes, and their ids at the opportunities that they answer."""
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    return replace(analysis, fixes=fixes, opportunities=opportunities)


def rank_fixes(run: MeasuredRun, rules: tuple[Rule, ...], judge: Judge) -> tuple[Fix, ...]:
    """Return the fixes that answer the material causes of a run, the most worth first."""
    found = []
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        if causes and not is_done(rule.all_settings(), run.configuration) and run.meets(rule.when, causes):
            settings = _settings(rule, run)
            found.append((rule, _fix(rule, run, causes, settings, judge(rule.preconditions, settings))))
    return _sort(found, run)


def rerank_fixes(run: MeasuredRun, rules: tuple[Rule, ...], before: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Return the fixes of before causes were split, by what they answer now, and those that answer waiting.

    Conditions other than the share were evaluated when a fix was found, with more at hand.
    """
    known = {fix.id: fix for fix in before}
    found = []
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        fix = known.get(rule.id)
        if fix is not None:
            shares = tuple(clause for clause in rule.when if any(one.key == "share" for one in clause))
            if not fix.causes or (causes and run.meets(shares, causes)):
                found.append((rule, _fix(rule, run, causes, fix.settings, fix.preconditions)))
        elif any(map(is_part, causes)) and _answers_waiting(rule) and run.meets(rule.when, causes):
            found.append((rule, _fix(rule, run, causes, _settings(rule, run), ())))
    return _sort(found, run)


def _sort(found: list[tuple[Rule, Fix]], run: MeasuredRun) -> tuple[Fix, ...]:
    return tuple(fix for _, fix in sorted(found, key=lambda entry: _order(entry[1], entry[0], run)))


def _answers_waiting(rule: Rule) -> bool:
    return not rule.preconditions and all(cause.endswith(PEER_WAIT) for cause in rule.causes)


def _list_answered_causes(rule: Rule, run: MeasuredRun) -> tuple[str, ...]:
    """Return the material causes of the run that a rule answers, the weightiest first."""
    material = tuple(cause for cause in run.material if rule.answers(cause))
    pressed = PRESSURE in rule.causes and run.analysis.diagnosis.memory_pressure.level in {"near", "high"}
    return (*material, PRESSURE) if pressed else material


def _order(fix: Fix, rule: Rule, run: MeasuredRun) -> tuple[object, ...]:
    """Return the sort key of a fix: kind, worth, status, whether blocked, the order of rules, the workflow.

    What has no ceiling counts by the time of its causes. It comes behind what has one: compute last, unless
    compute is the wall; time without a cause before that, unless it hides the wall.
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
        PHASES.index(rule.phase),
        rule.id,
    )


def _fix(
    rule: Rule,
    run: MeasuredRun,
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
        expected_gain=rule.gain.quote() if rule.gain else None,
        caveats=rule.caveats,
        verify=f"{rule.active} {_CONTRACT.format(besides=f', {rule.compare}' if rule.compare else '')}",
        source=rule.source,
        next_wall=_next_wall(run, rule.wall, best.recoverable_ns) if best else None,
    )


def _counted(run: MeasuredRun, causes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the causes whose ceilings are what a fix is worth.

    What refills a drained queue is not worth more than not draining it, while both are answered.
    """
    draining = tuple(cause for cause in causes if cause not in LAUNCHING)
    return draining if draining and run.measure("drained", ()) else causes


def _settings(rule: Rule, run: MeasuredRun) -> tuple[Setting, ...]:
    """Return the settings of a rule, those of the run's own framework first.

    A program without a framework gets none of theirs, a model without experts none of experts, and what
    the environment or the configuration file has already is left out.
    """
    first = _OF_FRAMEWORK[run.framework]
    ordered = sorted(rule.all_settings(), key=lambda entry: entry.system not in first)
    return tuple(
        entry
        for entry in ordered
        if (run.framework is not None or entry.system in first)
        and not (entry.system == "environment" and run.environment.get(entry.key) == entry.value)
        and not is_set(entry, run.written)
        and (run.measure("experts", ()) or not _OF_EXPERTS.match(entry.key))
    )


def _why(rule: Rule, run: MeasuredRun, causes: tuple[str, ...]) -> str:
    """Return what was measured, and why the fix answers it, as text."""
    owned = [_entry(run, cause) for cause in causes[:2]]
    lines = [f"{entry.cause} owns {duration(entry.typical_ns)} ({percent(entry.share)})" for entry in owned]
    if not lines:
        evidence = "; ".join(run.analysis.diagnosis.memory_pressure.evidence)
        lines = [f"memory pressure is {run.analysis.diagnosis.memory_pressure.level}: {evidence}"]
    return f"{', '.join(lines)}. {rule.because}"


def _entry(run: MeasuredRun, cause: str) -> CauseTime:
    return next(entry for entry in run.rank.causes if entry.cause == cause)


def _next_wall(run: MeasuredRun, wall: Wall, won_ns: int) -> str:
    """Return the largest loss once a fix won all that it could, if a tenth of what is left, else compute."""
    left_ns = max(run.step_ns - won_ns, 1)
    losses = {loss: getattr(run.rank.typical.walls, loss) for loss in _LOSSES}
    if wall in losses:
        losses[wall] = max(losses[wall] - won_ns, 0)
    largest = max(losses, key=lambda loss: losses[loss])
    return str(largest if losses[largest] >= NEXT_WALL_OF_FIX_SHARE * left_ns else Wall.COMPUTE)

"""Select and sort the fixes of an analysis by upper bound on speedup, blocked ones last."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import polars as pl

from wallscope.advice.condition_words import BOTH, CAPTURE
from wallscope.advice.evidence import align_bounds, describe_assumption, list_evidence, select_reached_causes
from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.preconditions import (
    find_ineffective,
    is_done,
    is_set,
    judge_preconditions,
    list_impossible_sizes,
    lookup_in,
)
from wallscope.advice.rules import PRESSURE, Rule, estimate_share, fill_placeholders, fix_rules
from wallscope.advice.settings import add_settings, vocabulary
from wallscope.advice.trace_facts import GENERAL_SYSTEMS, choose_systems, is_read_by, merge_trace_facts
from wallscope.model.advice import PHASES, Fix, Precondition, RunConfiguration, Setting, System, TraceFacts
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding, Profiler
from wallscope.model.cause_catalogue import LAUNCHING, PEER_WAIT, describe_cause, is_part
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.whatif import Question
from wallscope.thresholds.verdict import MATERIAL_SHARE, NEXT_WALL_OF_FIX_SHARE, REPLAYED_FIXES_COUNT
from wallscope.units import capitalize, duration, percent

_LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
_OF_MEGATRON_FAMILY = ("megatron-bridge", "megatron-lm")
_OF_EXPERTS = re.compile(r"(model\.|--)(moe|expert)[-_]")
_OF_MEGATRON = re.compile(r" \(Megatron Bridge: [^()]*\)")
_CONTRACT = (
    "A/B test: change nothing else between the two runs.{besides} First compare 6 to 12 steps of each run"
    " after warm-up. Then compare 50 steps or more of each run without the profiler."
)

_REFUTED = "The change is in effect, and {result}."

Judge = Callable[[Sequence[str], tuple[Setting, ...]], tuple[Precondition, ...]]
"""Judges preconditions by id, assuming that some settings are made."""


def add_fixes(analysis: Analysis, written: RunConfiguration, trace: TraceFacts, names: pl.Series) -> Analysis:
    """Return the analysis with its sorted fixes, and with findings where file and trace contradict.

    The configuration file and the trace together describe the run, and preconditions are judged for the run
    as it is. `names` are those of kernels and ranges.
    """
    configuration, contradictions = merge_trace_facts(written, trace)

    source = BOTH if written.settings else CAPTURE
    before = lookup_in(configuration, trace)

    def judge(ids: Sequence[str], settings: tuple[Setting, ...]) -> tuple[Precondition, ...]:
        after = lookup_in(add_settings(configuration, settings), trace)
        return judge_preconditions(ids, before, after, source)

    has_work = all(finding.code != FindingCode.NO_KERNELS for finding in analysis.capture.findings)
    run = MeasuredRun(analysis, configuration, names, written)
    ineffective = find_ineffective(written, configuration, trace, run.rank)
    fixes = rank_fixes(run, fix_rules(), judge, ineffective) if has_work else ()
    odd = (*contradictions, *list_impossible_sizes(written, trace), *ineffective.values())
    findings = (*odd, *(_fit_cure(one, run.framework) for one in analysis.capture.findings))
    found = replace(analysis, capture=replace(analysis.capture, findings=findings), program=run.program)
    return _replace_fixes(found, fixes)


def _fit_cure(finding: Finding, framework: str | None) -> Finding:
    """Return a finding without Megatron settings in its cure if the program is not Megatron."""
    if framework in {"megatron", None} or finding.cure is None:
        return finding
    return replace(finding, cure=_OF_MEGATRON.sub("", finding.cure))


def list_questions(analysis: Analysis) -> dict[str, tuple[Question, ...]]:
    """Return the replay questions of each fix by id, for the fixes with the largest gain."""
    run = MeasuredRun(analysis, RunConfiguration(), pl.Series([], dtype=pl.String))
    rules = {rule.id: rule for rule in fix_rules()}
    questions = {
        fix.id: rules[fix.id].questions(fix.causes, partial(estimate_share, run))
        for fix in analysis.fixes or ()
    }
    return dict([(fix, questions[fix]) for fix in questions if questions[fix]][:REPLAYED_FIXES_COUNT])


def settle_fixes(analysis: Analysis, names: pl.Series) -> Analysis:
    """Return the analysis with fixes sorted by the gain of their replays; those without gain are dismissed.

    A fix has one number: the gain of its own replay, not the upper bound of its cause.
    """
    run = MeasuredRun(analysis, RunConfiguration(), names)
    rules = {rule.id: rule for rule in fix_rules()}
    settled = [(rules[fix.id], _settle(fix, rules[fix.id], run)) for fix in analysis.fixes or ()]
    dismissed = {fix.id: fix for _, fix in settled if _is_worthless(fix)}
    kept = [(rule, fix) for rule, fix in settled if fix.id not in dismissed]
    found = replace(analysis, dismissed=(*analysis.dismissed, *dismissed.values()))
    return align_bounds(_link_opportunities(replace(found, fixes=_sort(kept, run))))


def _is_worthless(fix: Fix) -> bool:
    """Return whether the replay of a fix gains less than is material, and no rare stall takes more."""
    answer = fix.replay
    if answer is None:
        return False
    return (fix.recoverable_ns or 0) < MATERIAL_SHARE * (answer.step_ns + answer.won_ns)


def _settle(fix: Fix, rule: Rule, run: MeasuredRun) -> Fix:
    """Return a fix with the gain of its replay, and the time on few steps of the causes that it removes.

    The typical step may have a part of that time too, so that the sum counts it twice: at least the replayed
    step is left.
    """
    if fix.replay is None:
        return replace(fix, assumes=describe_assumption(fix, run, _counted(run, rule, fix.causes)))
    questions = rule.questions(fix.causes)
    removed = {
        one.target for one in questions if one.kind == "hide" or (one.kind == "scale" and not one.share)
    }
    gone = [cause for cause in fix.causes if cause in removed]
    rare_ns = round(sum(map(run.rare_share, gone)) * _find_mean_ns(run))
    most_ns = max(_find_mean_ns(run), run.step_ns) - fix.replay.step_ns
    won_ns = min(fix.replay.won_ns + rare_ns, most_ns) if rare_ns else fix.replay.won_ns
    settled = replace(
        fix,
        recoverable_ns=won_ns,
        speedup_ceiling=_bound_speedup(won_ns, gone, run),
        next_wall=str(fix.replay.next_wall),
    )
    return replace(settled, assumes=describe_assumption(settled, run, fix.causes))


def _bound_speedup(won_ns: int, causes: Sequence[str], run: MeasuredRun) -> float:
    """Return the upper bound on speedup: of the mean step if a cause has rare stalls, else the typical."""
    is_rare = any(run.rare_share(cause) for cause in causes)
    whole_ns = max(_find_mean_ns(run), run.step_ns) if is_rare else run.step_ns
    return whole_ns / max(whole_ns - won_ns, 1)


def _find_mean_ns(run: MeasuredRun) -> int:
    return run.rank.mean_step_ns or run.step_ns


def update_fixes(analysis: Analysis, names: pl.Series) -> Analysis:
    """Return the analysis with fixes for its causes after waiting was separated from transfers.

    Fixes for transfer or waiting stay where these matter, with their settings and preconditions. Fixes for
    waiting alone are new. `names` are those of kernels and ranges.
    """
    run = MeasuredRun(analysis, RunConfiguration(), names)
    before = (*(analysis.fixes or ()), *analysis.capture_advice)
    gone = {fix.id for fix in analysis.dismissed}
    found = tuple(fix for fix in rerank_fixes(run, fix_rules(), before) if fix.id not in gone)
    return _replace_fixes(analysis, found)


def _replace_fixes(analysis: Analysis, found: tuple[Fix, ...]) -> Analysis:
    """Return the analysis with other fixes; those about the capture are separate."""
    about_capture = {rule.id for rule in fix_rules() if rule.about == "capture"}
    return _link_opportunities(
        replace(
            analysis,
            fixes=tuple(fix for fix in found if fix.id not in about_capture),
            capture_advice=tuple(fix for fix in found if fix.id in about_capture),
        )
    )


def _link_opportunities(analysis: Analysis) -> Analysis:
    """Return the analysis with the ids of its fixes at the opportunities that they address."""
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in analysis.fixes or () if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    return replace(analysis, opportunities=opportunities)


def rank_fixes(
    run: MeasuredRun,
    rules: tuple[Rule, ...],
    judge: Judge,
    ineffective: Mapping[str, Finding] = MappingProxyType({}),
) -> tuple[Fix, ...]:
    """Return the fixes for the material causes of a run, the largest gain first.

    A fix that is on stays if it is `ineffective` and a precondition shows why; that has findings by setting.
    """
    left = {name: one for name, one in run.configuration.settings.items() if name not in ineffective}
    unproven = MeasuredRun(run.analysis, RunConfiguration(left), run.names, run.written)
    found = []
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        if not causes:
            continue
        is_asked = _asks(rule, run, causes)
        if is_asked or (ineffective and _asks(rule, unproven, causes)):
            settings = _settings(rule, run)
            fix = _fix(rule, run, causes, settings, judge(rule.preconditions, settings))
            if is_asked and (settings or not rule.settings):
                found.append((rule, fix))
            elif not is_asked and fix.blocked:
                found.append((rule, _add_reason(fix, rule, ineffective)))
    return _sort(found, run)


def _asks(rule: Rule, run: MeasuredRun, causes: tuple[str, ...]) -> bool:
    """Return whether a rule has something to change in a run."""
    return not is_done(rule.all_settings(), run.configuration) and run.meets(rule.when, causes)


def _add_reason(fix: Fix, rule: Rule, ineffective: Mapping[str, Finding]) -> Fix:
    """Return a fix for a feature that is on, with why it is still recommended."""
    names = {vocabulary().name(entry.key) for entry in rule.all_settings()}
    reasons = [finding for name, finding in ineffective.items() if name in names]
    reason = " ".join(f"{one.message}: {one.cure}." for one in reasons)
    return replace(fix, why=f"{reason} {fix.why}")


def rerank_fixes(run: MeasuredRun, rules: tuple[Rule, ...], before: tuple[Fix, ...]) -> tuple[Fix, ...]:
    """Return the earlier fixes with their causes after the split, and those for waiting.

    Conditions other than the share were evaluated when a fix was found, with more information.
    """
    known = {fix.id: fix for fix in before}
    found = []
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        fix = known.get(rule.id)
        if fix is not None:
            shares = tuple(clause for clause in rule.when if any(one.key == "share" for one in clause))
            if not fix.causes or (causes and run.meets(shares, causes)):
                again = _fix(rule, run, causes, fix.settings, fix.preconditions)
                found.append((rule, _settle(replace(again, replay=fix.replay), rule, run)))
        elif any(map(is_part, causes)) and _answers_waiting(rule) and run.meets(rule.when, causes):
            settings = _settings(rule, run)
            if settings or not rule.settings:
                found.append((rule, _settle(_fix(rule, run, causes, settings, ()), rule, run)))
    return _sort(found, run)


def _sort(found: list[tuple[Rule, Fix]], run: MeasuredRun) -> tuple[Fix, ...]:
    return tuple(fix for _, fix in sorted(found, key=lambda entry: _order(entry[1], entry[0], run)))


def _answers_waiting(rule: Rule) -> bool:
    return not rule.preconditions and all(cause.endswith(PEER_WAIT) for cause in rule.causes)


def _list_answered_causes(rule: Rule, run: MeasuredRun) -> tuple[str, ...]:
    """Return the material causes of the run that a rule addresses, the largest first."""
    material = tuple(cause for cause in run.material if rule.answers(cause))
    pressed = PRESSURE in rule.causes and run.analysis.diagnosis.memory_pressure.level in {"near", "high"}
    return (*material, PRESSURE) if pressed else material


def _order(fix: Fix, rule: Rule, run: MeasuredRun) -> tuple[object, ...]:
    """Return the sort key of a fix: kind, gain, status, whether blocked, order of rules, workflow phase.

    Fixes without a gain of their own follow those with one, by the time of their causes. Compute comes last
    if a loss is the wall. Unattributed time comes before it, unless it hides the wall. Generic advice follows
    all advice with evidence in the capture.
    """
    dominant = run.analysis.diagnosis.dominant_wall
    has_replays = run.analysis.replay is not None and run.analysis.replay.refused is None
    if fix.wall == Wall.COMPUTE and dominant == "compute":
        kind = 1 if has_replays else 0
    elif fix.wall == Wall.COMPUTE:
        kind = 1 if fix.replay is not None and dominant not in _LOSSES else 3
    elif fix.recoverable_ns is not None:
        kind = 1
    else:
        kind = 0 if dominant == "unknown" and fix.causes else 2
    owned_ns = max(map(run.typical_ns, fix.causes), default=0)
    worth = owned_ns / max(run.step_ns, 1) if fix.speedup_ceiling is None else 1 - 1 / fix.speedup_ceiling
    statuses = {entry.status for entry in run.analysis.opportunities if entry.cause in fix.causes}
    return (
        rule.generic,
        kind,
        has_replays and fix.replay is None,
        has_replays and fix.blocked,
        -worth,
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
    counted = _counted(run, rule, timed)
    worths = [worth for cause in counted if (worth := run.worth_ns(cause)) is not None]
    won_ns = None if rule.generic else max(worths, default=None)
    besides = f" {rule.compare}." if rule.compare else ""
    test = besides if rule.about == "capture" else f" {_CONTRACT.format(besides=besides)}"
    return Fix(
        id=rule.id,
        title=rule.title,
        wall=rule.wall,
        causes=timed,
        why=_why(rule, run, timed),
        settings=settings,
        preconditions=preconditions,
        blocked=any(entry.status == "unmet" for entry in preconditions),
        recoverable_ns=won_ns,  # A gain of the cause is not a gain of generic advice.
        speedup_ceiling=None if won_ns is None else _bound_speedup(won_ns, counted, run),
        expected_gain=rule.gain.quote() if rule.gain else None,
        caveats=rule.all_caveats if run.framework == "megatron" else rule.caveats,
        verify=f"{rule.active}{test}",
        source=rule.source,
        next_wall=None if won_ns is None else _next_wall(run, rule.wall, won_ns),
        evidence=list_evidence(run, timed, rule.measured),
        refuted_by=rule.refuted or _REFUTED.format(result=_describe_no_effect(timed)),
    )


def _describe_no_effect(causes: Sequence[str]) -> str:
    if not causes:
        return "the memory pressure stays high"
    return f"the time for this cause does not change: {describe_cause(causes[0])}"


def _counted(run: MeasuredRun, rule: Rule, causes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the causes whose bounds are the gain of a fix: those whose time the fix changes.

    The gain for the host time after a draining call is at most that of removing the call, while both remain.
    """
    reached = select_reached_causes(causes, rule.questions(causes))
    draining = tuple(cause for cause in reached if cause not in LAUNCHING)
    return draining if draining and run.measure("drained", ()) else reached


def _settings(rule: Rule, run: MeasuredRun) -> tuple[Setting, ...]:
    """Return the settings of a rule for the program, its framework's first; empty if there are none.

    A rule with settings only for other frameworks does not apply. Models without experts get no expert
    settings, and traces of PyTorch's profiler get no nsys settings. Settings that the environment or the
    configuration file already has are excluded.
    """
    own = _choose_own(rule, run)
    given = rule.all_settings()
    if rule.about == "program" and not own and any(entry.system not in GENERAL_SYSTEMS for entry in given):
        return ()
    ordered = sorted(given, key=lambda entry: entry.system not in own)
    return tuple(
        fill_placeholders(entry, run.configuration)
        for entry in ordered
        if entry.system in (*own, *GENERAL_SYSTEMS)
        and not (entry.system == "environment" and not is_read_by(entry.key, run.framework))
        and not (run.profiler == Profiler.TORCH and (entry.system == "nsys" or entry.key.startswith("nsys ")))
        and not (entry.system == "environment" and run.environment.get(entry.key) == entry.value)
        and not is_set(entry, run.written)
        and (run.measure("experts", ()) or not _OF_EXPERTS.match(entry.key))
    )


def _choose_own(rule: Rule, run: MeasuredRun) -> tuple[System, ...]:
    """Return the systems of the program, and of Megatron's only that of the file if the rule has it."""
    own = choose_systems(run.framework, rule.settings)
    stated = run.written.get("framework")
    if stated not in own:
        return own
    return tuple(system for system in own if system == stated or system not in _OF_MEGATRON_FAMILY)


def _why(rule: Rule, run: MeasuredRun, causes: tuple[str, ...]) -> str:
    """Return the measured evidence and the reason for the fix, as text."""
    lines = [_describe_share(run, cause) for cause in causes[:2]]
    if not lines:
        evidence = "; ".join(run.analysis.diagnosis.memory_pressure.evidence)
        lines = [f"memory pressure is {run.analysis.diagnosis.memory_pressure.level}: {evidence}"]
    return f"{capitalize('; '.join(lines))}. {rule.because}"


def _describe_share(run: MeasuredRun, cause: str) -> str:
    """Return the time of a cause: in the typical step, or of all time if only few steps have it."""
    rare = run.rare_share(cause)
    time_ns = run.typical_ns(cause)
    if rare * run.step_ns > time_ns:
        return f"{describe_cause(cause)}: {percent(rare)} of all time, on few steps"
    return f"{describe_cause(cause)}: {duration(time_ns)} ({percent(time_ns / run.step_ns)})"


def _next_wall(run: MeasuredRun, wall: Wall, won_ns: int) -> str:
    """Return the largest remaining loss after a fix, if at least a tenth of the rest, else compute."""
    left_ns = max(run.step_ns - won_ns, 1)
    losses = {loss: getattr(run.rank.typical.walls, loss) for loss in _LOSSES}
    if wall in losses:
        losses[wall] = max(losses[wall] - won_ns, 0)
    largest = max(losses, key=lambda loss: losses[loss])
    return str(largest if losses[largest] >= NEXT_WALL_OF_FIX_SHARE * left_ns else Wall.COMPUTE)

"""Recommend: match the rules with a run, then build each fix once, with the bound of its own replay.

Rules are matched before the replay, which simulates those with the largest possible gain, and fixes are built
after it. They are sorted by upper bound on speedup, blocked ones last.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType

import polars as pl

from wallscope.advice.amd import adapt_to_amd
from wallscope.advice.condition_words import BOTH, CAPTURE
from wallscope.advice.evidence import (
    NOTHING_ASSUMED,
    Assumption,
    explain_gain,
    list_evidence,
    name_further_changes,
    select_reached_causes,
    state_assumption,
)
from wallscope.advice.measurements import MeasuredRun, is_near_peak
from wallscope.advice.next_actions import name_next_actions
from wallscope.advice.preconditions import (
    find_ineffective,
    is_done,
    is_set,
    judge_preconditions,
    list_impossible_sizes,
    lookup_in,
)
from wallscope.advice.rules import (
    PRESSURE,
    Rule,
    estimate_share,
    fill_placeholders,
    fix_rules,
    list_light_limits,
)
from wallscope.advice.settings import add_settings, leave_out_training, vocabulary
from wallscope.advice.trace_facts import GENERAL_SYSTEMS, choose_systems, is_read_by, merge_trace_facts
from wallscope.advice.unit_fixes import build_unit_fix
from wallscope.model.advice import PHASES, Fix, Precondition, RunConfiguration, Setting, System, TraceFacts
from wallscope.model.analysis import Analysis, Rank, UnitKind
from wallscope.model.calibration import FixCalibration
from wallscope.model.capture import Finding, Profiler
from wallscope.model.cause_catalogue import DRAINED, LAUNCHING, PEER_WAIT, WAIT, describe_cause, is_part
from wallscope.model.diagnosis import Opportunity
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.whatif import Answer, Question, Replayed
from wallscope.records import dataclass
from wallscope.thresholds.verdict import MATERIAL_SHARE, NEXT_WALL_OF_FIX_SHARE, REPLAYED_FIXES_COUNT
from wallscope.units import capitalize, duration, percent

_LOSSES = (Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST)
_OF_MEGATRON_FAMILY = ("megatron-bridge", "megatron-lm")
_OF_EXPERTS = re.compile(r"(model\.|--)(moe|expert)[-_]")
_CONTRACT = (
    "A/B test: change nothing else between the two runs.{besides} First compare 6 to 12 steps of each run"
    " after warm-up. Then compare 50 steps or more of each run without the profiler."
)
_REFUTED = "The change is in effect, and {result}."
NOT_REPLAYED = Replayed(None, {})

Judge = Callable[[Sequence[str], tuple[Setting, ...]], tuple[Precondition, ...]]
"""Judges preconditions by id, assuming that some settings are made."""


@dataclass(frozen=True, slots=True)
class Match:
    """A rule that a run has a use for: all of its fix but the gain.

    `causes` are those of the run that it addresses, with time. `reason` says why it is recommended although
    the feature is on, empty if it is off.
    """

    rule: Rule
    causes: tuple[str, ...]
    settings: tuple[Setting, ...]
    preconditions: tuple[Precondition, ...]
    reason: str = ""

    @property
    def blocked(self) -> bool:
        """Whether a precondition is unmet."""
        return any(entry.status == "unmet" for entry in self.preconditions)

    @property
    def is_about_capture(self) -> bool:
        """Whether it changes the capture, and so is not a recommendation for the program."""
        return self.rule.about == "capture"


@dataclass(frozen=True)
class Matched:
    """The rules that a run has a use for, the largest possible gain first, and findings about it."""

    run: MeasuredRun
    matches: tuple[Match, ...]
    findings: tuple[Finding, ...]

    @cached_property
    def questions(self) -> dict[str, tuple[Question, ...]]:
        """The replay questions of each fix by id, for the fixes with the largest possible gain."""
        estimate = partial(estimate_share, self.run)
        asked = {
            one.rule.id: one.rule.questions(one.causes, estimate)
            for one in self.matches
            if not one.is_about_capture
        }
        return dict([(fix, asked[fix]) for fix in asked if asked[fix]][:REPLAYED_FIXES_COUNT])


def match_rules(
    analysis: Analysis, written: RunConfiguration, trace: TraceFacts, names: pl.Series
) -> Matched:
    """Return the rules that a run has a use for, and findings where file and trace contradict.

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
    matches = find_matches(run, fix_rules(), judge, ineffective) if has_work else ()
    odd = (*contradictions, *list_impossible_sizes(written, trace), *ineffective.values())
    return Matched(run, matches, odd)


def recommend(matched: Matched, replayed: Replayed = NOT_REPLAYED, ranks: tuple[Rank, ...] = ()) -> Analysis:
    """Return the analysis with its fixes, by the gain of their replays; those without gain are dismissed.

    A fix has one number: the gain of its own replay, not the upper bound of its cause.

    Args:
        matched: the rules that the run has a use for.
        replayed: the answers to their questions.
        ranks: the ranks of the analysis as its readers get them; as they are if none is given.
    """
    run, analysis = matched.run, matched.run.analysis
    fixes = rank_fixes(run, matched.matches, replayed)
    worthless = {fix.id: fix for fix in fixes if _is_worthless(fix)}
    useful = _place_unit_fix(run, [fix for fix in fixes if fix.id not in worthless])
    of_program, of_capture = name_next_actions(run, *_divide_by_subject(useful))
    return replace(
        analysis,
        ranks=ranks or analysis.ranks,
        capture=replace(analysis.capture, findings=(*matched.findings, *analysis.capture.findings)),
        opportunities=tuple(_link_fixes(entry, of_program) for entry in analysis.opportunities),
        fixes=of_program,
        replay=replayed.replay,
        program=run.program,
        capture_advice=of_capture,
        dismissed=tuple(worthless[one.rule.id] for one in matched.matches if one.rule.id in worthless),
    )


def add_experience(analysis: Analysis, experience: Sequence[FixCalibration]) -> Analysis:
    """Return the analysis with what its fixes realized of their bounds in the records of a project."""
    if not experience or analysis.fixes is None:
        return analysis
    known = {one.id: one for one in experience}
    return replace(
        analysis, fixes=tuple(replace(fix, experience=known.get(fix.id)) for fix in analysis.fixes)
    )


def recommend_again(analysis: Analysis, names: pl.Series) -> Analysis:
    """Return the analysis with fixes for its causes after waiting was separated from transfers.

    Fixes for transfer or waiting stay where these matter, with their settings and preconditions. Fixes for
    waiting alone are new. `names` are those of kernels and ranges.
    """
    run = MeasuredRun(analysis, RunConfiguration(), names)
    before = {fix.id: fix for fix in (*(analysis.fixes or ()), *analysis.capture_advice)}
    gone = {fix.id for fix in analysis.dismissed}
    matches = tuple(one for one in _match_again(run, fix_rules(), before) if one.rule.id not in gone)
    answers = {fix.id: fix.replay for fix in before.values() if fix.replay is not None}
    fixes = _place_unit_fix(run, rank_fixes(run, matches, Replayed(analysis.replay, answers)))
    of_program, of_capture = name_next_actions(run, *_divide_by_subject(fixes))
    experience = [fix.experience for fix in before.values() if fix.experience is not None]
    return add_experience(
        replace(
            analysis,
            opportunities=tuple(_link_fixes(entry, of_program) for entry in analysis.opportunities),
            fixes=of_program,
            capture_advice=of_capture,
        ),
        experience,
    )


def _place_unit_fix(run: MeasuredRun, fixes: Sequence[Fix]) -> list[Fix]:
    """Return the fixes with the one for what holds a job up: first, if it is one rank, node, stage or link.

    Fixes that gain more come before stalls of all hosts in turn, and before what repetitions show: these may
    be no steps.
    """
    own = build_unit_fix(run, partial(_settings, run=run))
    if own is None:
        return list(fixes)
    place, job = 0, run.analysis.job
    if job is not None and (job.leading[0].unit is UnitKind.JOB or run.analysis.anchor.unit != "step"):
        larger = ((fix.speedup_ceiling or 0) > (own.speedup_ceiling or 0) for fix in fixes)
        place = next((nth for nth, is_larger in enumerate(larger) if not is_larger), len(fixes))
    return [*fixes[:place], own, *fixes[place:]]


def _divide_by_subject(fixes: Sequence[Fix]) -> tuple[tuple[Fix, ...], tuple[Fix, ...]]:
    """Return the fixes of the program, and those of the capture."""
    about_capture = {rule.id for rule in fix_rules() if rule.about == "capture"}
    return (
        tuple(fix for fix in fixes if fix.id not in about_capture),
        tuple(fix for fix in fixes if fix.id in about_capture),
    )


def _is_worthless(fix: Fix) -> bool:
    """Return whether the replay of a fix gains less than is material, and no rare stall takes more."""
    answer = fix.replay
    if answer is None:
        return False
    return (fix.recoverable_ns or 0) < MATERIAL_SHARE * (answer.step_ns + answer.won_ns)


def find_matches(
    run: MeasuredRun,
    rules: Sequence[Rule],
    judge: Judge,
    ineffective: Mapping[str, Finding] = MappingProxyType({}),
) -> tuple[Match, ...]:
    """Return the rules for the material causes of a run, the largest possible gain first.

    A fix that is on stays if it is `ineffective` and a precondition shows why; that has findings by setting.
    """
    left = {name: one for name, one in run.configuration.settings.items() if name not in ineffective}
    unproven = MeasuredRun(run.analysis, RunConfiguration(left), run.names, run.written)
    found = []
    near_peak = is_near_peak(run.rank.speed_of_light)
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        if not causes or (near_peak and _needs_distance(rule)):
            continue
        is_asked = _asks(rule, run, causes)
        if is_asked or (ineffective and _asks(rule, unproven, causes)):
            settings = _settings(rule, run)
            reason = "" if is_asked else _explain_why_again(rule, ineffective)
            match = Match(rule, _list_timed(causes), settings, judge(rule.preconditions, settings), reason)
            if (settings or not rule.settings) if is_asked else match.blocked:
                found.append(match)
    return tuple(sorted(found, key=lambda one: _order(one, _bound_by_causes(one, run), run, NOT_REPLAYED)))


def _needs_distance(rule: Rule) -> bool:
    """Return whether a rule gains little near the peak: all about kernels but those for another precision."""
    of_precision = {fix for limit in list_light_limits() if "precision" in limit for fix in limit["fixes"]}
    return rule.wall == Wall.COMPUTE and rule.about == "program" and rule.id not in of_precision


def _asks(rule: Rule, run: MeasuredRun, causes: tuple[str, ...]) -> bool:
    """Return whether a rule has something to change in a run."""
    return not is_done(rule.all_settings(), run.configuration) and run.meets(rule.when, causes)


def _explain_why_again(rule: Rule, ineffective: Mapping[str, Finding]) -> str:
    """Return why a fix for a feature that is on is still recommended."""
    names = {vocabulary().name(entry.key) for entry in rule.all_settings()}
    reasons = [finding for name, finding in ineffective.items() if name in names]
    return " ".join(f"{one.message}: {one.cure}." for one in reasons)


def _match_again(run: MeasuredRun, rules: Sequence[Rule], before: Mapping[str, Fix]) -> Iterator[Match]:
    """Yield the rules of earlier fixes with their causes after the split, and those for waiting.

    Conditions other than the share were evaluated when a fix was found, with more information.
    """
    for rule in rules:
        causes = _list_answered_causes(rule, run)
        fix = before.get(rule.id)
        if fix is not None:
            shares = tuple(clause for clause in rule.when if any(one.key == "share" for one in clause))
            if not fix.causes or (causes and run.meets(shares, causes)):
                yield Match(rule, _list_timed(causes), fix.settings, fix.preconditions)
        elif any(map(is_part, causes)) and _answers_waiting(rule) and run.meets(rule.when, causes):
            settings = _settings(rule, run)
            if settings or not rule.settings:
                yield Match(rule, _list_timed(causes), settings, ())


def _answers_waiting(rule: Rule) -> bool:
    return not rule.preconditions and all(cause.endswith(PEER_WAIT) for cause in rule.causes)


def _list_answered_causes(rule: Rule, run: MeasuredRun) -> tuple[str, ...]:
    """Return the material causes of the run that a rule addresses, the largest first."""
    material = tuple(cause for cause in run.material if rule.answers(cause))
    pressed = PRESSURE in rule.causes and run.analysis.diagnosis.memory_pressure.level in {"near", "high"}
    return (*material, PRESSURE) if pressed else material


def _list_timed(causes: Sequence[str]) -> tuple[str, ...]:
    return tuple(cause for cause in causes if cause != PRESSURE)


@dataclass(frozen=True, slots=True)
class _Bound:
    """The gain of a fix, the upper bound on its speedup, the wall that comes next, and the replay behind."""

    won_ns: int | None = None
    speedup: float | None = None
    next_wall: str | None = None
    replay: Answer | None = None


def _bound(match: Match, run: MeasuredRun, answer: Answer | None) -> _Bound:
    return _bound_by_causes(match, run) if answer is None else _bound_by_replay(match, run, answer)


def _bound_by_causes(match: Match, run: MeasuredRun) -> _Bound:
    """Return the largest bound of the causes; a gain of the cause is not a gain of generic advice."""
    counted = _counted(run, match)
    worths = [worth for cause in counted if (worth := run.worth_ns(cause)) is not None]
    if match.rule.generic or not worths:
        return _Bound()
    won_ns = max(worths)
    return _Bound(won_ns, _bound_speedup(won_ns, counted, run), _next_wall(run, match.rule.wall, won_ns))


def _bound_by_replay(match: Match, run: MeasuredRun, answer: Answer) -> _Bound:
    """Return the gain of a replay, and the time on few steps of the causes that it removes.

    The typical step may have a part of that time too, so that the sum counts it twice: at least the replayed
    step is left.
    """
    questions = match.rule.questions(match.causes)
    removed = {one.target for one in questions if one.kind == "hide" or _is_removed(one)}
    gone = [cause for cause in match.causes if cause.replace(DRAINED, WAIT) in removed]
    rare_ns = round(sum(map(run.rare_share, gone)) * _find_mean_ns(run))
    most_ns = max(_find_mean_ns(run), run.step_ns) - answer.step_ns
    won_ns = min(answer.won_ns + rare_ns, most_ns) if rare_ns else answer.won_ns
    return _Bound(won_ns, _bound_speedup(won_ns, gone, run), str(answer.next_wall), answer)


def _is_removed(question: Question) -> bool:
    return question.kind == "scale" and not question.share


def _bound_speedup(won_ns: int, causes: Sequence[str], run: MeasuredRun) -> float:
    """Return the upper bound on speedup: of the mean step if a cause has rare stalls, else the typical."""
    is_rare = any(run.rare_share(cause) for cause in causes)
    whole_ns = max(_find_mean_ns(run), run.step_ns) if is_rare else run.step_ns
    return whole_ns / max(whole_ns - won_ns, 1)


def _find_mean_ns(run: MeasuredRun) -> int:
    return run.rank.mean_step_ns or run.step_ns


def _counted(run: MeasuredRun, match: Match) -> tuple[str, ...]:
    """Return the causes whose bounds are the gain of a fix: those whose time the fix changes.

    The gain for the host time after a draining call is at most that of removing the call, while both remain.
    """
    reached = select_reached_causes(match.causes, match.rule.questions(match.causes))
    draining = tuple(cause for cause in reached if cause not in LAUNCHING)
    return draining if draining and run.measure("drained", ()) else reached


def _order(match: Match, bound: _Bound, run: MeasuredRun, replayed: Replayed) -> tuple[object, ...]:
    """Return the sort key of a fix: kind, gain, status, whether blocked, order of rules, workflow phase.

    Fixes without a gain of their own follow those with one, by the time of their causes. Compute comes last
    if a loss is the wall. Unattributed time comes before it, unless it hides the wall. Generic advice follows
    all advice with evidence in the capture.
    """
    rule, dominant = match.rule, run.analysis.diagnosis.dominant_wall
    has_replays = replayed.replay is not None and replayed.replay.refused is None
    if rule.wall == Wall.COMPUTE and dominant == "compute":
        kind = 1 if has_replays else 0
    elif rule.wall == Wall.COMPUTE:
        kind = 1 if bound.replay is not None and dominant not in _LOSSES else 3
    elif bound.won_ns is not None:
        kind = 1
    else:
        kind = 0 if dominant == "unknown" and match.causes else 2
    owned_ns = max(map(run.typical_ns, match.causes), default=0)
    worth = owned_ns / max(run.step_ns, 1) if bound.speedup is None else 1 - 1 / bound.speedup
    statuses = {entry.status for entry in run.analysis.opportunities if entry.cause in match.causes}
    return (
        rule.generic,
        kind,
        has_replays and bound.replay is None,
        has_replays and match.blocked,
        -worth,
        "trace-verified" not in statuses,
        match.blocked,
        rule.order,
        PHASES.index(rule.phase),
        rule.id,
    )


def rank_fixes(
    run: MeasuredRun, matches: Sequence[Match], replayed: Replayed = NOT_REPLAYED
) -> tuple[Fix, ...]:
    """Return the fixes of a run, the largest gain first."""
    bounds = {one.rule.id: _bound(one, run, replayed.answers.get(one.rule.id)) for one in matches}
    ordered = sorted(matches, key=lambda one: _order(one, bounds[one.rule.id], run, replayed))
    return tuple(_build_fix(one, bounds[one.rule.id], run) for one in ordered)


def _build_fix(match: Match, bound: _Bound, run: MeasuredRun) -> Fix:
    rule, causes = match.rule, match.causes
    besides = f" {rule.compare}." if rule.compare else ""
    test = besides if match.is_about_capture else f" {_CONTRACT.format(besides=besides)}"
    why = _why(rule, run, causes)
    assumption, reasons = _explain_bound(match, bound, run)
    return Fix(
        id=rule.id,
        title=rule.title,
        wall=rule.wall,
        causes=causes,
        why=f"{match.reason} {why}" if match.reason else why,
        settings=match.settings,
        preconditions=match.preconditions,
        blocked=match.blocked,
        recoverable_ns=bound.won_ns,
        speedup_ceiling=bound.speedup,
        expected_gain=rule.gain.quote() if rule.gain else None,
        caveats=rule.all_caveats if run.framework == "megatron" else rule.caveats,
        verify=f"{rule.active}{test}",
        source=rule.source,
        next_wall=bound.next_wall,
        replay=bound.replay,
        evidence=list_evidence(run, causes, rule.measured),
        refuted_by=rule.refuted or _REFUTED.format(result=_describe_no_effect(causes)),
        assumes="; ".join(filter(None, (assumption.sentence, *reasons))),
        assumption=assumption.predicate,
    )


def _explain_bound(match: Match, bound: _Bound, run: MeasuredRun) -> tuple[Assumption, tuple[str, ...]]:
    """Return what a bound assumes, and why it differs much from the time of its causes."""
    if bound.won_ns is None or match.is_about_capture:
        return NOTHING_ASSUMED, ()
    counted = _counted(run, match)
    return (
        state_assumption(bound.won_ns, bound.replay, counted, run),
        (
            *explain_gain(bound.won_ns, bound.replay, match.causes, counted, run),
            *name_further_changes(bound.replay, match.causes, run),
        ),
    )


def _describe_no_effect(causes: Sequence[str]) -> str:
    if not causes:
        return "the memory pressure stays high"
    return f"the time for this cause does not change: {describe_cause(causes[0])}"


def _settings(rule: Rule, run: MeasuredRun) -> tuple[Setting, ...]:
    """Return the settings of a rule for the program, its framework's first; empty if there are none.

    A rule with settings only for other frameworks does not apply. Models without experts get no expert
    settings, and traces of PyTorch's profiler get no nsys settings. Settings that the environment or the
    configuration file already has are excluded.
    """
    own, given = _choose_own(rule, run), rule.all_settings()
    if run.measure("trains", ()) is False:
        given = leave_out_training(given)
    if run.measure("vendor", ()) == "amd":
        given = adapt_to_amd(given)
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
    infers_with_megatron = run.framework == "megatron" and run.measure("trains", ()) is False
    own = choose_systems("pytorch" if infers_with_megatron else run.framework, rule.settings)
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


def _link_fixes(entry: Opportunity, fixes: Sequence[Fix]) -> Opportunity:
    """Return an opportunity with the fixes of the program that address its cause."""
    return replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))

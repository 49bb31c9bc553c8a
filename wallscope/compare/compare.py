"""The comparison of two sides: the step of one rank decides; walls, causes and operations explain."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from math import exp, expm1, inf, isfinite, log

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope._version import __version__
from wallscope.columns import Flags
from wallscope.compare.all_steps import (
    AllSteps,
    AllStepsChange,
    Change,
    WarmUp,
    compare_all_steps,
    describe_warm_up,
    fit_warm_up,
    measure_all_steps,
    measure_bias,
    measure_slow_chance,
)
from wallscope.compare.applied_fixes import ChangeEvidence, recognize_applied_fixes
from wallscope.compare.capture_bias import BiasSide, find_biases
from wallscope.compare.comparability import (
    align_parts,
    describe_copies,
    drop_copies,
    find_capture_mismatches,
    find_mismatches,
    is_same_capture,
)
from wallscope.compare.confidence import Floats, measure_windows, spread_of_all_steps, spread_of_steps
from wallscope.compare.explanations import (
    add_rare_stalls,
    compare_environments,
    explain_changes,
    join_settings,
)
from wallscope.compare.gates import Gate, evaluate_gates
from wallscope.compare.grades import Measured, StepClaim, grade_step
from wallscope.compare.operation_changes import operation_changes, operation_deltas
from wallscope.compare.run_noise import (
    Difference,
    Runs,
    count_runs_to_decide,
    pool_records,
    stack_runs,
)
from wallscope.compare.step_levels import (
    RunLevels,
    describe_levels,
    find_levels,
    find_shared_levels,
    measure_distance,
)
from wallscope.compare.typical_steps import (
    RankPair,
    TypicalStep,
    deciding_steps,
    lengths_ns,
    pair_ranks,
    rank_changes,
    steady_steps,
    typical_step,
)
from wallscope.compare.wall_deltas import (
    STEP,
    ComparedRuns,
    communication_changes,
    compare_walls,
    find_sure,
    name_columns,
)
from wallscope.errors import ComparisonError
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import (
    COMPARISON_SCHEMA,
    ComparedSide,
    Comparison,
    Deltas,
    Explanation,
    Mismatch,
    OperationChange,
    Replication,
    StepChange,
    Verdict,
)
from wallscope.model.enums import Grade, Wall
from wallscope.model.profile import Noise, Profile, RecordedNoise
from wallscope.model.report import SIDE_STEPS, ComparisonReport, SideSteps
from wallscope.records import dataclass
from wallscope.thresholds.verdict import CONFIDENCE_SHARE, MARGIN_NS, MARGIN_SHARE, SLOW_STEP_RATIO


@dataclass(frozen=True, slots=True)
class Side:
    """One side: its name, and the profiles of each run, a rank each; of a store also commit and testbed.

    `noise` is what other recorded runs differ by, `notes` what else is known of it.
    """

    name: str
    runs: tuple[tuple[Profile, ...], ...]
    commit: str | None = None
    noise: RecordedNoise | None = None
    testbed: str | None = None
    notes: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """What the user asks for: the rank, the margin below which nothing changed, a verdict in any case.

    `is_paired` is whether the runs of both sides belong together in their order.
    """

    rank: int | None = None
    margin_ratio: float = MARGIN_SHARE
    margin_ns: int = MARGIN_NS
    overridden: bool = False
    gates: tuple[Gate, ...] = ()
    is_paired: bool = False


@dataclass(frozen=True, slots=True)
class _Measured:
    """One side of the compared rank: its typical step, or the mean of all, with the runs it comes from."""

    profiles: tuple[Profile, ...]
    step: TypicalStep
    scale: Fraction
    steps_ns: tuple[Floats, ...]
    runs: Runs
    all_steps: tuple[AllSteps, ...]
    levels: tuple[RunLevels, ...]
    warm_ups: tuple[WarmUp, ...]


def compare_sides(base: Side, head: Side, options: CompareOptions) -> Comparison:
    """Compare two sides; swapping them mirrors the whole result.

    Raises:
        ComparisonError: they have no rank in common, or gates are set on what cannot be compared.
    """
    given = len(base.runs), len(head.runs)
    base, head = (replace(side, runs=drop_copies(side.runs)) for side in (base, head))
    if options.is_paired and given != (len(base.runs), len(head.runs)):
        raise ComparisonError("--paired — one capture is given twice — give two captures of each pair")
    pairing = pair_ranks(base.runs, head.runs, options.rank)
    sides = align_parts(pairing.base, pairing.head, [gate.name for gate in options.gates])
    tokens, causes = _tokens(sides.base, sides.head), _list_causes((*sides.base, *sides.head))
    ours, theirs = (_measure_side(profiles, causes, tokens) for profiles in (sides.base, sides.head))
    names = name_columns(causes)
    fewest = min(int(side.runs.steps.min()) for side in (ours, theirs))
    shared = find_shared_levels(ours.steps_ns, theirs.steps_ns)
    distance = measure_distance((*ours.levels, *theirs.levels), shared, fewest)
    windows = (measure_windows(run, fewest) for side in (ours, theirs) for run in side.steps_ns)
    short = max(distance / 2, *windows)
    bias = measure_bias(ours.warm_ups, theirs.warm_ups)
    compared = ComparedRuns(
        sides.base,
        sides.head,
        (float(ours.scale), float(theirs.scale)),
        (base.noise, head.noise),
        fewest,
        distance,
        short,
        bias,
        options.is_paired,
    )
    both = compared.measure(names, ours.runs, theirs.runs)
    is_same = is_same_capture(pairing.base, pairing.head)
    works = (pairing.base[0].header.work, pairing.head[0].header.work)
    found = (
        *_list_mismatches(pairing, ours.step, theirs.step),
        *describe_copies(given, (len(base.runs), len(head.runs))),
        *sides.mismatches,
        *describe_levels(ours.levels, theirs.levels, shared),
        *describe_warm_up(
            *([lengths_ns(steady_steps(one)) for one in of] for of in (sides.base, sides.head))
        ),
        *base.notes,
        *head.notes,
    )
    if is_same:
        found = (Mismatch("capture", "the same", "the same", "note"),)
    is_comparable = all(entry.severity != "incomparable" for entry in found)
    is_judged = is_comparable or options.overridden
    every = _compare_means(ours, theirs, both, short, bias)
    step = _step(ours, theirs, None if is_same else (both, every), options, tokens, has_grade=is_judged)
    verdict, is_of_mean = _decide(step, both, every, is_same=is_same)
    if verdict == "inconclusive" and step.replication != "none":
        step = replace(step, runs_to_decide=_count_needed_runs(step, both, compared))
    measured = both
    if is_of_mean:
        compared = replace(compared, of_all=True)
        ours, theirs = (_measure_mean(side, causes) for side in (ours, theirs))
        measured = compared.measure(names, ours.runs, theirs.runs)
        grade = _grade_mean(every, measured, options) if is_judged else None
        step = _compare_mean(step, (ours.step, theirs.step), grade)
    steps = (ours.step, theirs.step)
    claim = StepClaim(step.change_ns, step.grade, max(ours.runs.count, theirs.runs.count))
    axes = communication_changes(*steps)
    traffic = tuple(one.row for one in axes) if is_same else compared.add_intervals(axes, claim)
    walls, causes_changed = compare_walls(*steps, None if is_same else measured, causes, claim)
    deltas = Deltas(walls, causes_changed, compared.add_intervals(operation_deltas(*steps), claim))
    operations: tuple[OperationChange, ...] = ()
    explanations: tuple[Explanation, ...] = ()
    if not is_same:
        operations = compared.add_intervals(operation_changes(*steps), claim)
        recognized = explain_changes(*steps, traffic, found, step)
        explanations = (
            *add_rare_stalls(recognized, sides.base, sides.head, deltas if is_of_mean else None),
            *join_settings(found, deltas.causes, operations, step.base_ns),
        )
    evidence = ChangeEvidence(step, walls, causes_changed, explanations, found, _list_advised(pairing))
    return Comparison(
        schema=COMPARISON_SCHEMA,
        wallscope_version=__version__,
        base=_side(base, pairing.base),
        head=_side(head, pairing.head),
        comparable=is_comparable,
        mismatches=found,
        verdict=verdict if is_judged else "incomparable",
        window=works[0].unit if works[0].kind != "whole-trace" else "capture",
        step=step,
        deltas=deltas,
        communication=traffic,
        explanations=explanations,
        ranks=rank_changes(base.runs, head.runs, pairing.rank),
        gates=evaluate_gates(options.gates, verdict, step, deltas) if is_judged else (),
        operations=operations,
        applied=recognize_applied_fixes(pairing.base[0].fixes, evidence) if is_judged else (),
    )


def _compare_means(
    ours: _Measured, theirs: _Measured, both: Difference, short: float, bias: float
) -> AllStepsChange:
    noise = Noise(float(both.noise[0]), float(both.noise_freedom[0]))
    return compare_all_steps(ours.all_steps, theirs.all_steps, noise, short, bias)


def _count_needed_runs(step: StepChange, both: Difference, compared: ComparedRuns) -> int | None:
    """Count the runs of each side that would probably decide; `None` if that is unknown."""
    change, margin = log(step.ratio), log(1 + step.margin_ratio)
    freedom = float(pool_records(compared.known, [STEP]).freedom[0])
    return count_runs_to_decide(both, freedom, min(step.base_runs, step.head_runs), change, margin)


def _list_mismatches(pairing: RankPair, ours: TypicalStep, theirs: TypicalStep) -> Iterator[Mismatch]:
    """List what the captures of both sides show to differ: work, bias, environment."""
    base, head = pairing.base[0], pairing.head[0]
    yield from find_mismatches((base.header.work, ours), (head.header.work, theirs))
    yield from find_biases(BiasSide(base.header, ours), BiasSide(head.header, theirs))
    yield from compare_environments(*(next(iter(one.header.inputs), None) for one in (base, head)))
    yield from find_capture_mismatches(base, head)


def _list_advised(pairing: RankPair) -> frozenset[str]:
    return frozenset(fix.id for fix in pairing.head[0].fixes)


def require_comparable(comparison: Comparison, gates: tuple[Gate, ...]) -> None:
    """Refuse gates on what cannot be compared.

    Raises:
        ComparisonError: it cannot.
    """
    if gates and comparison.verdict == "incomparable":
        worst = comparison.mismatches[0]
        raise ComparisonError(
            f"{comparison.base.name}, {comparison.head.name} — cannot be compared, so no gate can be judged:"
            f" {worst.what} is {worst.base} and {worst.head} — compare like with like, or say --override"
        )


def _list_causes(profiles: Iterable[Profile]) -> list[str]:
    return sorted({cause for profile in profiles for cause in profile.causes["cause"]})


def _tokens(base: Sequence[Profile], head: Sequence[Profile]) -> tuple[int, int] | None:
    """Return tokens a step of both sides, where both are known and differ."""
    ours, theirs = (side[0].header.work.tokens_per_step for side in (base, head))
    return None if ours is None or theirs is None or ours == theirs else (ours, theirs)


def _measure_side(
    profiles: tuple[Profile, ...], causes: list[str], tokens: tuple[int, int] | None
) -> _Measured:
    own = profiles[0].header.work.tokens_per_step
    scale = Fraction(1) if tokens is None or own is None else Fraction(min(tokens), own)
    steps = [deciding_steps(profile) for profile in profiles]
    scaled = tuple(lengths_ns(chosen).astype(np.float64) * float(scale) for chosen in steps)
    return _Measured(
        profiles=profiles,
        step=typical_step(profiles, scale),
        scale=scale,
        steps_ns=scaled,
        runs=stack_runs(
            [
                spread_of_steps(lengths_ns(chosen), _columns(profile, chosen, causes))
                for profile, chosen in zip(profiles, steps, strict=True)
            ],
            [len(chosen) for chosen in steps],
        ),
        all_steps=tuple(measure_all_steps(one) for one in scaled),
        levels=tuple(find_levels(lengths_ns(chosen)) for chosen in steps),
        warm_ups=tuple(fit_warm_up(lengths_ns(steady_steps(one))) for one in profiles),
    )


def _measure_mean(side: _Measured, causes: list[str]) -> _Measured:
    """Measure the mean of all steps of a side instead of its typical step."""
    steps = [deciding_steps(profile) for profile in side.profiles]
    return replace(
        side,
        step=typical_step(side.profiles, side.scale, of_all=True),
        runs=stack_runs(
            [
                spread_of_all_steps(lengths_ns(chosen), _columns(profile, chosen, causes))
                for profile, chosen in zip(side.profiles, steps, strict=True)
            ],
            [len(chosen) for chosen in steps],
        ),
    )


def _compare_mean(
    step: StepChange, sides: tuple[TypicalStep, TypicalStep], grade: Grade | None
) -> StepChange:
    """Return the step with the mean compared instead of the typical one."""
    return replace(
        step,
        base_mean_ns=sides[0].step_ns,
        head_mean_ns=sides[1].step_ns,
        compared="mean",
        grade=grade,
    )


def _grade_mean(every: AllStepsChange, measured: Difference, options: CompareOptions) -> Grade | None:
    change, half, margin = every.mean.change, every.mean.half or inf, log(1 + options.margin_ratio)
    is_sure = bool(find_sure(measured)[0])
    return grade_step(
        Measured(change, half, abs(change) > margin, is_sure, bool(measured.is_assumed[0])), margin
    )


def _columns(profile: Profile, steps: pl.DataFrame, causes: list[str]) -> npt.NDArray[np.int64]:
    """Return the time of each wall and each cause in each step, int64 ns; one row for each step."""
    columns = np.zeros((len(steps), len(Wall) + len(causes)), np.int64)
    row = {at: number for number, at in enumerate(steps.select("input", "step").iter_rows())}
    place = {cause: len(Wall) + number for number, cause in enumerate(causes)}
    walls = list(Wall)
    sums = profile.causes.group_by("input", "step", "cause").agg(pl.col("ns").sum())
    for source, step, cause, time_ns in sums.iter_rows():
        if (source, step) in row:
            columns[row[source, step], place[cause]] = time_ns
            columns[row[source, step], walls.index(find_wall(cause))] += time_ns
    return columns


def _side(side: Side, profiles: Sequence[Profile]) -> ComparedSide:
    header = profiles[0].header
    inputs = [entry for profile in profiles for entry in profile.header.inputs]
    return ComparedSide(
        name=side.name,
        inputs=tuple(entry.name for entry in inputs),
        fingerprints=tuple(entry.fingerprint for entry in inputs),
        gpu=header.work.gpu,
        rank=header.rank,
        device=header.device,
        commit=side.commit,
        testbed=side.testbed,
        is_representative=len(side.runs[0]) == 1 or all(one.header.is_representative for one in profiles),
        matrices=header.matrices,
    )


def _step(  # noqa: PLR0913  # all that it is measured by
    base: _Measured,
    head: _Measured,
    changed: tuple[Difference, AllStepsChange] | None,
    options: CompareOptions,
    tokens: tuple[int, int] | None,
    *,
    has_grade: bool,
) -> StepChange:
    """Return the step; `changed` is `None` where both sides are the same capture."""
    both, every = changed or (None, None)
    change = log(head.step.step_ns / base.step.step_ns) if base.step.step_ns and head.step.step_ns else 0.0
    half = 0.0 if both is None else _known(both.half()[0])
    runs = (len(base.profiles), len(head.profiles))
    replication: Replication = (
        "same" if both is None else "none" if half is None else "runs" if min(runs) > 1 else "steps"
    )
    alone = least = None
    if both is not None:
        alone = _known(both.steps_half()[0]) if max(runs) == 1 else None
        least = both.detectable(log(1 + options.margin_ratio))
    lengths = [np.concatenate(side.steps_ns) for side in (base, head)]
    counts = [_summarize_lengths(one) for one in lengths]
    sizes = [one.size for one in lengths]
    mean, p90 = (
        ((1.0, 1.0), (1.0, 1.0)) if every is None else (_bound_ratio(every.mean), _bound_ratio(every.p90))
    )
    return StepChange(
        base_typical_ns=base.step.step_ns,
        head_typical_ns=head.step.step_ns,
        base_median_ns=counts[0].median_ns,
        head_median_ns=counts[1].median_ns,
        base_p90_ns=counts[0].p90_ns,
        head_p90_ns=counts[1].p90_ns,
        base_mean_ns=counts[0].mean_ns,
        head_mean_ns=counts[1].mean_ns,
        base_slow_steps=int(counts[0].is_slow.sum()),
        head_slow_steps=int(counts[1].is_slow.sum()),
        mean_ratio_low=mean[0],
        mean_ratio_high=mean[1],
        p90_ratio_low=p90[0],
        p90_ratio_high=p90[1],
        slow_steps_chance=measure_slow_chance([side.is_slow for side in counts]),
        ratio=exp(change),
        ratio_low=None if half is None else exp(change - half),
        ratio_high=None if half is None else exp(change + half),
        pair_ratio_low=None if alone is None else exp(change - alone),
        pair_ratio_high=None if alone is None else exp(change + alone),
        confidence=CONFIDENCE_SHARE,
        minimum_detectable_ratio=None if least is None else exp(least),
        margin_ratio=options.margin_ratio,
        margin_ns=options.margin_ns,
        base_steps=sizes[0],
        head_steps=sizes[1],
        base_runs=runs[0],
        head_runs=runs[1],
        replication=replication,
        run_noise=None if both is None else float(both.noise[0]),
        run_noise_source=None
        if both is None
        else "assumed"
        if both.is_assumed[0]
        else "runs"
        if max(runs) > 1
        else "recorded",
        tokens=None if tokens is None else min(tokens),
        paired=options.is_paired,
        grade=None if both is None or not has_grade else _grade_step(both, change, options),
    )


def _grade_step(both: Difference, change: float, options: CompareOptions) -> Grade | None:
    margin = log(1 + options.margin_ratio)
    is_past = abs(change) > margin
    found = Measured(
        change, float(both.half()[0]), is_past, bool(find_sure(both)[0]), bool(both.is_assumed[0])
    )
    return grade_step(found, margin)


def _known(half: float) -> float | None:
    return float(half) if isfinite(half) else None


def _bound_ratio(of: Change) -> tuple[float | None, float | None]:
    """Return the interval of a ratio, `None` where that is unknown."""
    return (None, None) if of.half is None else (exp(of.change - of.half), exp(of.change + of.half))


@dataclass(frozen=True, slots=True)
class _Lengths:
    median_ns: int
    p90_ns: int
    mean_ns: int
    is_slow: Flags


def _summarize_lengths(length_ns: npt.NDArray[np.float64]) -> _Lengths:
    median, p90 = np.percentile(length_ns, [50, 90])
    is_slow = length_ns > SLOW_STEP_RATIO * median
    return _Lengths(round(median), round(p90), round(length_ns.mean()), is_slow)


def decide_verdict(change: float, half: float | None, step_ns: int, margin: float, margin_ns: int) -> Verdict:
    """Decide whether a change is surely past the margin, surely inside it, or neither.

    `change` and `margin` are logarithms of ratios, `half` is half the interval of the change. `step_ns` is
    the shorter of both typical steps.
    """
    if half is None:
        return "inconclusive"
    if abs(change) > max(half, margin) and expm1(abs(change)) * step_ns > margin_ns:
        return "regression" if change > 0 else "improvement"
    widest = abs(change) + half
    is_nothing = widest < margin or (widest < 1 and expm1(widest) * step_ns < margin_ns)
    return "no-change" if is_nothing else "inconclusive"


def _decide(
    step: StepChange, both: Difference, every: AllStepsChange, *, is_same: bool
) -> tuple[Verdict, bool]:
    """Return the verdict, and whether it is about the mean of all steps, not about the typical step.

    It is where the mean surely changed and the typical step did not, or by another ratio: slow steps decide
    then. Where both surely changed, in opposite directions, there is no verdict.
    """
    margin, margin_ns = log(1 + step.margin_ratio), step.margin_ns
    if is_same:
        return "no-change", False
    shorter_ns = min(step.base_typical_ns, step.head_typical_ns)
    half = _known(both.half()[0])
    typical = decide_verdict(log(step.ratio), half, shorter_ns, margin, margin_ns)
    shorter_ns = min(step.base_mean_ns, step.head_mean_ns)
    mean = decide_verdict(every.mean.change, every.mean.half, shorter_ns, margin, margin_ns)
    if mean not in _CHANGED:
        return typical, False
    if typical not in _CHANGED:
        return mean, True
    is_other = abs(every.mean.change - log(step.ratio)) > margin
    return (typical if typical == mean else "inconclusive"), is_other


_CHANGED = ("regression", "improvement")


_WALLS = tuple(f"{wall}_wall_ns" for wall in Wall)
_WARM_UP = "warm-up: longer than the later ones"


def comparison_report(found: Comparison, base: Side, head: Side, rank: int | None) -> ComparisonReport:
    """Return the comparison with the steps of the compared rank; `rank` is the one that was asked for."""
    pairing = pair_ranks(drop_copies(base.runs), drop_copies(head.runs), rank)
    return ComparisonReport(
        found, _side_steps(pairing.base, found.step.tokens), _side_steps(pairing.head, found.step.tokens)
    )


def _side_steps(profiles: Sequence[Profile], tokens: int | None) -> SideSteps:
    header = profiles[0].header
    own = header.work.tokens_per_step
    scale = Fraction(1) if tokens is None or own is None else Fraction(tokens, own)
    return SideSteps(
        header.work,
        tuple(entry for profile in profiles for entry in profile.header.inputs),
        pl.concat([_run_steps(run, profile, scale) for run, profile in enumerate(profiles)]),
    )


def _run_steps(run: int, profile: Profile, scale: Fraction) -> pl.DataFrame:
    chosen = deciding_steps(profile).select("input", "step", counts=pl.lit(True))
    steps = profile.steps.join(chosen, on=["input", "step"], how="left").sort("input", "start_ns")
    scaled = (
        steps if scale == 1 else steps.with_columns((pl.col(_WALLS) * float(scale)).round().cast(pl.Int64))
    )
    return (
        scaled.with_columns(
            run=pl.lit(run),
            length_ns=pl.sum_horizontal(_WALLS),
            counts=pl.col("counts").fill_null(value=False),
        )
        .with_columns(reason=pl.when(~pl.col("counts")).then(pl.col("reason").fill_null(_WARM_UP)))
        .select(SIDE_STEPS.names())
        .cast(SIDE_STEPS)
    )

"""A comparison in sentences: the verdict, how sure it is, what explains it, and what to do next."""

from collections import defaultdict
from math import inf, sqrt

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import (
    CauseDelta,
    CommunicationChange,
    ComparedSide,
    Comparison,
    Explanation,
    Mismatch,
    OperationChange,
    OperationDelta,
    RankChange,
    StepChange,
    WallDelta,
)
from wallscope.model.enums import Grade, Wall
from wallscope.records import dataclass
from wallscope.render.texts import drop_namespaces, shorten_range_path, visible
from wallscope.thresholds.noise import ASSUMED_NOISE_RATIO
from wallscope.thresholds.verdict import (
    CONFOUNDING_SHARE,
    EXPLAINING_SHARE,
    MATERIAL_SHARE,
    UNEXPLAINED_SHARE,
    USUAL_STEPS_SHARE,
)
from wallscope.views.comparison_claims import (
    describe_settling,
    find_largest_wall,
    find_leading_cause,
    find_leading_wall,
    grade_leading_cause,
    is_certain,
)
from wallscope.views.light import measure_matrices, name_category

_MOST_UNEXPLAINED = 2
_GRADED = {Grade.SURE: "Cause", Grade.LIKELY: "Likely cause", Grade.POSSIBLE: "Possible cause"}
_CHANGED_PART = {
    Grade.SURE: "surely changed", Grade.LIKELY: "likely changed", Grade.POSSIBLE: "possibly changed"
}  # fmt: skip
_Changed = WallDelta | CauseDelta | OperationChange | OperationDelta | CommunicationChange
TIMES = " \N{MULTIPLICATION SIGN} "
_LONGEST_REASON = 110
_LIKE_RUNS = "runs of the same program may differ by this much"
_ONE_OF_WALLS = " With five walls compared, one could change this much by chance."
_NO_MORE_THAN_RUNS = "Two runs of the same program may differ by this much, so the change may be chance."


def describe_change(comparison: Comparison) -> str:
    """Describe the change in ns with its interval, and how much of it the cause makes up."""
    if comparison.verdict == "incomparable":
        reasons = [
            f"{entry.what}: {visible(entry.base)} and {visible(entry.head)}"
            for entry in comparison.mismatches
            if entry.severity == "incomparable"
        ]
        refused = "There is therefore no verdict. To compare the runs anyway, add --override."
        return f"{'; '.join(reasons)}. {refused}"
    return (
        f"{_describe_interval(comparison)}{_describe_throughput(comparison)}{_describe_cause(comparison)}"
        f"{_describe_peak_shares(comparison)}"
    ).strip()


def write_reason_of_change(comparison: Comparison) -> str:
    """Write in a clause what changed by how much, and its cause with its grade."""
    step = comparison.step
    if comparison.verdict == "incomparable":
        differing = [entry.what for entry in comparison.mismatches if entry.severity == "incomparable"]
        return (
            f"the sides differ in {' and '.join(differing)}" if differing else "the sides did different work"
        )
    base, head = units.duration(step.base_ns), units.duration(step.head_ns)
    way = "rose" if step.change_ns > 0 else "fell"
    went = f"stayed at {base}" if base == head else f"{way} from {units.join_ends(base, head, ' to ')}"
    size = f"{name_basis_of_change(comparison)} {went} ({write_ratio_of_change(step)})"
    if comparison.verdict == "inconclusive":
        return f"{size}, too uncertain to decide"
    if comparison.verdict == "no-change":
        return f"{size}, within the margin of {units.percent(step.margin_ratio)}"
    is_hidden = any(entry.code == "opaque-graphs" for entry in comparison.explanations)
    if is_hidden or find_leading_wall(comparison) is None or find_leading_cause(comparison) is None:
        return f"{size}; no cause is certain"
    label, named = _GRADED[grade_leading_cause(comparison)].lower(), name_leading_change(comparison)
    said = named.text if named.is_explained else describe_cause(named.cause)
    return f"{size}; {label}: {_continue(said)}"


def _describe_peak_shares(comparison: Comparison) -> str:
    """Say of the kernels that multiply and changed most how near to the peak they were and are."""
    sides = [comparison.base.matrices, comparison.head.matrices]
    shared = {one.category for one in sides[0]} & {one.category for one in sides[1]}
    found = []
    for category in shared:
        (before_ns, before), (after_ns, after) = (measure_matrices(side, category) for side in sides)
        if before is not None and after is not None and abs(after - before) >= MATERIAL_SHARE:
            found.append((abs(after_ns - before_ns), name_category(category), before, after))
    if not found:
        return ""
    _, name, before, after = max(found)
    return f" {units.capitalize(name)}: {units.percent(before)} → {units.percent(after)} of peak."


def name_basis_of_change(comparison: Comparison) -> str:
    """Return what is compared, in the middle of a sentence."""
    window, step = comparison.window, comparison.step
    unit = "repetition of the kernel sequence" if window == "window" else window
    per = "" if step.tokens is None else f" per {step.tokens:,} tokens"
    return f"the {f'{step.compared} ' if window != 'capture' else ''}{unit}{per}"


def _describe_interval(comparison: Comparison) -> str:
    """Write the change in ns and in per cent, with its interval."""
    step = comparison.step
    if step.replication == "same":
        return ""
    change = units.signed_duration(step.change_ns)
    changed = f"{units.capitalize(name_basis_of_change(comparison))} changed by {change}"
    low, high = step.compared_low, step.compared_high
    if low is None or high is None:
        return f"{changed} ({write_ratio_of_change(step)}, no confidence interval)."
    return f"{changed} ({write_ratio_of_change(step)}, 95 % CI {write_interval(low, high)})."


def write_ratio_of_change(step: StepChange) -> str:
    """Write the change of the compared step in per cent."""
    return units.signed_percent(step.compared_ratio - 1)


def write_interval(low: float, high: float) -> str:
    """Write the interval of a ratio, as changes in per cent."""
    return units.join_ends(units.signed_percent(low - 1), units.signed_percent(high - 1), " … ")


def _describe_throughput(comparison: Comparison) -> str:
    """Describe the throughput of both sides where their steps have different numbers of tokens."""
    step = comparison.step
    if step.tokens is None or not step.base_ns or not step.head_ns:
        return ""
    rates = [step.tokens * 1e9 / ns for ns in (step.base_ns, step.head_ns)]
    change = units.signed_percent(rates[1] / rates[0] - 1)
    return f" Throughput went from {rates[0]:,.0f} to {rates[1]:,.0f} tokens/s ({change})."


def _describe_cause(comparison: Comparison) -> str:
    """Say how much of the change the named cause makes up, and what would make it certain.

    Where none is certain, name the largest change. Within the margin, name walls that cancel each other.
    """
    step, ratio = comparison.step, comparison.step.compared_ratio
    if any(entry.code == "opaque-graphs" for entry in comparison.explanations):
        return ""
    if max(ratio, 1 / ratio) <= 1 + step.margin_ratio:
        return _name_canceling_walls(comparison)
    named = _write_named(comparison)
    if find_leading_wall(comparison) is None:
        largest = find_largest_wall(comparison)
        if _excludes_zero(largest.pair_low_ns, largest.pair_high_ns):
            is_said = describe_doubt(comparison) == _NO_MORE_THAN_RUNS
            doubt = "" if is_said else f" The {largest.wall} time of {_LIKE_RUNS}."
            doubt = _ONE_OF_WALLS if _excludes_zero(largest.low_ns, largest.high_ns) else doubt
            return f" The largest change between these two captures is {named}.{doubt}"
        return f" The largest change, although uncertain, is {named}."
    grade = grade_leading_cause(comparison)
    if comparison.verdict == "inconclusive":
        return f" One part {_CHANGED_PART[grade]}: {named}."
    text = f" {_GRADED[grade]}: {named}"
    least_ns = step.margin_ratio * step.base_ns
    against = [
        row
        for row in comparison.deltas.walls
        if is_certain(row) and row.delta_ns * step.change_ns < 0 and abs(row.delta_ns) > least_ns
    ]
    if against:
        changes = ", ".join(f"{row.wall} {units.signed_duration(row.delta_ns)}" for row in against)
        text += f". Other walls changed in the opposite direction: {changes}"
    settling = "" if grade == Grade.SURE else f" {units.capitalize(describe_settling(comparison))}."
    return f"{text}.{settling}"


def describe_mismatch(entry: Mismatch) -> str:
    """Describe what differs between the sides, and which way it biases the comparison."""
    values = f"{visible(entry.base)} → {visible(entry.head)}"
    if entry.base == entry.head:
        values = f"{visible(entry.base)} on both sides"
    effect = f". {units.capitalize(entry.effect)}." if entry.effect else ""
    return f"{entry.what}: {values}{effect}"


def find_confounders(comparison: Comparison) -> tuple[Mismatch, ...]:
    """Return the differences between the captures that could explain the change of the step by themselves."""
    step = comparison.step
    change_ns = step.change_ns
    if comparison.verdict in {"incomparable", "no-change"} or not change_ns:
        return ()
    changed = {row.wall: row.delta_ns for row in comparison.deltas.walls}
    largest = max(changed, key=lambda wall: changed[wall] if change_ns > 0 else -changed[wall])

    def explains(entry: Mismatch) -> bool:
        if entry.direction != ("slower" if change_ns > 0 else "faster"):
            return False
        if entry.bias_ns is None:
            return entry.wall in {None, largest}
        least_ns = CONFOUNDING_SHARE * abs(change_ns)
        of_wall_ns = abs(change_ns) if entry.wall is None else abs(changed[entry.wall])
        return min(abs(entry.bias_ns), of_wall_ns) >= least_ns

    return tuple(entry for entry in comparison.mismatches if explains(entry))


@dataclass(frozen=True, slots=True)
class NamedChange:
    """What a comparison names first: in words, and how much it changed; `cause` is empty for a whole wall.

    `is_explained` is whether the words are those of a recognized change.
    """

    text: str
    delta_ns: int
    wall: Wall
    cause: str = ""
    is_explained: bool = False


def name_leading_change(comparison: Comparison) -> NamedChange:
    """Name the largest cause of the wall that changed most, by what is recognized of it; else the wall."""
    leading, cause = find_largest_wall(comparison), find_leading_cause(comparison)
    if cause is None:
        return NamedChange(f"{leading.wall} time", leading.delta_ns, leading.wall)
    for entry in comparison.explanations:
        if _explains(entry, cause) and len(entry.message) <= _LONGEST_REASON:
            delta_ns = cause.delta_ns if entry.delta_ns is None else entry.delta_ns
            return NamedChange(visible(entry.message), delta_ns, cause.wall, cause.cause, is_explained=True)
    text = f"{describe_cause(cause.cause)}{_describe_range_of_cause(comparison, cause)}"
    return NamedChange(text, cause.delta_ns, cause.wall, cause.cause)


def _explains(entry: Explanation, cause: CauseDelta) -> bool:
    """Return whether a recognized change concerns a cause, and goes in its direction."""
    return cause.cause in entry.causes and (entry.delta_ns is None or entry.delta_ns * cause.delta_ns > 0)


def _write_named(comparison: Comparison) -> str:
    """Write what is named first and its amount of the step's change, in the middle of a sentence.

    Where that is more than the whole change, all else took the difference back.
    """
    named, change_ns = name_leading_change(comparison), comparison.step.change_ns
    amount, whole = map(units.signed_duration, (named.delta_ns, change_ns))
    is_toward = named.delta_ns * change_ns > 0 and amount != whole
    if is_toward and abs(named.delta_ns) < abs(change_ns):
        amount = units.join_ends(amount, whole, " of ")
    elif is_toward:
        amount += f" (everything else: {units.signed_duration(change_ns - named.delta_ns)})"
    return f"{_continue(named.text)}, {amount}"


def _describe_range_of_cause(comparison: Comparison, cause: CauseDelta) -> str:
    """Describe the NVTX range in which most of the change of a cause is; empty where there is none."""
    sums: dict[str, int] = defaultdict(int)
    for row in comparison.deltas.operations:
        if row.cause == cause.cause:
            sums[row.path] += row.delta_ns
    path = max(sums, key=lambda name: (abs(sums[name]), name), default="")
    return f" in {shorten_range_path(path)}" if path and 2 * abs(sums[path]) >= abs(cause.delta_ns) else ""


def _continue(sentence: str) -> str:
    """Return a sentence as the end of another one; abbreviations keep their capitals.

    >>> _continue("Convolutions run in fp16"), _continue("EP overlap is off"), _continue("H2D copies grow")
    ('convolutions run in fp16', 'EP overlap is off', 'H2D copies grow')
    """
    return (
        sentence
        if sentence[1:2].isupper() or sentence[1:2].isdigit()
        else sentence[:1].lower() + sentence[1:]
    )


def _excludes_zero(low_ns: int | None, high_ns: int | None) -> bool:
    return low_ns is not None and high_ns is not None and not low_ns <= 0 <= high_ns


def _name_canceling_walls(comparison: Comparison) -> str:
    """Name walls that surely changed in opposite directions, each by more than the margin."""
    least_ns = comparison.step.margin_ratio * comparison.step.base_ns
    large = [row for row in comparison.deltas.walls if abs(row.delta_ns) > least_ns]
    sure = [row for row in large if is_certain(row)]
    in_pair = [row for row in large if _excludes_zero(row.pair_low_ns, row.pair_high_ns)]
    for rows, doubt in ((sure, ""), (in_pair, f"; {_LIKE_RUNS}")):
        if len({row.delta_ns > 0 for row in rows}) == 2:
            changes = ", ".join(f"{row.wall} {units.signed_duration(row.delta_ns)}" for row in rows)
            return f" Walls changed in opposite directions: {changes}{doubt}."
    return ""


def describe_sureness(comparison: Comparison) -> str:
    """Describe what the interval rests on, and what it could detect where it detected nothing."""
    step, unit = comparison.step, comparison.window
    if step.replication == "same":
        return "Both sides are the same capture."
    if step.paired:
        both = step.base_steps + step.head_steps
        counted = f"{units.plural(both, unit)} of {units.plural(step.base_runs, 'pair')} of runs"
    elif step.base_runs == step.head_runs == 1:
        counted = f"{step.base_steps} and {units.plural(step.head_steps, unit)}, one run per side"
    else:
        sides = ((step.base_steps, step.base_runs), (step.head_steps, step.head_runs))
        counted = " and ".join(
            f"{units.plural(count, unit)} of {units.plural(runs, 'run')}" for count, runs in sides
        )
    if step.replication == "none" or step.minimum_detectable_ratio is None:
        return f"The comparison rests on {counted}, too few to distinguish a change from chance."
    counted = f"The comparison rests on {counted}"
    counted += _describe_uneven_steps(comparison)
    is_seen = step.replication == "runs" and step.run_noise_source == "runs"
    known = "" if is_seen else f" {_describe_noise(step)}"
    return f"{counted}.{known}{_describe_detectable(comparison, step.minimum_detectable_ratio)}"


def _describe_uneven_steps(comparison: Comparison) -> str:
    """Describe sides with so many slow steps that few steps last as long as the typical one, if any."""
    step, unit = comparison.step, comparison.window
    sides = (
        ("base", step.base_slow_steps, step.base_steps, step.base_median_ns, step.base_p90_ns),
        ("head", step.head_slow_steps, step.head_steps, step.head_median_ns, step.head_p90_ns),
    )
    uneven = "".join(
        f". The {unit}s of {side} differ widely (median {units.milliseconds(median_ns)}, p90"
        f" {units.milliseconds(p90_ns)})"
        for side, slow, count, median_ns, p90_ns in sides
        if slow > (1 - USUAL_STEPS_SHARE) * count
    )
    if step.compared == "mean":
        return f"{uneven}. Slow {unit}s decide, so the mean of all is compared"
    return f"{uneven}, so the typical {unit} is the interquartile mean" if uneven else ""


def _describe_detectable(comparison: Comparison, ratio: float) -> str:
    """Describe the smallest detectable change in both directions; empty where a change was detected."""
    if comparison.verdict in {"regression", "improvement"}:
        return ""
    ends = units.signed_percent(ratio - 1), units.signed_percent(1 / ratio - 1)
    return f" Such a comparison has an 80 % chance of detecting a change of {ends[0]} or {ends[1]}."


def describe_doubt(comparison: Comparison) -> str:
    """Describe why there is no verdict; empty where there is one."""
    step = comparison.step
    low, high, margin = step.ratio_low, step.ratio_high, units.percent(step.margin_ratio)
    if comparison.verdict != "inconclusive" or low is None or high is None:
        return ""
    if step.compared == "mean":
        unit = comparison.window
        return f"Slow {unit}s decide the mean, while the typical {unit} went the other way."
    if low > 1 or high < 1:
        return f"The step changed, but perhaps by less than the margin of {margin}."
    low, high, limit = step.pair_ratio_low or 0.0, step.pair_ratio_high or inf, 1 + step.margin_ratio
    if 1 / limit < low and high < limit:
        return (
            f"The two captures differ by less than the margin of {margin}, but other runs may differ by more."
        )
    if low > 1 or high < 1:
        return _NO_MORE_THAN_RUNS
    return f"The change may be chance, but a change of more than {margin} cannot be ruled out either."


def _describe_noise(step: StepChange) -> str:
    """Say what is taken for the difference between runs, where a side has one run."""
    if step.run_noise is None or step.run_noise_source != "assumed":
        return f"Runs are known to differ by {units.percent(step.run_noise)}."
    is_one = max(step.base_runs, step.head_runs) == 1
    lead = (
        "Run-to-run noise is therefore assumed" if is_one else "With so few runs, run-to-run noise is assumed"
    )
    off = f"{100 * sqrt(3) * step.run_noise:.2g} %"  # evenly up to as much has that deviation
    low, high = step.pair_ratio_low, step.pair_ratio_high
    alone = ""
    if low is not None and high is not None and step.compared == "typical":
        ends = (units.signed_percent(low - 1), units.signed_percent(high - 1))
        interval, known_low, known_high = write_interval(low, high), step.ratio_low, step.ratio_high
        is_new = known_low is None or known_high is None or write_interval(known_low, known_high) != interval
        if ends[0] != ends[1] and is_new:
            alone = f" Without this noise, the 95 % CI from these steps is {interval}."
    return (
        f"{lead}: the step time of a run may be off by up to {off}."
        " For communication, memory and host time, a standard deviation of"
        f" {100 * ASSUMED_NOISE_RATIO:.0f} % is assumed for each.{alone}"
    )


def list_sides(comparison: Comparison) -> tuple[str, ...]:
    """Describe what both sides are: GPU, the rank that is compared, and which ranks there are besides."""
    base, head = comparison.base, comparison.head
    gpus = [side.gpu or "GPU unknown" for side in (base, head)]
    ranks = [name_rank_of(side) for side in (base, head)]
    others = len(comparison.ranks)
    parts = [
        gpus[0] if gpus[0] == gpus[1] else " → ".join(gpus),
        ranks[0] if ranks[0] == ranks[1] else " → ".join(ranks),
    ]
    if others:
        is_numbered = base.rank is not None and head.rank is not None
        parts[1] += f" of {others + 1} in both" if is_numbered else f", {others + 1} ranks in both"
    other = [name for name, side in (("base", base), ("head", head)) if not side.is_representative]
    if other:
        parts[1] += f" (analyze reports another rank for {' and '.join(other)})"
    return tuple(map(visible, parts))


def name_rank_of(side: ComparedSide | RankChange) -> str:
    """Name the rank that is compared, by its device where its number is unknown."""
    if side.rank is not None:
        return f"rank {side.rank}"
    return "rank unknown" if side.device is None else f"device {side.device}"


def describe_testbeds(comparison: Comparison) -> str:
    """Describe what both sides ran on, of records; empty for runs that come from no store."""
    ours, theirs = comparison.base.testbed, comparison.head.testbed
    if ours is None or theirs is None:
        return ""
    if ours == theirs:
        return f"Both on {visible(ours, most=200)}"
    return f"Configured differently: {visible(ours, most=200)} → {visible(theirs, most=200)}"


def list_explanations(comparison: Comparison) -> tuple[tuple[int | None, str], ...]:
    """List what explains the change and which certain changes nothing explains.

    What explains most of the change comes first, then what changed in the other direction, then what has no
    amount. Work that is hidden in CUDA graphs leads: nothing else can be judged then.
    """
    hidden = [one for one in comparison.explanations if one.code == "opaque-graphs"]
    found = [
        (entry.delta_ns, visible(entry.message, most=300))
        for entry in comparison.explanations
        if entry not in hidden
    ]
    found += [
        (row.delta_ns, f"Nothing that was recorded explains {_describe_unexplained(comparison, row)}")
        for row in find_unexplained_causes(comparison)
    ]
    sign = 1 if comparison.step.head_ns >= comparison.step.base_ns else -1
    found.sort(key=lambda entry: (entry[0] is None, -sign * (entry[0] or 0)))
    return (*((None, visible(one.message, most=300)) for one in hidden), *found)


def _describe_unexplained(comparison: Comparison, row: CauseDelta) -> str:
    return f"{describe_cause(row.cause)}{_describe_range_of_cause(comparison, row)} ({row.cause})"


def find_unexplained_causes(comparison: Comparison) -> list[CauseDelta]:
    """Return certain changes that no explanation and no applied fix covers; operations explain compute."""
    least_ns = UNEXPLAINED_SHARE * comparison.step.base_ns
    left = [
        row
        for row in comparison.deltas.causes
        if not any(_explains(entry, row) for entry in comparison.explanations)
        and not any(row.cause in one.causes for one in comparison.applied)
        and row.wall in {"host", "communication", "unattributed"}
        and is_certain(row)
        and abs(row.delta_ns) >= least_ns
    ]
    return left[:_MOST_UNEXPLAINED]


def describe_place(row: OperationChange) -> str:
    """Describe which operations changed: their kind, and the NVTX range that they run in.

    Where others replaced them, both are named.
    """
    kind = row.category if row.category == row.base_category else f"{row.base_category} → {row.category}"
    path = f" in {shorten_range_path(row.path)}" if row.path else ""
    return f"{kind}{path}"


def describe_kernels(row: OperationChange) -> str:
    """Name the kernel of an operation that runs longest, on both sides where they differ."""
    names = [
        f"{visible(drop_namespaces(name))}{f' and {count - 1} more' if count > 1 else ''}"
        for name, count in ((row.base_name, row.base_names_count), (row.name, row.head_names_count))
        if name
    ]
    return " → ".join(dict.fromkeys(names))


def describe_calls(row: OperationChange) -> str:
    """Write calls and time per call of both sides, or of the one that has the operation.

    A change of overlap is said: the step waits more or less for the same work.
    """
    if not is_of_overlap(row):
        return write_calls(row)
    exposed = f"{units.duration(abs(row.delta_ns))} {'more' if row.delta_ns > 0 else 'less'} exposed"
    return f"{write_calls(row)}, {exposed}"


def is_of_overlap(row: OperationChange) -> bool:
    """Return whether calls and time per call of both sides explain less than half of the change."""
    worked_ns = (row.head_work_ns - row.base_work_ns) * (1 if row.delta_ns > 0 else -1)
    return bool(row.base_count and row.head_count) and 2 * worked_ns < abs(row.delta_ns)


def write_calls(row: OperationChange) -> str:
    """Write calls and time per call of both sides, or of the one that has the operation."""
    sides = [
        (_write_changed_count(count), round(work_ns / count))
        for count, work_ns in ((row.base_count, row.base_work_ns), (row.head_count, row.head_work_ns))
        if count
    ]
    if len(sides) == 2 and sides[0][0] == sides[1][0]:
        each = [units.duration(each_ns) for _, each_ns in sides]
        change = each[0] if each[0] == each[1] else units.change(sides[0][1], sides[1][1])
        return f"{sides[0][0]}{TIMES}{change}"
    return " → ".join(f"{count}{TIMES}{units.duration(each_ns)}" for count, each_ns in sides)


def _write_changed_count(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 or count == int(count) else f"{count:.1f}"


def write_time_interval(row: _Changed) -> str:
    """Write both ends of the interval of a change; empty where it is not known, or nothing can vary."""
    if row.low_ns is None or row.high_ns is None or row.low_ns == row.high_ns:
        return ""
    return units.join_ends(
        units.signed_milliseconds(row.low_ns), units.signed_milliseconds(row.high_ns), " … "
    )


def write_tested_interval(row: _Changed, among: str) -> str:
    """Write the interval of a change that excludes 0 with its grade, if that is less than sure."""
    if not _excludes_zero(row.low_ns, row.high_ns) or row.grade == Grade.SURE:
        return write_time_interval(row)
    return f"{write_time_interval(row)}, {row.grade or f'not significant among all {among}'}"


def write_change(row: OperationChange | OperationDelta | CommunicationChange) -> str:
    """Write a change and how far its interval reaches in either direction, for a narrow terminal."""
    change = units.signed_milliseconds(row.delta_ns)
    if row.high_ns is None or row.low_ns == row.high_ns:
        return change
    half = units.milliseconds(row.high_ns - row.delta_ns)
    return units.join_ends(change, half, " ± ")


def select_operations(comparison: Comparison, most: int) -> tuple[OperationChange, ...]:
    """Return the operations that changed most, without those too small to matter."""
    least_ns = EXPLAINING_SHARE * comparison.step.base_ns
    return tuple(row for row in comparison.operations if abs(row.delta_ns) >= least_ns)[:most]

"""Limits of the analysis as findings: steps, ranks, dependency chains, upper bounds."""

from collections.abc import Iterator

import polars as pl

from wallscope.advice.condition_words import join_words
from wallscope.attribution.prepared import Trace
from wallscope.finding_texts import make_finding
from wallscope.model.analysis import Anchor, CrossCheck, DroppedStep, Rank
from wallscope.model.capture import Capture, Finding, Selection, Severity
from wallscope.model.cause_catalogue import (
    UNATTRIBUTED_OPAQUE_GRAPH,
    UNATTRIBUTED_PROFILER,
    UNRECOGNIZED,
    describe_cause,
    is_part,
)
from wallscope.model.diagnosis import LoggedSteps, StepFacts
from wallscope.model.enums import OperationClass, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.summary.diagnosis import select_working_ranks
from wallscope.summary.rank import RankSummary, lacks_kernels
from wallscope.summary.unusual_losses import find_hidden_locks, find_one_gap, report_slower_kernels
from wallscope.thresholds.logs import LOG_CONTRADICTION_SHARE
from wallscope.thresholds.steps import ANCHOR_AGREEMENT_SHARE, ENOUGH_STEPS_COUNT
from wallscope.thresholds.verdict import (
    ASKED_CAUSE_SHARE,
    MATERIAL_SHARE,
    OVERTURNING_SHARE,
    SHARED_DEVICE_SHARE,
)
from wallscope.trace.dependencies import Dependencies
from wallscope.trace.kernel_classes import shorten_kernel
from wallscope.trace.repeat_unit import find_repeat_unit
from wallscope.trace.silent_waits import SilentlyHeld, find_neighbors, find_silent_waits
from wallscope.trace.steps import Steps
from wallscope.units import capitalize, duration, number, percent, plural, seconds, write_range


def describe_anchor(trace: Trace) -> Anchor:
    """The marker that divides the capture into steps, with the non-steady steps of the busiest rank."""
    division = trace.steps
    own = trace.windows.filter(pl.col("rank_id") == division.busiest.rank_id)
    dropped = own.filter(pl.col("reason").is_not_null()).select("step", "reason")
    selected = own.filter(pl.col("selected"))
    is_step = division.unit == "step"
    return Anchor(
        kind=division.kind,
        unit=division.unit,
        name=division.name,
        steps=division.steps,
        dropped=tuple(DroppedStep(step, reason) for step, reason in dropped.iter_rows()),
        inner=find_repeat_unit(division.busiest, selected, trace.range_tree.tree) if is_step else None,
        cross_check=_cross_check(division),
        selected_time_ns=trace.selection.time_ns,
        selected_steps=trace.selection.steps,
        is_marked=division.kind in {"user", "nvtx"} and not division.is_inferred,
    )


def _cross_check(division: Steps) -> CrossCheck | None:
    """Return the steps of the busiest rank by its kernel sequence.

    Bursts of optimizer kernels separate steps, so their number differs by one.
    """
    if division.check is None:
        return None
    allowed = max(ANCHOR_AGREEMENT_SHARE * division.steps, 1 if division.kind == "optimizer" else 0)
    agrees = abs(division.check - division.steps) <= allowed
    return CrossCheck("kernel-sequence", division.check, agrees=agrees)


MARK_STEPS = "Mark the steps with NVTX, or pass --step-range REGEX."
_GUESSED = {
    "kernel-sequence": "each {window} is one repetition of the kernel sequence",
    "optimizer": "a {window} is assumed to begin after each burst of optimizer kernels",
}

_MOST_NAMED = 3


def find_accounting_limits(ranks: tuple[Rank, ...], anchor: Anchor, trace: Trace) -> tuple[Finding, ...]:
    """Return limits that only the analysis shows, the most severe first.

    `ranks` are the summaries in the order of the ranks. Findings name the user's own selection, and then do
    not ask for another capture.
    """
    unmarked = trace.places_without_marker()
    marked = tuple(rank for place, rank in enumerate(ranks) if place not in unmarked)
    return (
        *_opaque_graphs(ranks),
        *_find_step_limits(ranks, marked, anchor, trace),
        *_left_out(trace),
        *_unmatched(ranks, trace.may_communicate, anchor.window),
        *_inferred_by_ranges(trace),
    )


def _opaque_graphs(ranks: tuple[Rank, ...]) -> Iterator[Finding]:
    opaque_ns = sum(rank.typical.budget.opaque_graph for rank in ranks)
    if opaque_ns == 0:
        return
    yield make_finding(FindingCode.GRAPH_MODE_GRAPHS, covers_ns=opaque_ns, time=duration(opaque_ns))


def _find_step_limits(
    ranks: tuple[Rank, ...], marked: tuple[Rank, ...], anchor: Anchor, trace: Trace
) -> tuple[Finding, ...]:
    selection, others = trace.selection, _name_ranges(trace.steps.recurring)
    if anchor.kind == "whole-trace":
        return _no_steps(ranks, selection, others)
    return (
        *_guessed(anchor, others),
        *_find_inferred_steps(trace.steps, others),
        *_disagreement(anchor),
        *_find_unmarked_ranks(ranks, marked),
        *_few_steps(marked or ranks, anchor, selection),
        *_find_time_outside(ranks),
    )


def _spell_selection(selection: Selection, *names: str) -> str:
    """Return some options of a selection as a user writes them; empty if none of them is set.

    >>> _spell_selection(Selection(device=1, steps=(3, 3), time_ns=(0, 2_000_000_000)), "steps", "time")
    '--steps 3 --time 0.000000000-2.000000000'
    """
    steps = None if selection.steps is None else write_range(*selection.steps)
    time = None if selection.time_ns is None else "-".join(map(seconds, selection.time_ns))
    options = {"rank": selection.rank, "device": selection.device, "steps": steps, "time": time}
    return " ".join(
        f"--{name} {value}" for name, value in options.items() if name in names and value is not None
    )


def _name_ranges(recurring: tuple[tuple[str, int], ...]) -> str:
    """Return the part of a finding that lists ranges that may be steps; empty if there are none.

    >>> _name_ranges((("token_#", 64), ("request", 3)))
    ' The capture has recurring ranges: token_# (64 times) and request (3 times).'
    """
    named = join_words([f"{name} ({plural(count, 'time')})" for name, count in recurring], "and")
    kind = "a recurring range" if len(recurring) == 1 else "recurring ranges"
    return f" The capture has {kind}: {named}." if named else ""


def _no_steps(ranks: tuple[Rank, ...], selection: Selection, others: str) -> tuple[Finding, ...]:
    where = (
        ""
        if _is_all_ranks(selection)
        else f" on the ranks of {_spell_selection(selection, 'rank', 'device')}"
    )
    if selection.time_ns is None:
        window = "the whole capture is analyzed as one window, start-up and time between steps included"
    else:
        window = f"the time of {_spell_selection(selection, 'time')} is analyzed as one window"
    return (
        make_finding(
            FindingCode.NO_STEPS,
            cure=MARK_STEPS if _is_all_ranks(selection) else "",
            covers_ns=max(rank.typical.step_ns for rank in ranks),
            where=where,
            window=window,
            others=others,
        ),
    )


def _is_all_ranks(selection: Selection) -> bool:
    return selection.rank is None and selection.device is None


def _guessed(anchor: Anchor, others: str) -> Iterator[Finding]:
    """Report that no range marks the steps."""
    if anchor.kind not in _GUESSED:
        return
    said = f"No range marks the steps. {capitalize(_GUESSED[anchor.kind].format(window=anchor.window))}"
    if anchor.kind == "kernel-sequence":
        is_unsure = anchor.unit == "window"
        said += ", either a whole step or only a layer" if is_unsure else ", which contains several layers"
    severity = Severity.WARNING if anchor.kind == "kernel-sequence" else Severity.INFO
    yield make_finding(
        FindingCode.UNMARKED_STEPS, severity=severity, cure=MARK_STEPS, said=said, others=others
    )


def _find_inferred_steps(division: Steps, others: str) -> Iterator[Finding]:
    """Report that a range with an unknown name is used as the step."""
    if not division.is_inferred:
        return
    yield make_finding(FindingCode.INFERRED_STEPS, name=division.name, others=others)


def _disagreement(anchor: Anchor) -> Iterator[Finding]:
    check = anchor.cross_check
    if check is None or check.agrees:
        return
    says = "Bursts of optimizer kernels suggest" if anchor.kind == "optimizer" else "The ranges suggest"
    is_named = anchor.kind == "user"
    yield make_finding(
        FindingCode.ANCHORS_DISAGREE,
        cure="Check that --step-range matches each step once."
        if is_named
        else "Select the range that marks a step: --step-range REGEX.",
        marker=says,
        steps=plural(anchor.steps, "step"),
        times=plural(check.steps, "time"),
    )


def _find_unmarked_ranks(ranks: tuple[Rank, ...], marked: tuple[Rank, ...]) -> Iterator[Finding]:
    """Report working ranks without the step marker of the others."""
    lacking = [rank for rank in select_working_ranks(ranks) if not any(rank is other for other in marked)]
    if not lacking:
        return
    verb = "lacks" if len(lacking) == 1 else "lack"
    yield make_finding(
        FindingCode.RANKS_WITHOUT_STEPS,
        covers_ns=max(rank.typical.step_ns for rank in lacking),
        lacking=plural(len(lacking), "rank"),
        ranks=len(ranks),
        verb=verb,
    )


def _few_steps(ranks: tuple[Rank, ...], anchor: Anchor, selection: Selection) -> Iterator[Finding]:
    """`ranks` are those whose steps are known."""
    steady_steps = min(
        ([step for step in rank.steps if step.steady] for rank in select_working_ranks(ranks)), key=len
    )
    steady = len(steady_steps)
    if steady >= ENOUGH_STEPS_COUNT:
        return
    chosen = _spell_selection(selection, "steps", "time")
    among = f" of {chosen}" if chosen else ""
    standing = (
        f"{anchor.window}s that are not steady are used instead"
        if chosen
        else f"all {anchor.window}s are used instead"
    )
    lengths_ns = sorted(step.end_ns - step.start_ns for step in steady_steps)
    verb = "is" if steady == 1 else "are"
    counted = f"Only {plural(steady, anchor.window)}{among} {verb} steady{_list_extremes(lengths_ns)}"
    said = f"No {anchor.window}{among} is steady, and {standing}" if steady == 0 else counted
    yield make_finding(
        FindingCode.FEW_STEPS,
        cure="" if chosen else None,
        said=said,
        marker=_name_marker(anchor),
    )


def _list_extremes(lengths_ns: list[int]) -> str:
    """Return the shortest and the longest of some lengths; empty for fewer than two.

    >>> _list_extremes([400_000, 19_000_000]), _list_extremes([5, 6, 7]), _list_extremes([5])
    (' (400.0 µs and 19.0 ms)', ' (5 ns to 7 ns)', '')
    """
    if len(lengths_ns) < 2:
        return ""
    low, high = duration(lengths_ns[0]), duration(lengths_ns[-1])
    return f" ({low} {'and' if len(lengths_ns) == 2 else 'to'} {high})"


def _name_marker(anchor: Anchor) -> str:
    if anchor.inner is None:
        return f"which is too few to show how much {anchor.window}s vary"
    return f"so variation is estimated from the {plural(anchor.inner.count, anchor.inner.unit)} inside"


def _find_time_outside(ranks: tuple[Rank, ...]) -> Iterator[Finding]:
    """Report time before the first and after the last step, which has no window."""
    is_most = any(
        rank.outside_ns + rank.after_ns > sum(step.end_ns - step.start_ns for step in rank.steps)
        for rank in ranks
    )
    before_ns = max(rank.outside_ns for rank in ranks)
    after_ns = max(rank.after_ns for rank in ranks)
    before = f"the {duration(before_ns)} from the first device operation to the first analyzed step or window"
    after = f"the {duration(after_ns)} from the last step to the last device operation"
    left_out = [text for text, time_ns in ((before, before_ns), (after, after_ns)) if time_ns]
    if left_out:
        yield make_finding(
            FindingCode.OUTSIDE_STEPS,
            severity=Severity.WARNING if is_most else Severity.INFO,
            covers_ns=before_ns + after_ns,
            times=" and ".join(left_out),
        )


def _left_out(trace: Trace) -> Iterator[Finding]:
    """Report ranks without data in the user's selection."""
    if trace.left_out == 0:
        return
    yield make_finding(
        FindingCode.RANKS_LEFT_OUT,
        ranks=plural(trace.left_out, "rank"),
        selection=_spell_selection(trace.selection, "steps", "time"),
    )


def _unmatched(ranks: tuple[Rank, ...], may_communicate: str | None, window: str) -> Iterator[Finding]:
    kernels = {kernel.name for rank in ranks for kernel in rank.unmatched_kernels}
    if not kernels:
        return
    is_one = len(kernels) == 1
    share = max(sum(kernel.share for kernel in rank.unmatched_kernels) for rank in ranks)
    counted = (
        "One kernel with an unrecognized name takes"
        if is_one
        else (f"{len(kernels):,} kernels with unrecognized names together take")
    )
    taken = (
        f"{'counts' if is_one else 'count'} as compute, because the capture has only one rank and device."
        if may_communicate is None
        else f"may compute or communicate, because this rank has peers ({may_communicate})."
    )
    yield make_finding(
        FindingCode.UNMATCHED_KERNELS,
        covers_ns=sum(kernel.work_ns for rank in ranks for kernel in rank.unmatched_kernels),
        counted=counted,
        share=percent(share),
        window=window,
        these="It" if is_one else "They",
        taken=taken,
    )


def _inferred_by_ranges(trace: Trace) -> Iterator[Finding]:
    """Report kernels that count as communication only by the ranges around their launches."""
    operations = trace.operations
    is_inferred = ~operations["matched"] & (operations["class"] == OperationClass.COMMUNICATION)
    if not is_inferred.any():
        return
    own = operations.filter(is_inferred)
    names = trace.capture.names["text"][own["name"].unique().sort()].sort().to_list()
    listed = ", ".join(f"'{shorten_kernel(name)}'" for name in names[:_MOST_NAMED])
    yield make_finding(
        FindingCode.COMMUNICATION_INFERRED,
        names=plural(len(names), "unrecognized kernel name"),
        listed=listed,
        more=", …" if len(names) > _MOST_NAMED else "",
        launches=plural(len(own), "launch"),
    )


def _find_silent_waits(trace: Trace) -> Iterator[Finding]:
    """Report calls and collectives that leave no row, where launched work waited long on an idle device."""
    windows_ns = int((trace.windows["end_ns"] - trace.windows["start_ns"]).to_numpy().sum())
    for one in find_silent_waits(trace.operations, trace.capture, trace.waits):
        held_ns = int(one.held_ns.sum())
        if held_ns >= SHARED_DEVICE_SHARE * windows_ns:
            yield _describe_silent_wait(one, held_ns, trace.capture.world_size)


def _describe_silent_wait(one: SilentlyHeld, held_ns: int, world_size: int | None) -> Finding:
    return make_finding(
        FindingCode.SILENT_WAITS,
        one.kind,
        covers_ns=held_ns,
        waits=plural(one.held_ns.size, "time"),
        time=duration(held_ns),
        asked=one.asked,
        count=f"{one.count:,}",
        size="" if world_size is None else f", world size {world_size:,}",
    )


def _find_neighbors(account: RankSummary, trace: Trace) -> Iterator[Finding]:
    """Report other processes of the export that ran while launched work of the rank waited on its GPU."""
    rank = account.rank
    is_own = pl.col("pid").eq_missing(rank.pid) & pl.col("device").eq_missing(rank.device)
    rank_id = int(trace.capture.ranks.filter(is_own)["rank_id"][0])
    windows = trace.windows.filter(pl.col("rank_id") == rank_id)
    windows_ns = int((windows["end_ns"] - windows["start_ns"]).to_numpy().sum())
    for one in find_neighbors(rank_id, trace.capture, trace.waits):
        if one.held_ns >= SHARED_DEVICE_SHARE * windows_ns:
            yield make_finding(
                FindingCode.OTHER_PROCESS,
                covers_ns=one.held_ns,
                process="another process" if one.pid is None else f"process {one.pid}",
                waits=plural(one.waits, "time"),
                time=duration(one.held_ns),
                operations=plural(one.count, "operation"),
            )


_REPORTED_BY = {
    UNATTRIBUTED_OPAQUE_GRAPH: {FindingCode.GRAPH_MODE_GRAPHS},
    UNATTRIBUTED_PROFILER: {FindingCode.PROFILER_OVERHEAD, FindingCode.UNPROFILED_STEP},
    UNRECOGNIZED: {FindingCode.UNMATCHED_KERNELS},
}
_UNRESOLVED = {
    FindingCode.OTHER_PROCESS,
    FindingCode.SILENT_WAITS,
    FindingCode.UNRESOLVED_WAITS,
    FindingCode.NO_API_CALLS,
    FindingCode.ORPHAN_OPERATIONS,
}


def find_attribution_limits(
    account: RankSummary, waits: Dependencies, trace: Trace, anchor: Anchor
) -> tuple[Finding, ...]:
    """Return limits of the statements about the diagnosed rank, the most severe first."""
    capture = trace.capture
    unresolved = [
        *_find_neighbors(account, trace),
        *_find_silent_waits(trace),
        *_unresolved_waits(account.rank, waits, capture, anchor.typical),
    ]
    opaque = {FindingCode.GRAPH_MODE_GRAPHS} if account.rank.typical.budget.opaque_graph else set()
    unknown = {FindingCode.UNMATCHED_KERNELS} if account.rank.unmatched_kernels else set()
    profiled = {FindingCode.UNPROFILED_STEP} if account.profiled.any() else set()
    codes = {finding.code for finding in (*unresolved, *capture.findings)} | opaque | unknown | profiled
    return (
        *find_missing_kernels(account),
        *unresolved,
        *_unattributed(account.rank, codes, anchor.typical),
        *_one_rank(account.rank, trace, anchor.typical),
        *find_one_gap(account.rank, anchor),
        *find_hidden_locks(account.rank, anchor),
        *report_slower_kernels(account.rank, anchor.unit),
        *_unfaithful(account, anchor),
    )


def find_missing_kernels(account: RankSummary) -> Iterator[Finding]:
    """Report that almost no kernel ran, so that no verdict is possible."""
    if not lacks_kernels(account):
        return
    yield make_finding(
        FindingCode.NO_KERNELS,
        cure="Analyze a time with kernels."
        if account.has_kernels_elsewhere
        else "Capture with --trace=cuda,nvtx while training runs on the GPU.",
    )


def _unresolved_waits(rank: Rank, waits: Dependencies, capture: Capture, whole: str) -> Iterator[Finding]:
    missing = waits.waits_seen - waits.waits_resolved
    if missing == 0:
        return
    open_ns = sum(entry.typical_ns for entry in rank.causes if entry.cause.endswith("/unresolved"))
    has_numbers = capture.events["event_sync"].drop_nulls().len() > 0
    share = percent(open_ns / max(rank.typical.step_ns, 1))
    effect = f"but all of the {whole} is accounted for"
    if open_ns:
        effect = f"so {duration(open_ns)} of the {whole} ({share}) is unexplained"
    # Since 2025.5 nsys writes which record of an event a wait refers to (eventSyncId).
    cure = "" if has_numbers else "Capture with nsys 2025.5 or later and --cuda-event-trace=true."
    yield make_finding(
        FindingCode.UNRESOLVED_WAITS,
        severity=Severity.WARNING if open_ns >= OVERTURNING_SHARE * rank.typical.step_ns else Severity.INFO,
        cure=cure,
        covers_ns=open_ns,
        missing=missing,
        waits=plural(waits.waits_seen, "wait"),
        effect=effect,
    )


def _unattributed(rank: Rank, codes: set[str], whole: str) -> Iterator[Finding]:
    """Report unattributed time that no other finding covers."""
    unreported = [
        entry
        for entry in rank.causes
        if (entry.unresolved_ns or entry.wall == Wall.UNATTRIBUTED)
        and codes.isdisjoint(_REPORTED_BY.get(entry.cause, _UNRESOLVED))
    ]
    open_ns = sum(entry.typical_ns for entry in unreported)
    step_ns = rank.typical.step_ns
    if not step_ns or open_ns < OVERTURNING_SHARE * step_ns:
        return
    yield make_finding(
        FindingCode.UNATTRIBUTED_TIME,
        covers_ns=open_ns,
        time=duration(open_ns),
        whole=whole,
        share=percent(open_ns / step_ns),
        causes=join_words([describe_cause(entry.cause) for entry in unreported], "and"),
    )


def _one_rank(rank: Rank, trace: Trace, whole: str) -> Iterator[Finding]:
    """Report that one rank cannot separate transfer from waiting, but for kernels that only wait."""
    capture, selection = trace.capture, trace.selection
    own_ns, step_ns = rank.typical.walls.communication, rank.typical.step_ns
    waiting_ns = sum(entry.typical_ns for entry in rank.causes if is_part(entry.cause))
    rest_ns = own_ns - waiting_ns
    if len(capture.ranks) > 1 or not step_ns or rest_ns < OVERTURNING_SHARE * step_ns:
        return
    is_chosen = selection.rank is not None or selection.device is not None or trace.left_out > 0
    world = capture.world_size
    counted = "only one rank" if world is None or world <= 1 else f"only 1 of {world} ranks"
    yield make_finding(
        FindingCode.ONE_RANK,
        "waits" if waiting_ns else "",
        cure="" if is_chosen else None,
        covers_ns=rest_ns,
        whole=whole,
        time=duration(own_ns),
        waiting=duration(waiting_ns),
        rest=duration(rest_ns),
        counted=counted,
    )


def _unfaithful(account: RankSummary, anchor: Anchor) -> Iterator[Finding]:
    """Report why there are no upper bounds; a capture without steps has its own finding."""
    rank, ceilings = account.rank, account.ceilings
    losses = [entry for entry in rank.causes if entry.wall not in {Wall.COMPUTE, Wall.UNATTRIBUTED}]
    has_losses = any(entry.share >= ASKED_CAUSE_SHARE and not entry.unresolved_ns for entry in losses)
    if not has_losses or anchor.kind == "whole-trace" or ceilings.recoverable_ns([]) is not None:
        return
    unit = anchor.unit
    text = (
        (
            f"No {unit} could be simulated, because the calls that issue the work at its edges are unknown."
            " There are therefore no upper bounds."
        )
        if ceilings.error is None
        else (
            f"The simulation of {plural(ceilings.step_count, unit)} differs from the capture by"
            f" {percent(ceilings.error)}, which is too much to give upper bounds."
        )
    )
    yield Finding(FindingCode.REPLAY_UNFAITHFUL, Severity.INFO, text)


def _find_log_limits(logged: LoggedSteps, facts: StepFacts, captured_ns: int) -> Iterator[Finding]:
    """Report that a log has no step time, or that it contradicts the capture or the options."""
    if logged.step_ns is None:
        yield make_finding(FindingCode.LOG_STEP_UNKNOWN, reason=logged.reason)
        return
    if logged.step_ns > (1 + LOG_CONTRADICTION_SHARE) * captured_ns > 0:
        yield make_finding(
            FindingCode.LOG_CONTRADICTION,
            "longer",
            logged=duration(logged.step_ns),
            captured=duration(captured_ns),
        )
    step_s = logged.step_ns / 1e9
    tokens, flops = (logged.tokens_per_s or 0) * step_s, (logged.flops_per_s or 0) * step_s
    if _differ(tokens, facts.tokens):
        yield make_finding(
            FindingCode.LOG_CONTRADICTION, "tokens", logged=number(round(tokens)), given=number(facts.tokens)
        )
    if _differ(flops, facts.flops):
        yield make_finding(
            FindingCode.LOG_CONTRADICTION,
            "flops",
            logged=f"{flops:.3g} FLOP",
            given=f"{facts.flops:.3g} FLOP",
        )


def _differ(by_log: float, given: float | None) -> bool:
    """Return whether two values of one quantity contradict each other; not if one of them is unknown."""
    return bool(by_log and given) and abs(by_log / (given or by_log) - 1) > LOG_CONTRADICTION_SHARE


def find_throughput_limits(anchor: Anchor, facts: StepFacts, rank: Rank) -> Iterator[Finding]:
    """Report facts about a step that are not used, or how an unprofiled one limits host time."""
    if facts == StepFacts():
        return
    if anchor.unit != "step":
        yield make_finding(FindingCode.THROUGHPUT_UNKNOWN, cure=MARK_STEPS)
        return
    unprofiled_ns, compute_ns = facts.unprofiled_step_ns, rank.typical.budget.compute
    if facts.logged is not None:
        yield from _find_log_limits(facts.logged, facts, rank.typical.step_ns)
    if unprofiled_ns is None or not rank.typical.step_ns:
        return
    profiled_ns = rank.typical.step_ns - unprofiled_ns
    if unprofiled_ns < compute_ns:
        yield make_finding(
            FindingCode.UNPROFILED_STEP,
            "short",
            unprofiled=duration(unprofiled_ns),
            compute=duration(compute_ns),
        )
    elif profiled_ns >= MATERIAL_SHARE * rank.typical.step_ns:
        host_ns = rank.typical.walls.host
        yield make_finding(
            FindingCode.UNPROFILED_STEP,
            "long",
            covers_ns=profiled_ns,
            unprofiled=duration(unprofiled_ns),
            compute=duration(compute_ns),
            host=duration(host_ns),
            share=percent(host_ns / unprofiled_ns),
            profiled=duration(profiled_ns),
        )

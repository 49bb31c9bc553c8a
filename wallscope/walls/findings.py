"""What the accounting itself has to say about the limits of its claims."""

from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.selection import Selection
from wallscope.thresholds import ENOUGH_STEPS_COUNT
from wallscope.units import duration, plural
from wallscope.walls.accounting import Divided
from wallscope.walls.verdict import working

MARK_STEPS = (
    "Mark steps with NVTX (Megatron Bridge: profiling.nvtx_ranges=true), or name a range: --step-range REGEX."
)
_GUESSED = {
    "kernel-sequence": "windows are the unit that the kernel sequence repeats",
    "optimizer": "windows begin behind bursts of optimizer kernels",
}


def accounting_findings(ranks: tuple[Rank, ...], anchor: Anchor, divided: Divided) -> tuple[Finding, ...]:
    """Limits that show only once time is accounted for, the gravest first.

    `ranks` are the accounts of what was divided, in the order of its ranks. What the user's own selection
    left out is said, and no other capture is asked for then.
    """
    unmarked = divided.unmarked_places()
    marked = tuple(rank for place, rank in enumerate(ranks) if place not in unmarked)
    return (
        *_opaque_graphs(ranks),
        *_steps(ranks, marked, anchor, divided.selection),
        *_left_out(divided),
        *_unmatched(ranks),
    )


def _opaque_graphs(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    opaque_ns = sum(rank.typical.budget.opaque_graph for rank in ranks)
    if opaque_ns == 0:
        return ()
    return (
        Finding(
            "graph-mode-graphs",
            Severity.WARNING,
            f"CUDA graphs were traced as a whole: what ran inside {duration(opaque_ns)} of replays is not in"
            " the export.",
            "Capture with --cuda-graph-trace=node.",
            covers_ns=opaque_ns,
        ),
    )


def _steps(
    ranks: tuple[Rank, ...], marked: tuple[Rank, ...], anchor: Anchor, selection: Selection
) -> tuple[Finding, ...]:
    if anchor.kind == "whole-trace":
        return _no_steps(ranks, selection)
    return (
        *_guessed(anchor),
        *_disagreement(anchor),
        *_unmarked(ranks, marked),
        *_few_steps(marked or ranks, anchor, selection),
        *_outside(ranks),
    )


def _no_steps(ranks: tuple[Rank, ...], selection: Selection) -> tuple[Finding, ...]:
    where = "" if _is_all_ranks(selection) else f" on the ranks of {selection.spelled('rank', 'device')}"
    if selection.time_ns is None:
        window = "the whole capture is one window, start-up and what lies between steps included"
    else:
        window = f"the time of {selection.spelled('time')} is one window"
    return (
        Finding(
            "no-steps",
            Severity.WARNING,
            f"No step was found{where}: {window}.",
            MARK_STEPS if _is_all_ranks(selection) else "",
            covers_ns=max(rank.typical.step_ns for rank in ranks),
        ),
    )


def _is_all_ranks(selection: Selection) -> bool:
    return selection.rank is None and selection.device is None


def _guessed(anchor: Anchor) -> tuple[Finding, ...]:
    """No range marks the steps."""
    if anchor.kind not in _GUESSED:
        return ()
    said = f"No range marks the steps: {_GUESSED[anchor.kind]}"
    if anchor.kind == "kernel-sequence":
        is_unsure = anchor.unit == "window"
        said += "; whether it is a step or a layer cannot be told" if is_unsure else "; it holds layers"
    severity = Severity.WARNING if anchor.kind == "kernel-sequence" else Severity.INFO
    return (Finding("unmarked-steps", severity, f"{said}.", MARK_STEPS),)


def _disagreement(anchor: Anchor) -> tuple[Finding, ...]:
    check = anchor.cross_check
    if check is None or check.agrees:
        return ()
    says = "Bursts of optimizer kernels give" if anchor.kind == "optimizer" else "The ranges say"
    is_named = anchor.kind == "user"
    return (
        Finding(
            "anchors-disagree",
            Severity.WARNING,
            f"{says} {plural(anchor.steps, 'step')}, the kernel sequence repeats"
            f" {plural(check.steps, 'time')}.",
            "See whether --step-range finds each step once."
            if is_named
            else "Name the range that is a step: --step-range REGEX.",
        ),
    )


def _unmarked(ranks: tuple[Rank, ...], marked: tuple[Rank, ...]) -> tuple[Finding, ...]:
    """Working ranks that lack what marks the steps of the others."""
    lacking = [rank for rank in working(ranks) if not any(rank is other for other in marked)]
    if not lacking:
        return ()
    verb = "lacks" if len(lacking) == 1 else "lack"
    return (
        Finding(
            "ranks-without-steps",
            Severity.WARNING,
            f"{plural(len(lacking), 'rank')} of {len(ranks)} {verb} what marks the steps of the busiest one:"
            " all that such a rank did is one window.",
            "Mark the steps of every rank with NVTX.",
            covers_ns=max(rank.typical.step_ns for rank in lacking),
        ),
    )


def _few_steps(ranks: tuple[Rank, ...], anchor: Anchor, selection: Selection) -> tuple[Finding, ...]:
    """`ranks` are those whose steps are known."""
    steady = min(sum(step.steady for step in rank.steps) for rank in working(ranks))
    if steady >= ENOUGH_STEPS_COUNT:
        return ()
    chosen = selection.spelled("steps", "time")
    among = f" of {chosen}" if chosen else ""
    standing = "those that are not stand in" if chosen else "all of them stand in"
    counted = f"Only {plural(steady, 'steady window')}{among}"
    said = f"No window{among} is steady: {standing}" if steady == 0 else counted
    return (
        Finding(
            "few-steps",
            Severity.WARNING,
            f"{said}: what varies from step to step {_told_by(anchor)}.",
            ""
            if chosen
            else "Capture 8 steps or more beyond warm-up"
            " (Megatron Bridge: profile_step_start, profile_step_end).",
        ),
    )


def _told_by(anchor: Anchor) -> str:
    if anchor.inner is None:
        return "cannot be told"
    return f"is told by {plural(anchor.inner.count, anchor.inner.unit)} inside"


def _outside(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    """What lies before the first step has no window."""
    outside_ns = max(rank.outside_ns for rank in ranks)
    if outside_ns == 0:
        return ()
    return (
        Finding(
            "outside-steps",
            Severity.INFO,
            f"{duration(outside_ns)} between the first device operation and the first step are in no window.",
            covers_ns=outside_ns,
        ),
    )


def _left_out(divided: Divided) -> tuple[Finding, ...]:
    """Ranks that have nothing of what the user selected."""
    if divided.left_out == 0:
        return ()
    return (
        Finding(
            "ranks-left-out",
            Severity.INFO,
            f"{plural(divided.left_out, 'rank')} left out: no window of"
            f" {divided.selection.spelled('steps', 'time')} there.",
        ),
    )


def _unmatched(ranks: tuple[Rank, ...]) -> tuple[Finding, ...]:
    kernels = {kernel.name for rank in ranks for kernel in rank.unmatched_kernels}
    if not kernels:
        return ()
    return (
        Finding(
            "unmatched-kernels",
            Severity.INFO,
            f"{plural(len(kernels), 'kernel name')} over 1 % of the window known to no pattern:"
            " counted as compute of category other.",
            "Name them in a file of rules: --kernels FILE.",
            covers_ns=sum(kernel.work_ns for rank in ranks for kernel in rank.unmatched_kernels),
        ),
    )

"""What could not be told of the binding chain, and why there is no ceiling."""

from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Capture, Finding, Severity
from wallscope.model.kinds import Wall
from wallscope.thresholds import ASKED_CAUSE_SHARE, OVERTURNING_SHARE
from wallscope.timeline.dependencies import Dependencies
from wallscope.units import duration, percent, plural
from wallscope.walls.accounting import Account, Divided

_TOLD_ELSEWHERE = {
    "unattributed/opaque-graph": {"graph-mode-graphs"},
    "unattributed/profiler": {"profiler-overhead"},
}
_UNRESOLVED = {"unresolved-waits", "no-api-calls", "orphan-operations"}


def chain_findings(
    account: Account, waits: Dependencies, divided: Divided, anchor: Anchor
) -> tuple[Finding, ...]:
    """Limits of what is said of the rank that the diagnosis speaks of, the gravest first."""
    capture = divided.capture
    unresolved = _unresolved_waits(account.rank, waits, capture, anchor.typical)
    opaque = {"graph-mode-graphs"} if account.rank.typical.budget.opaque_graph else set()
    codes = {finding.code for finding in (*unresolved, *capture.findings)} | opaque
    return (
        *unresolved,
        *_unattributed(account.rank, codes, anchor.typical),
        *_one_rank(account.rank, divided, anchor.typical),
        *_unfaithful(account, anchor),
    )


def _unresolved_waits(rank: Rank, waits: Dependencies, capture: Capture, whole: str) -> tuple[Finding, ...]:
    missing = waits.waits_seen - waits.waits_resolved
    if missing == 0:
        return ()
    open_ns = sum(entry.typical_ns for entry in rank.causes if entry.cause.endswith("/unresolved"))
    has_numbers = capture.events["event_sync"].drop_nulls().len() > 0
    owns = f": {duration(open_ns)} of the {whole} has no owner for that" if open_ns else ""
    # nsys writes which record of an event a wait means (eventSyncId) since 2025.5
    cure = "" if has_numbers else "Capture with nsys 2025.5 or later and --cuda-event-trace=true."
    return (
        Finding(
            "unresolved-waits",
            Severity.WARNING if open_ns >= OVERTURNING_SHARE * rank.typical.step_ns else Severity.INFO,
            f"What {missing:,} of {plural(waits.waits_seen, 'wait')} waited for is not known{owns}.",
            cure,
            covers_ns=open_ns,
        ),
    )


def _unattributed(rank: Rank, codes: set[str], whole: str) -> tuple[Finding, ...]:
    """Time without an owner that no other finding speaks of."""
    untold = [
        entry
        for entry in rank.causes
        if (entry.unresolved_ns or entry.wall == Wall.UNATTRIBUTED)
        and codes.isdisjoint(_TOLD_ELSEWHERE.get(entry.cause, _UNRESOLVED))
    ]
    open_ns = sum(entry.typical_ns for entry in untold)
    step_ns = rank.typical.step_ns
    if not step_ns or open_ns < OVERTURNING_SHARE * step_ns:
        return ()
    return (
        Finding(
            "unattributed-time",
            Severity.WARNING,
            f"{duration(open_ns)} of the {whole}, {percent(open_ns / step_ns)}, has no owner:"
            f" {', '.join(entry.cause for entry in untold)}.",
            covers_ns=open_ns,
        ),
    )


def _one_rank(rank: Rank, divided: Divided, whole: str) -> tuple[Finding, ...]:
    """A collective ends when its last participant comes: one rank does not tell transfer from waiting."""
    capture, selection = divided.capture, divided.selection
    own_ns, step_ns = rank.typical.walls.communication, rank.typical.step_ns
    if len(capture.ranks) > 1 or not step_ns or own_ns < OVERTURNING_SHARE * step_ns:
        return ()
    is_chosen = selection.rank is not None or selection.device is not None or divided.left_out > 0
    of_all = "" if capture.world_size is None or capture.world_size <= 1 else f" of {capture.world_size}"
    return (
        Finding(
            "one-rank",
            Severity.INFO,
            f"Communication owns {duration(own_ns)} of the {whole}, told by one rank{of_all}: moving"
            " data and waiting for peers cannot be told apart.",
            "" if is_chosen else "Capture all ranks.",
            covers_ns=own_ns,
        ),
    )


def _unfaithful(account: Account, anchor: Anchor) -> tuple[Finding, ...]:
    """Why no ceiling is given; a capture without steps has its own finding."""
    rank, ceilings = account.rank, account.ceilings
    losses = [entry for entry in rank.causes if entry.wall not in {Wall.COMPUTE, Wall.UNATTRIBUTED}]
    is_asked = any(entry.share >= ASKED_CAUSE_SHARE and not entry.unresolved_ns for entry in losses)
    if not is_asked or anchor.kind == "whole-trace" or ceilings.recoverable_ns([]) is not None:
        return ()
    unit = anchor.unit
    told = (
        f"No {unit} could be played again, for no known call issues the work at its edges: no ceilings."
        if ceilings.error is None
        else f"{plural(ceilings.step_count, unit)} played again by the dependencies that are known came"
        f" out {percent(ceilings.error)} off the capture: too far to give ceilings."
    )
    return (Finding("replay-unfaithful", Severity.INFO, told),)

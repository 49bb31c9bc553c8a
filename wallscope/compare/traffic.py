"""Communication of both sides by axis: volume, exposure, what is hidden, waiting for peers."""

from collections.abc import Sequence

from wallscope.compare.typical import Ran, TypicalStep, total
from wallscope.model.comparison import CommunicationChange
from wallscope.model.kinds import Axis


def communication_changes(base: TypicalStep, head: TypicalStep) -> tuple[CommunicationChange, ...]:
    """A row an axis that either side has, in the order of the axes."""
    return tuple(_change(axis, base, head) for axis in Axis if _parts(base, axis) or _parts(head, axis))


def _parts(step: TypicalStep, axis: Axis) -> list[Ran]:
    return [ran for key, ran in step.ran.items() if key.axis == axis]


def _change(axis: Axis, base: TypicalStep, head: TypicalStep) -> CommunicationChange:
    ours, theirs = total(_parts(base, axis)), total(_parts(head, axis))
    waits = [_owned_ns(step, (f"communication/{axis}/peer-wait",)) for step in (base, head)]
    owned = [_owned_ns(step, (f"communication/{axis}/",)) for step in (base, head)]
    return CommunicationChange(
        axis=axis,
        base_count=float(ours.count),
        head_count=float(theirs.count),
        base_bytes=None if ours.bytes is None else round(ours.bytes),
        head_bytes=None if theirs.bytes is None else round(theirs.bytes),
        base_work_ns=round(ours.work_ns),
        head_work_ns=round(theirs.work_ns),
        base_exposed_ns=round(ours.exposed_ns or 0),
        head_exposed_ns=round(theirs.exposed_ns or 0),
        base_hidden_share=_hidden(ours),
        head_hidden_share=_hidden(theirs),
        peer_wait_delta_ns=waits[1] - waits[0],
        delta_ns=owned[1] - owned[0],
    )


def _hidden(ran: Ran) -> float | None:
    if not ran.work_ns or ran.exposed_ns is None:
        return None
    return float(1 - ran.exposed_ns / ran.work_ns)


def _owned_ns(step: TypicalStep, prefixes: Sequence[str]) -> int:
    return sum(ns for cause, ns in step.causes.items() if cause.startswith(tuple(prefixes)))

"""Changes that are recognized: fixes that were undone or made, put first; then what else explains most."""

from collections.abc import Callable, Iterator, Sequence

from wallscope.compare.comparability import HIDDEN, is_opaque
from wallscope.compare.kernel_changes import explain_kernels
from wallscope.compare.typical_steps import Key, TypicalStep
from wallscope.model.comparison import CommunicationChange, Explanation, Mismatch, StepChange
from wallscope.thresholds.verdict import (
    EXPLAINED_SHARE,
    HIDDEN_CHANGE_SHARE,
    MORE_SLOW_STEPS_COUNT,
    MORE_SLOW_STEPS_SHARE,
    MORE_VOLUME_RATIO,
)
from wallscope.units import percent

SLOW_STEPS = "slow-steps"
_OVERLAPPED_PATH = "layer_#f-layer_#b"
_LAUNCHING = ("host/launch-call", "host/launch-latency", "host/framework")


def explain_changes(
    base: TypicalStep,
    head: TypicalStep,
    traffic: Sequence[CommunicationChange],
    found: Sequence[Mismatch],
    step: StepChange,
) -> tuple[Explanation, ...]:
    """Return what is recognized, fixes first, each by the size of its change; nothing of like sides."""
    opaque = [*_opaque(base, head)]
    fixes = [
        *_overlap(base, head, traffic),
        *_graphs(base, head, found),
        *explain_kernels(base, head),
        *_transport(base, head, found),
    ]
    rest = [*_drains(base, head), *_volume(base, head, traffic), *_slow_steps(step)]
    return (*opaque, *sorted(fixes, key=_size, reverse=True), *sorted(rest, key=_size, reverse=True))


def _size(entry: Explanation) -> int:
    return abs(entry.delta_ns or 0)


def _opaque(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain graphs traced as a whole on one side: its kernels are unknown, so walls cannot be compared."""
    if is_opaque(base) == is_opaque(head):
        return
    side = "head" if is_opaque(head) else "base"
    text = (
        f"Kernels of {side} are hidden in CUDA graphs traced as a whole, so the step can be compared and its"
        " walls cannot: capture both with --cuda-graph-trace=node"
    )
    yield Explanation("opaque-graphs", text, None)


def _overlap(
    base: TypicalStep, head: TypicalStep, traffic: Sequence[CommunicationChange]
) -> Iterator[Explanation]:
    for row in traffic:
        if row.base_hidden_share is None or row.head_hidden_share is None:
            continue
        if abs(row.head_hidden_share - row.base_hidden_share) < HIDDEN_CHANGE_SHARE:
            continue
        is_lost = row.head_hidden_share < row.base_hidden_share
        text = (
            f"Compute hides {'less' if is_lost else 'more'} of the {row.axis} communication:"
            f" {percent(row.base_hidden_share)} → {percent(row.head_hidden_share)}"
        )
        gone = [side for side in (base, head) if not _has_path(side, _OVERLAPPED_PATH)]
        if row.axis == "ep" and len(gone) == 1:
            side = "head" if gone[0] is head else "base"
            text += f"; EP overlap is off in {side} (no {_OVERLAPPED_PATH} ranges)"
        code = f"{row.axis}-overlap-{'lost' if is_lost else 'gained'}"
        yield Explanation(code, text, row.delta_ns, _list_causes(base, head, f"communication/{row.axis}/"))


def _list_causes(base: TypicalStep, head: TypicalStep, *prefixes: str) -> tuple[str, ...]:
    """Return the causes of either side that begin so."""
    return tuple(sorted(cause for cause in {*base.causes, *head.causes} if cause.startswith(prefixes)))


def _has_path(step: TypicalStep, part: str) -> bool:
    return any(part in key.path for key in step.ran)


def _graphs(base: TypicalStep, head: TypicalStep, found: Sequence[Mismatch]) -> Iterator[Explanation]:
    for entry in found:
        if entry.what == "CUDA graphs" and "none" in {entry.base, entry.head}:
            is_gone = entry.head == "none"
            side = "base" if is_gone else "head"
            delta_ns = _sum(head, _is_launching) - _sum(base, _is_launching)
            text = f"CUDA graphs run in {side} only"
            if delta_ns:
                text += "; the change is that of launches on the host"
            code = f"cuda-graphs-{'gone' if is_gone else 'new'}"
            yield Explanation(code, text, delta_ns or None, _list_causes(base, head, *_LAUNCHING))


def _is_launching(cause: str, _: Key) -> bool:
    return cause in _LAUNCHING


def _transport(base: TypicalStep, head: TypicalStep, found: Sequence[Mismatch]) -> Iterator[Explanation]:
    for entry in found:
        if entry.what == "EP transport" and HIDDEN not in {entry.base, entry.head}:
            delta_ns = _sum(head, _is_dispatching) - _sum(base, _is_dispatching)
            text = f"The token dispatcher went from {entry.base} to {entry.head}"
            causes = _list_causes(base, head, "communication/ep/", "compute/dispatcher-local")
            yield Explanation("dispatcher-changed", text, delta_ns, causes)


def _is_dispatching(cause: str, _: Key) -> bool:
    return cause.startswith("communication/ep/") or cause == "compute/dispatcher-local"


def _drains(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain calls that drain the queue on one side alone."""
    drains = [
        {cause for cause in step.causes if cause.startswith("host/queue-drained/")} for step in (base, head)
    ]
    for cause in sorted(drains[0] ^ drains[1]):
        delta_ns = head.causes.get(cause, 0) - base.causes.get(cause, 0)
        if abs(delta_ns) >= EXPLAINED_SHARE * base.step_ns:
            side = "head" if delta_ns > 0 else "base"
            text = f"The GPU is idle after {cause.rpartition('/')[2]} in {side} only"
            yield Explanation(f"queue-drain-{'new' if delta_ns > 0 else 'gone'}", text, delta_ns, (cause,))


def _volume(
    base: TypicalStep, head: TypicalStep, traffic: Sequence[CommunicationChange]
) -> Iterator[Explanation]:
    for row in traffic:
        if not row.base_bytes or not row.head_bytes:
            continue
        ratio = row.head_bytes / row.base_bytes
        if max(ratio, 1 / ratio) > MORE_VOLUME_RATIO:
            text = f"{row.axis} communication moves {ratio:.2f}x the bytes of base"
            causes = _list_causes(base, head, f"communication/{row.axis}/")
            yield Explanation(f"{row.axis}-volume", text, row.delta_ns, causes)


def _slow_steps(step: StepChange) -> Iterator[Explanation]:
    """Explain slow steps that the typical step leaves out, unless it includes most of them."""
    shares = (step.base_slow_steps / step.base_steps, step.head_slow_steps / step.head_steps)
    more = abs(step.head_slow_steps - step.base_slow_steps)
    if abs(shares[1] - shares[0]) < MORE_SLOW_STEPS_SHARE or more < MORE_SLOW_STEPS_COUNT:
        return
    beyond = (step.head_mean_ns - step.head_typical_ns) - (step.base_mean_ns - step.base_typical_ns)
    if beyond * (shares[1] - shares[0]) <= 0:
        return
    text = (
        f"Slow steps (over 1.25x the median), which the typical step leaves out: {step.base_slow_steps} of"
        f" {step.base_steps} in base, {step.head_slow_steps} of {step.head_steps} in head"
    )
    yield Explanation(SLOW_STEPS, text, beyond)


def _sum(step: TypicalStep, is_meant: Callable[[str, Key], bool]) -> int:
    return sum(time_ns for (cause, key), time_ns in step.owned.items() if is_meant(cause, key))

"""What the numbers say, in one paragraph."""

from wallscope.model.analysis import Anchor, Rank
from wallscope.model.kinds import DeviceState
from wallscope.units import duration, percent

_SPENT = {
    DeviceState.COMPUTE: "compute",
    DeviceState.OPAQUE_GRAPH: "CUDA graphs of unknown content",
    DeviceState.EXPOSED_COMMUNICATION: "exposed communication",
    DeviceState.EXPOSED_COPY: "exposed copies",
    DeviceState.IDLE: "idle",
}


def working(ranks: tuple[Rank, ...]) -> tuple[Rank, ...]:
    """The ranks that compute at least a tenth of what the busiest one does; all, if none computes.

    A process may leave a stray context on a device that it does not train on.
    """
    computed_ns = [
        sum(step.budget.compute + step.budget.opaque_graph for step in rank.steps) for rank in ranks
    ]
    return tuple(
        rank for rank, time_ns in zip(ranks, computed_ns, strict=True) if 10 * time_ns >= max(computed_ns)
    )


def least_computing(ranks: tuple[Rank, ...]) -> Rank:
    """Of the working ranks the one that computed for the smallest share of its step; the first of equals."""
    return min(working(ranks), key=lambda rank: rank.typical.budget.compute / max(rank.typical.step_ns, 1))


def verdict(ranks: tuple[Rank, ...], anchor: Anchor) -> str:
    """How the device of the least computing rank spent its typical step; no wall is named yet."""
    rank = least_computing(ranks)
    step_ns = rank.typical.step_ns
    spent = {what: getattr(rank.typical.budget, state) for state, what in _SPENT.items()}
    parts = ", ".join(
        f"{percent(time_ns / step_ns)} {what}"
        for what, time_ns in sorted(spent.items(), key=lambda entry: -entry[1])
        if time_ns
    )
    what = "whole capture" if anchor.kind == "whole-trace" else f"typical {anchor.unit}"
    count = len(working(ranks))
    whose = "" if count == 1 else f", on the device that computed least of {count}"
    return f"{duration(step_ns)} in the {what}{whose}: {parts or 'nothing that takes time'}."

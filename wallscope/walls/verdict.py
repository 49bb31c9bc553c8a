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


def least_computing(ranks: tuple[Rank, ...]) -> Rank:
    """The rank that computed for the smallest share of its window; the first of equals."""
    return min(ranks, key=lambda rank: rank.typical.budget.compute / max(rank.typical.step_ns, 1))


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
    whose = "" if len(ranks) == 1 else f", on the device that computed least of {len(ranks)}"
    return f"{duration(step_ns)} in the {what}{whose}: {parts or 'nothing that takes time'}."

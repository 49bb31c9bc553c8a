"""Gates: what must not be, as a user writes it, `step>3%` or `host/framework>2ms`."""

import re

from wallscope.errors import OptionError
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import drop_detail
from wallscope.model.comparison import CauseDelta, Deltas, GateResult, StepChange, Verdict, WallDelta
from wallscope.model.enums import Wall
from wallscope.records import dataclass
from wallscope.units import duration, percent, signed_duration, signed_percent

_UNITS_NS = {"ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_WORDS = ("regression", "inconclusive")
_ALL_STEPS = ("mean", "p90")
_SLOW = "slow-steps"
_LIMIT = re.compile(r"\s*([a-z][a-zA-Z0-9_/.:-]*)\s*>\s*(\d+(?:\.\d+)?)\s*(%|ns|us|µs|ms|s)\s*")
_COUNT = re.compile(rf"\s*{_SLOW}\s*>\s*(\d+)\s*")


@dataclass(frozen=True, slots=True)
class Gate:
    """A limit on the step, a wall or a cause, as a share of the step or in ns; or a verdict not to have.

    `slow-steps` has a count.
    """

    text: str
    name: str
    share: float | None = None
    limit_ns: int | None = None
    count: int | None = None

    def is_past(self, time_ns: int, step_ns: int) -> bool:
        """Return whether a time is past the limit."""
        if self.share is not None:
            return time_ns > self.share * step_ns
        return self.limit_ns is not None and time_ns > self.limit_ns


def parse_gate(text: str, where: str | None = None) -> Gate:
    """Parse a gate as a user writes it; `where` names it in errors, without its text.

    Raises:
        OptionError: it cannot be read, or names no wall or cause.

    >>> parse_gate("communication>5%").share, parse_gate("host/framework > 2ms").limit_ns
    (0.05, 2000000)
    """
    if text.strip() in _WORDS:
        return Gate(text.strip(), text.strip())
    if (count := _COUNT.fullmatch(text)) is not None:
        return Gate(text.strip(), _SLOW, count=int(count[1]))
    found = _LIMIT.fullmatch(text)
    names = {"step", *_ALL_STEPS, *map(str, Wall)}
    if found is None or found[1].partition("/")[0] not in names:
        raise OptionError(
            f"{where or f'--fail-on {text}'} — is not a gate — write step>3%, mean>3%, p90>5%, slow-steps>2,"
            " communication>5%, host/framework>2ms or inconclusive"
        )
    name, number, unit = found.groups()
    if unit == "%":
        return Gate(text.strip(), name, share=float(number) / 100)
    return Gate(text.strip(), name, limit_ns=round(float(number) * _UNITS_NS[unit]))


def evaluate_gates(
    gates: tuple[Gate, ...], verdict: Verdict, step: StepChange, deltas: Deltas
) -> tuple[GateResult, ...]:
    """Return the result of each gate: it fails if an increase is above its limit and its interval above 0."""
    return tuple(_evaluate(gate, verdict, step, deltas) for gate in gates)


def _evaluate(gate: Gate, verdict: Verdict, step: StepChange, deltas: Deltas) -> GateResult:
    if gate.name in _WORDS:
        return GateResult(gate.text, verdict != gate.name, None, f"the verdict is {verdict}")
    if gate.name == "step":
        is_sure = step.compared_low is not None and step.compared_low > 1
        held = not (is_sure and gate.is_past(step.change_ns, step.base_ns))
        return GateResult(gate.text, held, _value(gate, step.change_ns, step.base_ns), _step_evidence(step))
    if gate.name in _ALL_STEPS:
        return _evaluate_all_steps(gate, step)
    if gate.count is not None:
        return _evaluate_slow_steps(gate, gate.count, step)
    rows: dict[str, WallDelta | CauseDelta] = {str(entry.wall): entry for entry in deltas.walls}
    rows |= {entry.cause: entry for entry in deltas.causes}
    found = rows.get(gate.name)
    delta_ns = found.delta_ns if found else 0
    low_ns = found.low_ns if found else None
    held = not (low_ns is not None and low_ns > 0 and gate.is_past(delta_ns, step.base_ns))
    share = signed_percent(delta_ns / step.base_ns) if step.base_ns else "unknown"
    evidence = f"{gate.name} {signed_duration(delta_ns)}, {share} of base's step"
    if found:
        evidence = (
            f"{gate.name} {duration(found.base_ns)} → {duration(found.head_ns)},"
            f" {signed_duration(delta_ns)}, {share} of base's step"
        )
        if low_ns is not None and found.high_ns is not None:
            evidence += f" (95 % interval {signed_duration(low_ns)} … {signed_duration(found.high_ns)})"
    return GateResult(gate.text, held, _value(gate, delta_ns, step.base_ns), evidence)


def _evaluate_all_steps(gate: Gate, step: StepChange) -> GateResult:
    """Evaluate a gate on the mean or p90 of all steps that count."""
    mean = (step.base_mean_ns, step.head_mean_ns, step.mean_ratio_low, step.mean_ratio_high)
    p90 = (step.base_p90_ns, step.head_p90_ns, step.p90_ratio_low, step.p90_ratio_high)
    base_ns, head_ns, low, high = mean if gate.name == "mean" else p90
    held = not (low is not None and low > 1 and gate.is_past(head_ns - base_ns, base_ns))
    interval = "no interval"
    if low is not None and high is not None:
        interval = f"95 % interval {signed_percent(low - 1)} … {signed_percent(high - 1)}"
    ratio = head_ns / base_ns - 1 if base_ns else 0.0
    evidence = (
        f"{gate.name} of all steps {duration(base_ns)} → {duration(head_ns)},"
        f" {signed_percent(ratio)} ({interval})"
    )
    return GateResult(gate.text, held, float(head_ns - base_ns) if gate.share is None else ratio, evidence)


def _evaluate_slow_steps(gate: Gate, count: int, step: StepChange) -> GateResult:
    """Evaluate a gate on how many more slow steps head has, of as many steps as base has."""
    share = step.base_steps / max(step.head_steps, 1)
    more = step.head_slow_steps * share - step.base_slow_steps
    is_sure = step.slow_steps_chance <= 1 - step.confidence
    evidence = (
        f"slow steps {step.base_slow_steps} of {step.base_steps} →"
        f" {step.head_slow_steps} of {step.head_steps} (by chance as uneven in"
        f" {percent(step.slow_steps_chance)})"
    )
    return GateResult(gate.text, not (is_sure and more > count), more, evidence)


def _step_evidence(step: StepChange) -> str:
    name = "mean step" if step.compared == "mean" else "step"
    text = (
        f"{name} {duration(step.base_ns)} → {duration(step.head_ns)},"
        f" {signed_percent(step.compared_ratio - 1)}"
    )
    low, high = step.compared_low, step.compared_high
    if low is None or high is None:
        return f"{text} (no interval)"
    return f"{text} (95 % interval {signed_percent(low - 1)} … {signed_percent(high - 1)})"


def _value(gate: Gate, time_ns: int, whole_ns: int) -> float:
    if gate.share is None:
        return float(time_ns)
    return time_ns / whole_ns if whole_ns else 0.0


def evaluate_gates_alone(gates: tuple[Gate, ...], analysis: Analysis) -> tuple[GateResult, ...]:
    """Return the result of gates on one analysis: limits on the typical step, its walls and causes.

    Raises:
        OptionError: a gate asks for a verdict that only a comparison has, or for a share of the whole step.
    """
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    return tuple(_evaluate_alone(gate, rank) for gate in gates)


def _evaluate_alone(gate: Gate, rank: Rank) -> GateResult:
    needs_two = gate.name in {*_WORDS, *_ALL_STEPS, _SLOW}
    if needs_two or (gate.name == "step" and gate.share is not None):
        raise OptionError(
            f"--fail-on {gate.text} — needs two sides to compare — gate a share or a time of one step, as"
            " unattributed>5% or step>400ms"
        )
    step_ns = rank.typical.step_ns
    times = {"step": step_ns} | dict(zip(map(str, Wall), rank.typical.walls.parts(), strict=True))
    for entry in rank.causes:
        for name in {entry.cause, drop_detail(entry.cause)}:
            times[name] = times.get(name, 0) + entry.typical_ns
    time_ns = times.get(gate.name, 0)
    share = time_ns / step_ns if step_ns else 0.0
    evidence = f"{gate.name} {duration(time_ns)}, {percent(share)} of the typical step"
    value = float(time_ns) if gate.share is None else share
    return GateResult(gate.text, not gate.is_past(time_ns, step_ns), value, evidence)

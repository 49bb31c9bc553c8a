"""Settings of a configuration file: those already set need no advice, and some have no visible effect."""

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from wallscope.advice.conditions import Condition
from wallscope.advice.preconditions import Row, features, judge_preconditions, precondition_rows
from wallscope.advice.settings import parse_value, vocabulary
from wallscope.model.advice import RunConfiguration, Setting, TraceFacts
from wallscope.model.analysis import Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.enums import Axis
from wallscope.thresholds.verdict import INEFFECTIVE_OVERLAP_SHARE
from wallscope.units import percent

_OVERLAPS: Mapping[str, Axis] = {
    "overlap_moe_expert_parallel_comm": Axis.EP,
    "overlap_grad_reduce": Axis.DP_GRADIENT,
    "overlap_param_gather": Axis.DP_PARAMETER,
    "tp_comm_overlap": Axis.TP,
}
"""Settings that hide communication, and the axis of that communication."""

_MOST_OBSTACLES = 2
_SIZES = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")


def find_ineffective(
    written: RunConfiguration, configuration: RunConfiguration, trace: TraceFacts, rank: Rank
) -> dict[str, Finding]:
    """Return findings by name about overlaps that are on while their communication is exposed.

    Args:
        written: the settings of the file.
        configuration: those with what the trace shows, which counts.
        trace: what the trace shows of machine and run.
        rank: the representative rank.
    """
    return dict(_find_ineffective(written, configuration, trace, rank))


def _find_ineffective(
    written: RunConfiguration, configuration: RunConfiguration, trace: TraceFacts, rank: Rank
) -> Iterator[tuple[str, Finding]]:
    for name, axis in _OVERLAPS.items():
        operations = [one for one in rank.communication.operations if one.axis is axis]
        work_ns = sum(one.work_ns for one in operations)
        exposed_ns = sum(one.exposed_ns for one in operations)
        if written.get(name) is not True or not work_ns:
            continue
        share = min(exposed_ns / work_ns, 1.0)
        if share >= INEFFECTIVE_OVERLAP_SHARE:
            yield (
                name,
                Finding(
                    "configuration-ineffective",
                    Severity.WARNING,
                    f"{written.settings[name].source} is on, and {percent(share)} of the {axis} communication"
                    " is still exposed",
                    "; ".join(_list_obstacles(name, configuration, trace)) or "check the log for a fallback",
                ),
            )


def _list_obstacles(name: str, configuration: RunConfiguration, trace: TraceFacts) -> list[str]:
    """Return what would have to change for an overlap, if the file or the trace shows it."""
    ids = [row.id for row in precondition_rows().values() if any(one.key == name for one in _switches(row))]
    judged = judge_preconditions(ids, configuration, trace)
    return [row.unblock for row in judged if row.status == "unmet" and row.unblock][:_MOST_OBSTACLES]


def _switches(row: Row) -> list[Condition]:
    on = next(feature.on for feature in features() if feature.id == row.feature)
    return [one for clause in (*on, *row.when) if len(clause) == 1 for one in clause]


def list_impossible_sizes(written: RunConfiguration, trace: TraceFacts) -> tuple[Finding, ...]:
    """Return a finding if the sizes of the file do not divide the ranks of the trace."""
    sizes = [written.get(name) for name in _SIZES]
    numbers = [size for size in sizes if isinstance(size, int)]
    if trace.world_size is None or not numbers or trace.world_size % prod(numbers) == 0:
        return ()
    source = next(written.settings[name].source for name in _SIZES if written.knows(name))
    return (
        Finding(
            "configuration-contradicted",
            Severity.WARNING,
            f"{source.partition(':')[0]} has TP x PP x CP = {prod(numbers)}, which does not divide the"
            f" {trace.world_size} ranks of the trace",
            "check that the file belongs to this run",
        ),
    )


def is_set(setting: Setting, written: RunConfiguration) -> bool:
    """Return whether a configuration file has the value that a fix recommends."""
    name = vocabulary().name(setting.key)
    if name is None or not written.knows(name):
        return False
    try:
        return parse_value(name, setting.value or "true") == written.get(name)
    except ValueError:
        return False


def is_done(settings: Iterable[Setting], configuration: RunConfiguration) -> bool:
    """Return whether a configuration has all settings of a fix that is only about Megatron."""
    found = list(settings)
    return bool(found) and all(
        one.system in {"megatron-bridge", "megatron-lm"} and is_set(one, configuration) for one in found
    )

"""What a rule may ask of a run: a closed set of measurements, and of tests on them.

A measurement that is unknown passes no test but `none_of`: a fix needs what speaks for it, not what
could. Several values (libraries of an axis) pass `one_of` if any is named, `none_of` if none is.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import polars as pl
from pydantic import ConfigDict

from wallscope.model.analysis import Analysis, Rank
from wallscope.model.configuration import RunConfiguration
from wallscope.model.kinds import Axis, Backend, ComputeCategory, Precision
from wallscope.thresholds import FIXED_CAUSE_SHARE

Scalar = bool | int | float | str
Measured = Scalar | frozenset[str] | None

LAUNCHING = ("host/framework", "host/launch-call", "host/launch-latency")
"""What the host does between blocking calls."""
_EXPERT_BACKENDS = {Backend.DEEP_EP, Backend.HYBRID_EP, Backend.NCCL_EP}
_LOW_PRECISIONS = {Precision.FP8, Precision.MXFP8, Precision.NVFP4}
_RACK_GPUS = re.compile(r"\b(GB[23]00|VR200)\b")
_MEGATRON = r"(?i)megatron|^nvte_|transformer_engine|hybrid[-_]ep|deep_ep::|^MFSDP |_row_id_map|kuserbuffers_"
_PYTORCH = (
    r"at::native|\bc10::|^triton_(poi|red|per)_|aten::|autograd::|^Optimizer\.|^nccl:|DataLoader|^FSDP::"
)
_ARCHITECTURES = {
    "7": "volta",
    "8": "ampere",
    "9": "hopper",
    "10": "blackwell",
    "11": "blackwell",
    "12": "blackwell",
}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What must hold for a rule to speak; every line of it.

    `at_least` and `at_most` compare numbers; `one_of` and `none_of` name values; `given` asks for a known
    setting of the run configuration, `unless` rules one out, `unset` any value that switches something on.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    at_least: dict[str, float] = field(default_factory=dict)
    at_most: dict[str, float] = field(default_factory=dict)
    one_of: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    none_of: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    given: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    unless: dict[str, tuple[Scalar, ...]] = field(default_factory=dict)
    unset: tuple[str, ...] = ()

    def measures(self) -> set[str]:
        """The measurements asked for."""
        return {*self.at_least, *self.at_most, *self.one_of, *self.none_of}


class Run:
    """A run as rules see it: the rank that the diagnosis speaks of, and how the run was configured.

    `names` are those of its kernels and ranges. `told` is the part of the configuration that a file says,
    where what the trace shows was added: only that speaks for Megatron.
    """

    def __init__(
        self,
        analysis: Analysis,
        configuration: RunConfiguration,
        names: pl.Series,
        told: RunConfiguration | None = None,
    ) -> None:
        self.analysis = analysis
        self.rank: Rank = analysis.ranks[analysis.diagnosis.rank_index]
        self.configuration = configuration
        self.framework = framework_of(names, configuration if told is None else told)
        self.environment = analysis.inputs[self.rank.input].environment
        self.step_ns = max(self.rank.typical.step_ns, 1)

    def measured(self, name: str, causes: tuple[str, ...]) -> Measured:
        """The value of a measurement; `causes` are those of the run that the rule answers."""
        if name in _OF_CAUSES:
            return _OF_CAUSES[name](self, causes)
        return self._values[name]

    @cached_property
    def _values(self) -> dict[str, Measured]:
        return {name: measure(self) for name, measure in _OF_RUN.items()}

    @cached_property
    def material(self) -> tuple[str, ...]:
        """The causes that could win enough to be worth a fix, the weightiest first."""
        weights = {entry.cause: self.weight(entry.cause) for entry in self.rank.causes}
        found = (cause for cause, weight in weights.items() if weight >= FIXED_CAUSE_SHARE)
        return tuple(sorted(found, key=lambda cause: (-weights[cause], cause)))

    def weight(self, cause: str) -> float:
        """What a cause could win, else what it owns, as a share of the typical step."""
        entry = next((entry for entry in self.rank.causes if entry.cause == cause), None)
        if entry is None:
            return 0.0
        won_ns = entry.recoverable_ns
        return (entry.typical_ns if won_ns is None else won_ns) / self.step_ns


def holds(conditions: Conditions, run: Run, causes: tuple[str, ...]) -> bool:
    """Whether all conditions hold of a run."""

    def value(name: str) -> Measured:
        return run.measured(name, causes)

    return (
        all(_number(value(name), least, 1) for name, least in conditions.at_least.items())
        and all(_number(value(name), -most, -1) for name, most in conditions.at_most.items())
        and all(_is_one(value(name), named) for name, named in conditions.one_of.items())
        and not any(_is_one(value(name), named) for name, named in conditions.none_of.items())
        and all(run.configuration.get(key) in named for key, named in conditions.given.items())
        and not any(map(run.configuration.get, conditions.unset))
        and not any(
            run.configuration.knows(key) and run.configuration.get(key) in named
            for key, named in conditions.unless.items()
        )
    )


def _number(value: Measured, bound: float, sign: int) -> bool:
    """Whether a known number, times a sign, reaches a bound."""
    return isinstance(value, int | float) and sign * value >= bound


def _is_one(value: Measured, named: tuple[Scalar, ...]) -> bool:
    return (
        not value.isdisjoint(named) if isinstance(value, frozenset) else value is not None and value in named
    )


def _share(run: Run, causes: tuple[str, ...]) -> float:
    return max(map(run.weight, causes), default=0.0)


def _of_axes(run: Run, causes: tuple[str, ...], what: str) -> frozenset[str]:
    """Libraries or collectives of the axes that the causes speak of."""
    axes = {cause.split("/")[1] for cause in causes if cause.startswith("communication/")}
    return frozenset(
        str(getattr(operation, what))
        for operation in run.rank.communication.operations
        if operation.axis in axes
    )


def _experts(run: Run) -> bool:
    """Whether anything tells that the model has experts."""
    operations = run.rank.communication.operations
    details = run.rank.compute_details
    experts = run.configuration.get("num_moe_experts")
    return (
        any(entry.axis is Axis.EP or entry.backend in _EXPERT_BACKENDS for entry in operations)
        or any(entry.category is ComputeCategory.GROUPED_GEMM and entry.kernels for entry in run.rank.compute)
        or (details is not None and {details.permute_fused, details.router_fused} != {None})
        or (isinstance(experts, int) and experts > 1)
    )


def framework_of(names: pl.Series, configuration: RunConfiguration) -> str | None:
    """Whose settings apply, as names of kernels and ranges tell: `megatron`, `pytorch`, or nobody's."""
    if configuration.settings or names.str.contains(_MEGATRON).any():
        return "megatron"
    return "pytorch" if names.str.contains(_PYTORCH).any() else None


def _architecture(run: Run) -> str | None:
    gpu = run.analysis.inputs[run.rank.input].gpu(run.rank.gpu)
    known = re.fullmatch(r"sm_(\d+)(\d)a?", gpu.architecture or "") if gpu is not None else None
    if known is None:
        return None
    if known.groups() == ("7", "5"):
        return "turing"
    return "ada" if known.groups() == ("8", "9") else _ARCHITECTURES.get(known[1])


def _domain(run: Run) -> int | None:
    """GPUs that NVLink can reach at once: those of a rack, else those of a node."""
    gpu = run.analysis.inputs[run.rank.input].gpu(run.rank.gpu)
    if gpu is None or not gpu.name:
        return None
    return 72 if _RACK_GPUS.search(gpu.name) else 8


def _graphed_share(run: Run) -> float | None:
    """How much of the compute was launched by graphs: by time where they are opaque, else by count."""
    budget = run.rank.typical.budget
    if budget.opaque_graph:
        return budget.opaque_graph / (budget.opaque_graph + budget.compute)
    if run.analysis.capture.cuda_graphs == "none":
        return 0.0
    kernels = sum(entry.kernels for entry in run.rank.compute)
    host = run.rank.host_details
    if host is None or host.launches is None or not kernels:
        return None
    return max(1 - host.launches.calls / kernels, 0.0)


def _precision(run: Run) -> str | None:
    """The precision of most matrix multiplications."""
    details = run.rank.compute_details
    if details is None or not details.precisions:
        return None
    return str(max(details.precisions, key=lambda entry: entry.share).precision)


def _low_precision_share(run: Run) -> float | None:
    details = run.rank.compute_details
    if details is None or not details.precisions:
        return None
    return sum(entry.share for entry in details.precisions if entry.precision in _LOW_PRECISIONS)


def _pageable(run: Run) -> frozenset[str]:
    """Directions in which bulk copies from or to pageable memory went."""
    copies = run.rank.memory.copies
    return frozenset(str(entry.direction) for entry in copies if entry.pinned is False)


def _detail(name: str) -> Callable[[Run], Measured]:
    """A field of the compute details; `None` where these are unknown."""

    def measure(run: Run) -> Measured:
        details = run.rank.compute_details
        value: Measured = None if details is None else getattr(details, name)
        return value

    return measure


def _small_grid_share(run: Run) -> float | None:
    details = run.rank.compute_details
    return None if details is None else details.launch_shapes.small_grid_share


def _ungrouped_share(run: Run) -> float | None:
    """Share of like small multiplications in a row, as experts run that are not grouped."""
    details = run.rank.compute_details
    return None if details is None else details.small_multiplications.share


def _launch_gap_ns(run: Run) -> float | None:
    """How long the framework held up the step for each launch call."""
    host = run.rank.host_details
    if host is None or host.launches is None or not host.launches.calls:
        return None
    framework = next((entry.typical_ns for entry in run.rank.causes if entry.cause == "host/framework"), 0)
    return framework / host.launches.calls


def _drained(run: Run) -> bool:
    """Whether calls that drain the queue matter, and own more than the launching between them."""
    owned = {entry.cause: entry.typical_ns for entry in run.rank.causes}
    draining = [cause for cause in owned if cause.startswith("host/queue-drained/")]
    matters = any(run.weight(cause) >= FIXED_CAUSE_SHARE for cause in draining)
    return matters and sum(map(owned.__getitem__, draining)) > sum(owned.get(cause, 0) for cause in LAUNCHING)


def _blocking_in_experts(run: Run) -> bool | None:
    """Whether the costliest blocking call of a model with experts stands in their layer, or in each layer."""
    host = run.rank.host_details
    if host is None or not host.blocking_calls or not _experts(run):
        return None
    call = host.blocking_calls[0]
    return call.unit == "layer" or bool(
        re.search(r"mlp|moe|dispatch|expert", (call.path or "").split(" / ")[-1])
    )


_OF_CAUSES: Mapping[str, Callable[[Run, tuple[str, ...]], Measured]] = {
    "share": _share,
    "backends": lambda run, causes: _of_axes(run, causes, "backend"),
    "collectives": lambda run, causes: _of_axes(run, causes, "operation"),
}
_OF_RUN: Mapping[str, Callable[[Run], Measured]] = {
    "architecture": _architecture,
    "blocking_in_experts": _blocking_in_experts,
    "drained": _drained,
    "experts": _experts,
    "findings": lambda run: frozenset(finding.code for finding in run.analysis.capture.findings),
    "framework": lambda run: run.framework,
    "graphed_share": _graphed_share,
    "grouped_share": _detail("grouped_share"),
    "host_share": lambda run: run.rank.typical.walls.host / run.step_ns,
    "low_precision_share": _low_precision_share,
    "launch_gap_ns": _launch_gap_ns,
    "nvlink_domain": _domain,
    "pageable": _pageable,
    "permute_fused": _detail("permute_fused"),
    "precision": _precision,
    "pressure": lambda run: run.analysis.diagnosis.memory_pressure.level,
    "ranks": lambda run: run.analysis.capture.world_size or len(run.analysis.ranks),
    "router_fused": _detail("router_fused"),
    "small_grid_share": _small_grid_share,
    "window": lambda run: run.analysis.anchor.window,
    "unfused_share": _detail("unfused_elementwise_share"),
    "ungrouped_share": _ungrouped_share,
}
MEASURES: Mapping[str, str] = {
    "architecture": "architecture of the GPU",
    "backends": "libraries that communicate for the axis",
    "blocking_in_experts": "the costliest blocking call stands in expert layers",
    "collectives": "collectives of the axis",
    "drained": "calls that drain the queue own more than the launching between them",
    "experts": "the model has experts",
    "findings": "findings about the capture",
    "framework": "framework of the program",
    "graphed_share": "part of the compute that graphs launch",
    "grouped_share": "part of the compute work in grouped multiplications",
    "host_share": "part of the step that the host wall has",
    "launch_gap_ns": "framework time for each launch call, in ns",
    "low_precision_share": "part of the multiplications in FP8 or FP4",
    "nvlink_domain": "GPUs in one NVLink domain",
    "pageable": "directions of copies from or to pageable memory",
    "permute_fused": "permutation of tokens runs as fused kernels",
    "precision": "precision of most multiplications",
    "pressure": "memory pressure",
    "ranks": "ranks of the job",
    "router_fused": "the router runs as fused kernels",
    "share": "what a cause could win, else what it owns, as a share of the step",
    "small_grid_share": "part of the compute work in grids smaller than the GPU",
    "unfused_share": "part of the compute work in single operations of a framework",
    "ungrouped_share": "part of the compute work in runs of like small multiplications",
    "window": "what one window is",
}
"""The names that conditions may use, and what each measures."""

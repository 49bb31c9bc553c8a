"""What a trace shows of a run: its program, its settings, and contradictions to a configuration file.

Advice uses the terms of the program: DALI for a PyTorch loader, streams for CUDA C++. Evidence of a program
are names of kernels and ranges, loaded libraries, and the process. The patterns are data (`programs.toml`).
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import polars as pl

from wallscope.advice.amd import is_amd
from wallscope.advice.published import nvlink_domain
from wallscope.columns import as_integers, find_places
from wallscope.files import read_toml
from wallscope.finding_texts import make_finding
from wallscope.model.advice import (
    Framework,
    KnownSetting,
    Program,
    RunConfiguration,
    System,
    TraceFacts,
    Value,
)
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding, GraphTracing
from wallscope.model.enums import LOW_PRECISIONS, Axis, Backend, Collective, Precision
from wallscope.model.finding_codes import FindingCode
from wallscope.model.rank_summaries import CommunicationOperation, ComputeDetails
from wallscope.records import dataclass
from wallscope.thresholds.causes import UNKNOWN_PRECISION_SHARE

_MERGED_LAYERS = r"^layer_\d+f-layer_\d+b$"
_DELAYED_WGRAD = r"(^|\.)delayed_expert_wgrad$"
_OFFLOADING = r"^activation (offloading|reloading) "
_SIZES = {
    Axis.EP: "expert_model_parallel_size",
    Axis.TP: "tensor_model_parallel_size",
    Axis.CP: "context_parallel_size",
}
_SPREAD = {**_SIZES, Axis.PP: "pipeline_model_parallel_size"}
_BACKENDS = {Backend.DEEP_EP: "deepep", Backend.HYBRID_EP: "hybridep", Backend.NCCL_EP: "ncclep"}
_PACKAGES = {"deepep": "deepep_installed", "hybridep": "hybridep_installed"}
_AXES = tuple(Axis)


def collect_trace_facts(
    analysis: Analysis, names: pl.Series, axes: pl.DataFrame, collectives: pl.DataFrame
) -> TraceFacts:
    """Return what the trace shows; frames follow `AXES` and `COLLECTIVES`, `names` are its ranges."""
    ranks = analysis.ranks
    (export, *_) = analysis.inputs
    shown = ranks[analysis.diagnosis.rank_index]
    gpu = export.gpu(shown.gpu)
    details = [rank.compute_details for rank in ranks if rank.compute_details is not None]
    return TraceFacts(
        architecture=None if gpu is None or is_amd(gpu.name) else gpu.architecture,
        gpu=None if gpu is None else gpu.name,
        nvlink_domain=nvlink_domain(None if gpu is None else gpu.name),
        world_size=analysis.capture.world_size,
        backends=tuple(sorted({entry.backend for rank in ranks for entry in rank.communication.operations})),
        communicator_sizes=communicator_sizes(axes, collectives),
        cuda_graphs=analysis.capture.cuda_graphs,
        precisions=tuple(sorted({precision for each in details for precision in _precisions(each)})),
        grouped_experts=_any_known([each.grouped_kernels > 0 for each in details]),
        permute_fused=_any_known([each.permute_fused for each in details]),
        router_fused=_any_known([each.router_fused for each in details]),
        ep_overlap=_matches(names, _MERGED_LAYERS),
        delayed_wgrad=_matches(names, _DELAYED_WGRAD),
        activation_offload=_matches(names, _OFFLOADING),
        least=_least([entry for rank in ranks for entry in rank.communication.operations]),
        environment=export.environment,
    )


def _least(operations: Sequence[CommunicationOperation]) -> dict[str, int]:
    """Return sizes that must be above 1, because their axis communicates.

    Ranks that split one expert also communicate on the expert axis, and dispatchers combine them with EP.
    Only an NCCL all-to-all shows EP alone. Tokens are exchanged if there is more than one expert.
    """
    spread: set[Axis] = {entry.axis for entry in operations if entry.axis is not Axis.EP}
    exchanged = [entry for entry in operations if entry.axis is Axis.EP]
    if any(entry.backend is Backend.NCCL and entry.operation is Collective.ALL_TO_ALL for entry in exchanged):
        spread.add(Axis.EP)
    least = {key: 2 for axis, key in _SPREAD.items() if axis in spread}
    return {**least, "num_moe_experts": 2} if exchanged else least


def communicator_sizes(axes: pl.DataFrame, collectives: pl.DataFrame) -> dict[Axis, tuple[int, ...]]:
    """Return the numbers of ranks of the communicators of each known axis."""
    row = find_places(collectives["op"].to_numpy(), axes["op"].to_numpy())
    axis, size = (
        as_integers(axes["axis"][row[row >= 0]]),
        as_integers(collectives["participants"])[row >= 0],
    )
    sizes: dict[Axis, set[int]] = {}
    for number, ranks in zip(axis.tolist(), size.tolist(), strict=True):
        if number >= 0 and ranks >= 0:
            sizes.setdefault(_AXES[number], set()).add(ranks)
    return {each: tuple(sorted(sizes[each])) for each in sorted(sizes) if each is not Axis.UNKNOWN}


def _precisions(details: ComputeDetails) -> Iterator[Precision]:
    """Yield the precisions of GEMMs; unknown precision counts only if it is frequent."""
    for work in details.precisions:
        if work.precision is not Precision.UNKNOWN or work.share >= UNKNOWN_PRECISION_SHARE:
            yield work.precision


def _any_known(values: list[bool | None]) -> bool | None:
    known = [each for each in values if each is not None]
    return any(known) if known else None


def _matches(names: pl.Series, pattern: str) -> bool | None:
    """Return whether a range has such a name; else `None`, because most are off by default."""
    return True if names.str.contains(pattern).any() else None


@dataclass(frozen=True, slots=True)
class _Shown:
    """A setting that the trace shows, and the evidence for it."""

    key: str
    value: Value
    evidence: str


def merge_trace_facts(
    configuration: RunConfiguration, trace: TraceFacts
) -> tuple[RunConfiguration, tuple[Finding, ...]]:
    """Return the configuration with the trace's settings, which are what ran, and contradictions."""
    settings = dict(configuration.settings)
    findings = [*_absent(configuration, trace)]
    for shown in _shown(trace):
        if _is_folded(shown, configuration):
            continue
        written = settings.get(shown.key)
        if written is None or _differs(shown, written.value):
            settings[shown.key] = KnownSetting(shown.value, f"trace: {shown.evidence}")
            if written is not None and written.value is not None:
                findings.append(_contradiction(written, f"{shown.evidence}: {_text(shown.value)} counts"))
    return RunConfiguration(settings), tuple(findings)


def _is_folded(shown: _Shown, configuration: RunConfiguration) -> bool:
    """Return whether an expert communicator has the ranks of EP and ETP together."""
    experts, tensor = (
        configuration.get(key) for key in ("expert_model_parallel_size", "expert_tensor_parallel_size")
    )
    return (
        shown.key == "expert_model_parallel_size"
        and isinstance(experts, int)
        and isinstance(tensor, int)
        and experts * tensor == shown.value
    )


def _differs(shown: _Shown, written: Value) -> bool:
    if shown.key in {"fp8", "fp4"}:
        return written is None
    return str(shown.value).lower() != str(written).lower()


def _shown(trace: TraceFacts) -> Iterator[_Shown]:
    """Yield the settings that ran."""
    for axis, key in _SIZES.items():
        sizes = trace.communicator_sizes.get(axis, ())
        if len(sizes) == 1:
            yield _Shown(key, sizes[0], f"communicators of {axis} have {sizes[0]} ranks")
    dispatchers = [_BACKENDS[backend] for backend in trace.backends if backend in _BACKENDS]
    if len(dispatchers) == 1:
        yield _Shown("moe_token_dispatcher_type", "flex", f"kernels of {dispatchers[0]} ran")
        yield _Shown("moe_flex_dispatcher_backend", dispatchers[0], f"kernels of {dispatchers[0]} ran")
        if dispatchers[0] in _PACKAGES:
            yield _Shown(_PACKAGES[dispatchers[0]], True, f"kernels of {dispatchers[0]} ran")
    elif not dispatchers and trace.least.get(_SIZES[Axis.EP]):
        yield _Shown("moe_token_dispatcher_type", "alltoall", "NCCL all-to-all exchanged the tokens")
    permutes = trace.permute_fused and Backend.HYBRID_EP not in trace.backends
    switches: Mapping[str, tuple[bool | None, str]] = {
        "overlap_moe_expert_parallel_comm": (trace.ep_overlap, "ranges of merged layers appear"),
        "delay_wgrad_compute": (trace.delayed_wgrad, "ranges of delayed weight gradients appear"),
        "fine_grained_activation_offloading": (trace.activation_offload, "ranges of offloading appear"),
        "moe_grouped_gemm": (trace.grouped_experts or None, "grouped GEMMs ran"),
        "moe_permute_fusion": (permutes or None, "fused permute kernels ran"),
        "moe_router_fusion": (trace.router_fused or None, "fused router kernels ran"),
    }
    for key, (value, evidence) in switches.items():
        if value is not None:
            yield _Shown(key, value, evidence)
    yield from _low_precision(trace)
    for name, setting in trace.environment.items():
        yield _Shown(name, setting, f"the program's environment had {name}={setting}")


def _low_precision(trace: TraceFacts) -> Iterator[_Shown]:
    if Precision.NVFP4 in trace.precisions:
        yield _Shown("fp4", "e2m1", "NVFP4 GEMMs ran")
    if {Precision.FP8, Precision.MXFP8} & set(trace.precisions):
        yield _Shown("fp8", "e4m3", "FP8 GEMMs ran")
    if Precision.MXFP8 in trace.precisions:
        yield _Shown("fp8_recipe", "mxfp8", "MXFP8 GEMMs ran")


def _absent(configuration: RunConfiguration, trace: TraceFacts) -> Iterator[Finding]:
    """Yield settings that are on and that the trace would show, but does not."""
    backend = configuration.get("moe_flex_dispatcher_backend")
    is_flex = configuration.get("moe_token_dispatcher_type") in {"flex", None}
    ran = {_BACKENDS[each] for each in trace.backends if each in _BACKENDS}
    if isinstance(backend, str) and is_flex and not ran and trace.backends:
        yield _contradiction(
            configuration.settings["moe_flex_dispatcher_backend"], f"no kernel of {backend} ran"
        )
    none_is_low = trace.precisions and not {*LOW_PRECISIONS, Precision.UNKNOWN} & set(trace.precisions)
    for key in ("fp8", "fp4"):
        if none_is_low and configuration.get(key) is not None:
            yield _contradiction(configuration.settings[key], "no low-precision GEMM ran")
    graphs = configuration.get("cuda_graph_impl")
    if graphs not in {None, "none"} and trace.cuda_graphs is GraphTracing.NONE:
        yield _contradiction(configuration.settings["cuda_graph_impl"], "no CUDA graph ran")
    if graphs == "none" and trace.cuda_graphs in {GraphTracing.NODE, GraphTracing.GRAPH}:
        yield _contradiction(configuration.settings["cuda_graph_impl"], "CUDA graphs ran")
    unfused = {"moe_permute_fusion": trace.permute_fused, "moe_router_fusion": trace.router_fused}
    for key, fused in unfused.items():
        if configuration.get(key) is True and fused is False:
            yield _contradiction(configuration.settings[key], "its kernels ran one by one")


def _contradiction(written: KnownSetting, shown: str) -> Finding:
    return make_finding(
        FindingCode.CONFIGURATION_CONTRADICTED,
        "setting",
        source=written.source,
        value=_text(written.value),
        shown=shown,
    )


def _text(value: Value) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()


_OF_UNKNOWN: tuple[System, ...] = ("pytorch", "program")
"""Systems of a program whose framework is unknown: the most frequent one, and CUDA C++ itself."""
GENERAL_SYSTEMS: tuple[System, ...] = ("environment", "launcher", "nsys")
"""Systems whose settings apply to any program, if it reads the variable."""
_LONGEST_NAME = 60
_VARIABLES_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NVTE_", ("megatron",)),
    ("TORCH_", ("megatron", "pytorch")),
    ("PYTORCH_", ("megatron", "pytorch")),
    ("XLA_", ("jax", "tensorflow")),
)
"""Prefixes of variables that only some frameworks read."""


@dataclass(frozen=True, slots=True)
class ProgramTraces:
    """Evidence of a framework: names of kernels and ranges, loaded libraries, the process."""

    names: pl.Series
    libraries: tuple[str, ...] = ()
    interpreter: str | None = None


@cache
def _document() -> dict[str, Any]:
    return read_toml("advice/programs.toml")


def choose_systems(framework: str | None, given: Collection[System]) -> tuple[System, ...]:
    """Return the systems, among the given ones, whose settings apply to a framework besides the general ones.

    >>> choose_systems("megatron", ["pytorch", "megatron-lm"]), choose_systems("megatron", ["pytorch"])
    (('megatron-lm',), ('pytorch',))
    """
    if framework is None:
        return tuple(one for one in _OF_UNKNOWN if one in given)
    entry = next(one for one in _document()["framework"] if one["framework"] == framework)
    own = [system for system in entry["systems"] if system in given]
    chosen = own or [system for system in entry.get("also", ()) if system in given]
    return cast("tuple[System, ...]", tuple(chosen))


def is_read_by(variable: str, framework: str | None) -> bool:
    """Return whether programs of a framework read an environment variable.

    >>> is_read_by("NVTE_FUSED_ATTN", "pytorch"), is_read_by("CUDA_MODULE_LOADING", None)
    (False, True)
    """
    readers = next((own for start, own in _VARIABLES_OF if variable.startswith(start)), None)
    return readers is None or framework in readers


def detect_program(traces: ProgramTraces, configuration: RunConfiguration) -> Program:
    """Return the program; a configuration file with settings shows Megatron.

    >>> names = pl.Series(["dali::kernels::warp", "at::native::add"])
    >>> found = detect_program(ProgramTraces(names), RunConfiguration())
    >>> found.name, found.parts, found.evidence[0]
    ('PyTorch', ('dali',), "name 'at::native::add'")
    """
    frameworks = _document()["framework"]
    if configuration.settings:
        entry = next(one for one in frameworks if one["framework"] == "megatron")
        shown: str | None = "the configuration file has its settings"
    else:
        entry, shown = next(
            ((one, shown) for one in frameworks if (shown := _find_evidence(one, traces)) is not None),
            ({}, None),
        )
    if shown is None:
        return Program(None, "unknown program")
    framework: Framework = entry["framework"]
    parts = [*_find_program_parts(framework, traces)]
    return Program(
        framework,
        entry["name"],
        tuple(part for part, _, _ in parts),
        (shown, *(evidence for _, _, evidence in parts)),
        tuple(name for _, name, _ in parts),
    )


def _find_program_parts(framework: str, traces: ProgramTraces) -> Iterator[tuple[str, str, str]]:
    """Yield each part with its name and what shows it."""
    for one in _document()["part"]:
        if framework in one["of"] and (shown := _find_evidence(one, traces)) is not None:
            yield one["part"], one["name"], shown


def _find_evidence(entry: dict[str, Any], traces: ProgramTraces) -> str | None:
    """Return the evidence of a framework or part in words; `None` if there is none."""
    if "names" in entry:
        found = traces.names.filter(traces.names.str.contains(entry["names"]))
        if len(found):
            return f"name '{_cut_name(found.sort()[0])}'"
    loaded = _first_of(entry.get("libraries", ()), traces.libraries)
    if loaded is not None:
        return f"library {loaded}"
    wanted = entry.get("interpreter")
    if wanted is not None and wanted == traces.interpreter:
        return f"{_RUN_BY[wanted]}, and {_NO_NAME}"
    if wanted == "native" and traces.interpreter is None and len(traces.names):
        return _NO_NAME
    return None


_RUN_BY = {"native": "the program is compiled", "julia": "the process is julia"}
_NO_NAME = "no kernel, range or library name shows a framework"


def _first_of(wanted: Sequence[str], there: Sequence[str]) -> str | None:
    return next((one for one in wanted if one in there), None)


def _cut_name(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

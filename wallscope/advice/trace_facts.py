"""Configuration that a trace shows, and contradictions to a configuration file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from wallscope.advice.published import nvlink_domain
from wallscope.columns import as_integers, find_places
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts, Value
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Finding, GraphTracing, Severity
from wallscope.model.enums import LOW_PRECISIONS, Axis, Backend, Collective, Precision
from wallscope.model.rank_summaries import CommunicationOperation, ComputeDetails
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
        architecture=None if gpu is None else gpu.architecture,
        gpu=None if gpu is None else gpu.name,
        nvlink_domain=nvlink_domain(None if gpu is None else gpu.name),
        world_size=analysis.capture.world_size,
        backends=tuple(sorted({entry.backend for rank in ranks for entry in rank.communication.operations})),
        communicator_sizes=communicator_sizes(axes, collectives),
        cuda_graphs=analysis.capture.cuda_graphs,
        precisions=tuple(sorted({precision for each in details for precision in _precisions(each)})),
        grouped_experts=_any([each.grouped_kernels > 0 for each in details]),
        permute_fused=_any([each.permute_fused for each in details]),
        router_fused=_any([each.router_fused for each in details]),
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
    place = find_places(collectives["op"].to_numpy(), axes["op"].to_numpy())
    axis, size = (
        as_integers(axes["axis"][place[place >= 0]]),
        as_integers(collectives["participants"])[place >= 0],
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


def _any(values: list[bool | None]) -> bool | None:
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
    return Finding(
        "configuration-contradicted",
        Severity.WARNING,
        f"{written.source} sets {_text(written.value)}, but {shown}",
        "check that the file belongs to this run, and the log for a fallback",
    )


def _text(value: Value) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()

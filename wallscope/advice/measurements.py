"""Measurements of a run by name, and known settings, for the conditions of fixes.

An unknown measurement or setting is `None` and meets only negative conditions: a fix needs evidence, not a
possibility.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING

from wallscope.advice.amd import is_amd, name_amd_architecture
from wallscope.advice.conditions import Clause, evaluate
from wallscope.advice.published import nvlink_domain
from wallscope.advice.vision_parts import find_imbalance, list_vision_times, measure_vision
from wallscope.model.advice import Program, RunConfiguration, Value
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import DRAINED, HOST_FRAMEWORK, LAUNCHING, MEMORY_ALLOCATOR
from wallscope.model.enums import LOW_PRECISIONS, Axis, Backend, ComputeCategory, CopyDirection, Precision
from wallscope.model.rank_summaries import CommunicationOperation
from wallscope.model.speed_of_light import BelowPeak, LedgerLine, SpeedOfLight
from wallscope.thresholds.verdict import MATERIAL_SHARE, NEAR_MEASURED_SHARE, NEAR_PEAK_SHARE, PAGEABLE_SHARE

if TYPE_CHECKING:
    import polars as pl

_NEEDED = {
    "blackwell": r"(?i)sm_?1[02][013]|^nvjet_\w*_2cta_",
    "hopper": r"(?i)sm_?90|^nvjet_\w*_coop[AB]_",
}
"""Names of kernels that run on no older generation, and not on a newer one, the newest first."""
_FRAMEWORK = HOST_FRAMEWORK
_EXPERT_BACKENDS = {Backend.DEEP_EP, Backend.HYBRID_EP, Backend.NCCL_EP}
_ARCHITECTURES = {
    "7": "volta",
    "8": "ampere",
    "9": "hopper",
    **dict.fromkeys(("10", "11", "12"), "blackwell"),
}


class MeasuredRun:
    """A run as conditions see it: its representative rank, and its configuration.

    `names` are those of its kernels and ranges. `written` is the part of the configuration that comes from
    the file, without additions from the trace: only that is evidence of Megatron.
    """

    def __init__(
        self,
        analysis: Analysis,
        configuration: RunConfiguration,
        names: "pl.Series",
        written: RunConfiguration | None = None,
    ) -> None:
        self.analysis = analysis
        self.rank: Rank = analysis.ranks[analysis.diagnosis.rank_index]
        self.configuration = configuration
        self.written = RunConfiguration() if written is None else written
        self.names = names
        self.program = analysis.program or _detect_program(
            names, configuration if written is None else written
        )
        self.framework = self.program.framework
        export = analysis.inputs[self.rank.input]
        self.environment, self.loader_threads = export.environment, export.loader_threads
        self.profiler = export.profiler
        self.gpu = export.gpu(self.rank.gpu)
        self.window = analysis.anchor.window
        self.step_ns = max(self.rank.typical.step_ns, 1)
        self._measured: dict[tuple[str, tuple[str, ...]], Value] = {}

    def measure(self, name: str, causes: tuple[str, ...]) -> Value:
        """Return a measurement, `None` if unknown; `causes` are those of the run that a rule addresses."""
        key = name, causes
        if key not in self._measured:
            self._measured[key] = MEASUREMENTS[name](self, causes)
        return self._measured[key]

    def meets(self, clauses: tuple[Clause, ...], causes: tuple[str, ...]) -> bool:
        """Return whether all conditions hold for the run, for a rule that addresses these causes of it."""

        def lookup(key: str) -> tuple[bool, Value]:
            return True, self.measure(key, causes) if key in MEASUREMENTS else self.configuration.get(key)

        return evaluate(clauses, lookup) is True

    @cached_property
    def material(self) -> tuple[str, ...]:
        """The causes whose possible gain is large enough for a fix, the largest first."""
        causes = [one.cause for one in self.rank.causes] + [one.cause for one in self.rank.rare_stalls]
        weights = {cause: self.weight(cause) for cause in dict.fromkeys(causes)}
        found = (cause for cause, weight in weights.items() if weight >= MATERIAL_SHARE)
        return tuple(sorted(found, key=lambda cause: (-weights[cause], cause)))

    def weight(self, cause: str) -> float:
        """Return the possible gain of a cause, else its time, as a share of the typical step."""
        entry = next((entry for entry in self.rank.causes if entry.cause == cause), None)
        if entry is None:
            return self.rare_share(cause)
        won_ns = None if self._leads(cause) else entry.recoverable_ns
        typical = (entry.typical_ns if won_ns is None else won_ns) / self.step_ns
        return max(typical, self.rare_share(cause))

    def _leads(self, cause: str) -> bool:
        """Return whether a cause takes most of the dominant wall, while its possible gain is uncertain."""
        sure = self.analysis.diagnosis.confidence
        if sure is None or sure.level == "high":
            return False
        own = [one for one in self.rank.causes if one.wall == self.analysis.diagnosis.dominant_wall]
        return bool(own) and max(own, key=lambda one: one.typical_ns).cause == cause

    def typical_ns(self, cause: str) -> int:
        """Return the time of a cause in the typical step, in ns."""
        return next((entry.typical_ns for entry in self.rank.causes if entry.cause == cause), 0)

    def rare_share(self, cause: str) -> float:
        """Return the share of all time that a cause takes on few steps, besides the typical step."""
        if cause in LAUNCHING or cause.startswith("compute/"):
            return 0.0  # Rare stalls of these are other work, which a fix for all steps does not address.
        return next((stall.share for stall in self.rank.rare_stalls if stall.cause == cause), 0.0)

    def worth_ns(self, cause: str) -> int | None:
        """Return the possible gain of the mean step without a cause; `None` if unknown."""
        entry = next((entry for entry in self.rank.causes if entry.cause == cause), None)
        won_ns = None if entry is None else entry.recoverable_ns
        rare_ns = round(self.rare_share(cause) * (self.rank.mean_step_ns or self.step_ns))
        return won_ns if not rare_ns else max(won_ns or 0, rare_ns)


def _share(run: MeasuredRun, causes: tuple[str, ...]) -> float:
    return max(map(run.weight, causes), default=0.0)


def _axis_operations(run: MeasuredRun, causes: tuple[str, ...]) -> list[CommunicationOperation]:
    """Return the communication along the axes of the causes."""
    axes = {cause.split("/")[1] for cause in causes if cause.startswith("communication/")}
    return [operation for operation in run.rank.communication.operations if operation.axis in axes]


def _experts(run: MeasuredRun) -> bool:
    """Return whether there is evidence that the model has experts."""
    operations = run.rank.communication.operations
    details = run.rank.compute_details
    experts = run.configuration.get("num_moe_experts")
    return (
        any(entry.axis is Axis.EP or entry.backend in _EXPERT_BACKENDS for entry in operations)
        or any(entry.category is ComputeCategory.GROUPED_GEMM and entry.kernels for entry in run.rank.compute)
        or (details is not None and {details.permute_fused, details.router_fused} != {None})
        or (isinstance(experts, int) and experts > 1)
    )


def _architecture(run: MeasuredRun) -> str | None:
    """Return the generation of the GPU; if the capture does not name it, that which its kernels need."""
    if _find_vendor(run) == "amd":
        return name_amd_architecture(run.gpu.name) if run.gpu is not None and run.gpu.name else None
    known = re.fullmatch(r"sm_(\d+)(\d)a?", run.gpu.architecture or "") if run.gpu is not None else None
    if known is None:
        needed = (name for name, pattern in _NEEDED.items() if run.names.str.contains(pattern).any())
        return next(needed, None)
    if known.groups() == ("7", "5"):
        return "turing"
    return "ada" if known.groups() == ("8", "9") else _ARCHITECTURES.get(known[1])


def _find_vendor(run: MeasuredRun) -> str | None:
    """Return who made the GPU: by its name, else by kernels of libraries that only run on one of AMD."""
    if run.gpu is not None and run.gpu.name:
        return "amd" if is_amd(run.gpu.name) else "nvidia"
    return "amd" if run.names.str.contains(r"^Cijk_|ck_tile::|^rccl").any() else None


_TRAINS = (
    r"(?i)\bautograd::|^Optimizer\.|\bzero_grad\b"
    r"|(^|[^a-z])train(ing)?[ _.-]?(step|batch|epoch|iter|loop|sample)"
)
_INFERS = (
    r"(?i)(^|[^a-z])(requests?|prefill|decod(e|ing)|generat(e|ion)|infer(ence)?|predict(ion)?|serv(e|ing)"
    r"|sampl(e|ing)_?token|token_#)([^a-z]|$)"
)
_OF_LEARNING = {"pytorch", "tensorflow", "jax"}


def _detect_program(names: "pl.Series", configuration: RunConfiguration) -> Program:
    from wallscope.advice.trace_facts import ProgramTraces, detect_program  # noqa: PLC0415  # loads polars

    return detect_program(ProgramTraces(names), configuration)


def _has_training_kernels(run: MeasuredRun) -> bool:
    """Return whether a kernel runs in training alone."""
    from wallscope.trace.kernel_classes import mark_training  # noqa: PLC0415  # loads polars

    return bool(mark_training(run.names).any())


def _trains(run: MeasuredRun) -> bool | None:
    """Return whether a backward pass or an optimizer runs; `None` where the capture may not show them."""
    is_updating = any(one.category == ComputeCategory.OPTIMIZER and one.kernels for one in run.rank.compute)
    is_reducing = any(one.axis is Axis.DP_GRADIENT for one in run.rank.communication.operations)
    if is_updating or is_reducing or _has_training_kernels(run):
        return True
    if run.names.str.contains(f"{_TRAINS}|{_OPTIMIZER}").any() or run.written.settings:
        return True
    if run.framework == "inference" or run.names.str.contains(_INFERS).any():
        return False
    is_alone = (run.analysis.capture.world_size or len(run.analysis.ranks)) == 1
    has_steps = run.analysis.anchor.kind != "whole-trace"
    return False if is_alone and has_steps and run.framework in _OF_LEARNING else None


def _graphed_share(run: MeasuredRun) -> float | None:
    """Return the share of compute launched by graphs: by time if they are opaque, else by count."""
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


def _find_main_precision(run: MeasuredRun) -> str | None:
    """Return the precision of most GEMMs."""
    works = () if run.rank.compute_details is None else run.rank.compute_details.precisions
    return str(max(works, key=lambda entry: entry.share).precision) if works else None


def _low_precision_share(run: MeasuredRun) -> float | None:
    works = () if run.rank.compute_details is None else run.rank.compute_details.precisions
    return sum(entry.share for entry in works if entry.precision in LOW_PRECISIONS) if works else None


def _full_precision_share(run: MeasuredRun) -> float | None:
    """Return the share of GEMM, attention and convolution work in FP32, TF32 or FP64."""
    works = () if run.rank.compute_details is None else run.rank.compute_details.category_precisions
    whole = sum(entry.share for entry in works)
    return sum(entry.share for entry in works if entry.precision in _FULL) / whole if whole else None


def _simt_share(run: MeasuredRun) -> float | None:
    """Return the share of compute work in FP32 GEMMs, without tensor cores."""
    works = () if run.rank.compute_details is None else run.rank.compute_details.category_precisions
    own = [entry for entry in works if entry.category != ComputeCategory.ATTENTION]
    return sum(entry.share for entry in own if entry.precision is Precision.FP32) if works else None


_FULL = {Precision.FP32, Precision.TF32, Precision.FP64}
_FLASH = (
    r"(?i)flash|cudnn_generated|sdpa|fmha_v2|pytorch_fmha|FusedAttention"
    r"|ck_tile.*fmha|Fmha(Fwd|Bwd)|^attn_fwd|aiter::"  # of ROCm
)


def _is_most_attention(run: MeasuredRun, names: str) -> bool | None:
    """Return whether kernels with such names do most of the attention; `None` without attention."""
    details = run.rank.compute_details
    own = [] if details is None else details.leading_kernels
    own = [entry for entry in own if entry.category == ComputeCategory.ATTENTION]
    whole_ns = sum(entry.work_ns for entry in own)
    if not whole_ns:
        return None
    return sum(entry.work_ns for entry in own if re.search(names, entry.name)) > whole_ns / 2


def _below_peak_share(run: MeasuredRun, causes: tuple[str, ...]) -> float | None:
    """Return the share of the step that kernels are below their peak; `None` without known FLOPs.

    FLOPs that the user gives belong to all kernels together, and count for each cause.
    """
    found = run.rank.speed_of_light
    if found is None or not any(one.line is LedgerLine.BELOW_PEAK for one in found.lines):
        return None
    categories = {None, *(cause.removeprefix("compute/") for cause in causes)}
    own = (one.ns for one in found.lines if one.line is LedgerLine.BELOW_PEAK and one.category in categories)
    return sum(own) / run.step_ns


def _low_clock_share(run: MeasuredRun, causes: tuple[str, ...]) -> float | None:
    """Return the share of the step that a clock below that of the peak costs; `None` if it is unknown."""
    found = run.rank.speed_of_light
    if found is None or not any(one.peak_share is not None for one in found.clocks):
        return None
    return sum(found.measure_low_clock({cause.removeprefix("compute/") for cause in causes})) / run.step_ns


def _dated_matrix_share(run: MeasuredRun, causes: tuple[str, ...]) -> float | None:
    """Return the share of the step in kernels of unknown FLOPs of which names show newer ones as faster."""
    found = run.rank.speed_of_light
    if found is None or not found.uncounted:
        return None
    categories = {cause.removeprefix("compute/") for cause in causes}
    own = [one for one in found.uncounted if one.category in categories]
    return sum(one.work_ns for one in own if not _DATED.isdisjoint(one.reasons)) / run.step_ns


_DATED = {BelowPeak.OLD_KERNELS, BelowPeak.FINE_ACCUMULATION}


def is_near_peak(found: SpeedOfLight | None) -> bool:
    """Return whether a step is near what the hardware reaches, so that only another precision helps much.

    It is by its share of the peak, or if most of it multiplies nearly as fast as libraries were measured to.
    """
    if found is None or (found.peak_share or 0.0) >= NEAR_PEAK_SHARE:
        return found is not None
    if found.peak_share is None or found.peak is None or not found.matrices:
        return False
    measured = [found.peak.find_best_rate(one.precision) for one in found.matrices]
    known = [
        one.ns * (one.flops_per_s or 0.0) * one.products / best
        for one, best in zip(found.matrices, measured, strict=True)
        if best is not None
    ]
    all_ns = sum(one.ns for one in found.matrices)
    is_most = len(known) == len(measured) and all_ns >= NEAR_PEAK_SHARE * found.window_ns
    return is_most and sum(known) >= NEAR_MEASURED_SHARE * all_ns


def _unfused_attention_share(run: MeasuredRun) -> float:
    """Return the share of the step in kernels that fused attention does not need."""
    details = run.rank.compute_details
    if details is None or details.unfused_attention is None:
        return 0.0
    return details.unfused_attention.between_ns / run.step_ns


_FLASH_1 = r"(^|::)fmha_(fwd|bwd_\w+)_loop"
_FLASH_2 = r"(^|::)flash_(fwd|bwd)_"
_OUTDATED: Mapping[str, str] = {
    "ampere": _FLASH_1,
    "ada": _FLASH_1,
    "hopper": rf"{_FLASH_1}|{_FLASH_2}",
}
"""Attention kernels older than an architecture: newer ones are made for its GPUs."""


def _is_attention_outdated(run: MeasuredRun) -> bool | None:
    """Return whether most attention runs in FlashAttention kernels older than the GPU's generation."""
    outdated = _OUTDATED.get(_architecture(run) or "")
    return None if outdated is None else _is_most_attention(run, outdated)


def _is_optimizer_fused(run: MeasuredRun) -> bool | None:
    """Return whether kernels of a fused optimizer run; `None` without optimizer kernels."""
    if run.names.str.contains(_FUSED_OPTIMIZER).any():
        return True
    seen = any(entry.category == ComputeCategory.OPTIMIZER and entry.kernels for entry in run.rank.compute)
    return False if seen or run.names.str.contains(_OPTIMIZER).any() else None


def _unfused_optimizer_share(run: MeasuredRun) -> float:
    """Return the share of the step that unfused optimizer operations take in optimizer ranges."""
    if _is_optimizer_fused(run) is not False:
        return 0.0
    own = [entry.gpu_ns for entry in run.rank.ranges if re.search(_OPTIMIZER, entry.name)]
    return max(own, default=0) / run.step_ns


_FUSED_OPTIMIZER = (
    r"(?i)Fused(Adam|SGD|Lamb|AdamMath|SgdMath|Adagrad)|AdamFunctor|AdamWFunctor|LAMBStage|multi_tensor_adam"
    r"|split_embedding_backward\w*(adagrad|adam|sgd|lamb)"
)
_OPTIMIZER = r"(?i)^(.*[/ ])?optimizer([_. ]?step)?$|Optimizer\.step#"
_LOSS = r"(?i)log_?softmax|cross_?entropy|nll_?loss|online_softmax"


def _launching_share(run: MeasuredRun) -> float:
    """Return the share of the typical step for launching: framework, launch calls and their latency."""
    owned = (entry.typical_ns for entry in run.rank.causes if entry.cause in LAUNCHING)
    return sum(owned) / run.step_ns


_NORM_IN_TRAINING = r"bn_fw_tr_|batch_norm_collect_statistics|batchnorm_fwtr|bn_fwd_training"


def _trains_only_norms(run: MeasuredRun) -> bool:
    """Return whether batch norms run as in training, but no backward pass and no optimizer does."""
    if not run.names.str.contains(_NORM_IN_TRAINING).any():
        return False
    return not (_has_training_kernels(run) or run.names.str.contains(_OPTIMIZER).any())


def _gradients_overlap(run: MeasuredRun) -> bool | None:
    """Return whether most gradient reduction is hidden; `None` without any."""
    own = [entry for entry in run.rank.communication.operations if entry.axis is Axis.DP_GRADIENT]
    work_ns = sum(entry.work_ns for entry in own)
    return None if not work_ns else sum(entry.exposed_ns for entry in own) < work_ns / 2


def _gradient_collectives(run: MeasuredRun) -> tuple[str, ...]:
    own = (entry for entry in run.rank.communication.operations if entry.axis is Axis.DP_GRADIENT)
    return tuple(str(entry.operation) for entry in own)


def _gap_ns(run: MeasuredRun, *causes: str) -> float | None:
    """Return the time of a step in causes that begin so per launch call, in ns."""
    host = run.rank.host_details
    if host is None or host.launches is None or not host.launches.calls:
        return None
    return (
        sum(one.typical_ns for one in run.rank.causes if one.cause.startswith(causes)) / host.launches.calls
    )


def _one_gap_share(run: MeasuredRun) -> float:
    """Return the share of the host's time in its longest gap; 0 if unknown."""
    return 0.0 if run.rank.host_details is None else run.rank.host_details.longest_gap_share


def _drained(run: MeasuredRun) -> bool:
    """Return whether calls that drain the queue are material and exceed the launching between them."""
    owned = {entry.cause: entry.typical_ns for entry in run.rank.causes}
    draining = [cause for cause in owned if cause.startswith(DRAINED)]
    matters = any(run.weight(cause) >= MATERIAL_SHARE for cause in draining)
    return matters and sum(map(owned.__getitem__, draining)) > sum(owned.get(cause, 0) for cause in LAUNCHING)


def _blocking_in_experts(run: MeasuredRun) -> bool | None:
    """Return whether the most expensive blocking call of a model with experts is in expert or all layers."""
    host = run.rank.host_details
    if host is None or not host.blocking_calls or not _experts(run):
        return None
    call = host.blocking_calls[0]
    return call.unit == "layer" or bool(
        re.search(r"(?<![a-z])(mlp|moe|dispatch|expert)", (call.path or "").split(" / ")[-1])
    )


_MAYBE_BACK = {CopyDirection.DEVICE_TO_HOST, CopyDirection.UNKNOWN}
_MIGRATIONS = (
    CopyDirection.MIGRATION_TO_DEVICE,
    CopyDirection.MIGRATION_TO_HOST,
    CopyDirection.MIGRATION_BETWEEN_DEVICES,
)


def _pageable_directions(run: MeasuredRun) -> tuple[str, ...]:
    """Return the directions with bulk copies and a large share of the bytes from or to pageable memory."""
    moved: Counter[str] = Counter()
    pageable: Counter[str] = Counter()
    for entry in run.rank.memory.copies:
        moved[str(entry.direction)] += entry.bytes
        if entry.pinned is False and entry.bulk_bandwidth_bytes_per_s is not None:
            pageable[str(entry.direction)] += entry.bytes
    return tuple(one for one, own in pageable.items() if own >= PAGEABLE_SHARE * moved[one])


def _copied_in_ratio(run: MeasuredRun) -> float | None:
    """Return the time of host-to-device copies as a ratio to the compute work."""
    copied = [one for one in run.rank.memory.copies if one.direction == CopyDirection.HOST_TO_DEVICE]
    work_ns = sum(entry.work_ns for entry in run.rank.compute)
    return sum(one.work_ns for one in copied) / work_ns if work_ns else None


def _copies_back(run: MeasuredRun) -> bool:
    """Return whether the steps copy anything to the host, or in a direction that the capture lacks."""
    return not _MAYBE_BACK.isdisjoint(one.direction for one in run.rank.memory.copies)


def _is_nobody_late(run: MeasuredRun) -> bool:
    """Return whether all ranks of the job are captured, and none of them delays the others."""
    job = run.analysis.job
    return job is not None and job.collectives.matched > 0 and not (job.missing or job.stragglers)


def _allocates(run: MeasuredRun) -> bool:
    """Return whether calls that allocate or release device memory take time of the step."""
    return any(one.cause.startswith(_ALLOCATING) for one in run.rank.causes)


_ALLOCATING = (MEMORY_ALLOCATOR, *(f"{DRAINED}{call}" for call in ("cudaFree", "cuMemFree", "hipFree")))


def _waits_for_device(run: MeasuredRun) -> bool:
    """Return whether calls that wait for the device end in the step."""
    details = run.rank.host_details
    return details is not None and any(_IS_WAIT.search(one.name) for one in details.blocking_calls)


_IS_WAIT = re.compile(r"Synchronize|Memcpy")


def _migration_shares(run: MeasuredRun) -> tuple[float, float]:
    """Return the shares of the step with page migrations: exposed ones, and those under other work.

    A kernel waits for the pages that migrate under it, so its own time then contains that of the migration.
    """
    own = [one for one in run.rank.memory.copies if one.direction in _MIGRATIONS]
    exposed_ns, work_ns = sum(one.exposed_ns for one in own), sum(one.work_ns for one in own)
    return exposed_ns / run.step_ns, (work_ns - exposed_ns) / run.step_ns


def _measure_vision_share(run: MeasuredRun) -> float | None:
    """Return the share of a vision tower and its projectors in the typical step."""
    times = measure_vision(run.rank.ranges, run.step_ns)
    return None if times is None else (times.encoder_ns + times.projector_ns) / times.step_ns


def _is_vision_trained(run: MeasuredRun) -> bool | None:
    """Return whether a vision tower has a backward pass."""
    times = measure_vision(run.rank.ranges, run.step_ns)
    if times is None or times.encoder_backward_ns is None:
        return None
    return times.encoder_backward_ns > MATERIAL_SHARE * times.encoder_ns


Measure = Callable[[MeasuredRun, tuple[str, ...]], Value]
"""What measures a name, given a run and the causes of a rule; `facts.toml` says what it is in words."""


def _of_run(measure: Callable[[MeasuredRun], Value]) -> Measure:
    return lambda run, _: measure(run)


def _of_details(field: str) -> Measure:
    """Return what reads a field of the compute details; `None` if these are unknown."""
    read = attrgetter(field)
    return lambda run, _: None if run.rank.compute_details is None else read(run.rank.compute_details)


MEASUREMENTS: Mapping[str, Measure] = {
    "allocates": _of_run(_allocates),
    "architecture": _of_run(_architecture),
    "backends": lambda run, causes: tuple(str(one.backend) for one in _axis_operations(run, causes)),
    "below_peak_share": _below_peak_share,
    "low_clock_share": _low_clock_share,
    "dated_matrix_share": _dated_matrix_share,
    "blocking_in_experts": _of_run(_blocking_in_experts),
    "attention_fast": _of_run(lambda run: _is_most_attention(run, _FLASH)),
    "attention_outdated": _of_run(_is_attention_outdated),
    "collectives": lambda run, causes: tuple(str(one.operation) for one in _axis_operations(run, causes)),
    "copied_in_ratio": _of_run(_copied_in_ratio),
    "copies_back": _of_run(_copies_back),
    "deepep_computes_sms": _of_run(lambda run: bool(run.names.str.contains(r"\bdeep_ep::elastic::").any())),
    "drained": _of_run(_drained),
    "experts": _of_run(_experts),
    "findings": _of_run(lambda run: tuple(finding.code for finding in run.analysis.capture.findings)),
    "framework": _of_run(lambda run: run.framework),
    "full_precision_share": _of_run(_full_precision_share),
    "gradient_collectives": _of_run(_gradient_collectives),
    "gradients_overlap": _of_run(_gradients_overlap),
    "graphed_share": _of_run(_graphed_share),
    "grouped_share": _of_details("grouped_share"),
    "host_gap_ns": _of_run(lambda run: _gap_ns(run, _FRAMEWORK, DRAINED)),
    "host_share": _of_run(lambda run: run.rank.typical.walls.host / run.step_ns),
    "launch_gap_ns": _of_run(lambda run: _gap_ns(run, _FRAMEWORK)),
    "launching_share": _of_run(_launching_share),
    "loss_kernels": _of_run(lambda run: bool(run.names.str.contains(_LOSS).any())),
    "low_precision_share": _of_run(_low_precision_share),
    "nccl": _of_run(lambda run: bool(run.names.str.contains("(?i)nccl(dev)?kernel").any())),
    "nobody_late": _of_run(_is_nobody_late),
    "nvlink_domain": _of_run(lambda run: nvlink_domain(None if run.gpu is None else run.gpu.name)),
    "optimizer_fused": _of_run(_is_optimizer_fused),
    "optimizer_runs": _of_run(lambda run: _is_optimizer_fused(run) is not None),
    "pageable": _of_run(_pageable_directions),
    "migration_share": _of_run(lambda run: _migration_shares(run)[0]),
    "hidden_migration_share": _of_run(lambda run: _migration_shares(run)[1]),
    "parts": _of_run(lambda run: run.program.parts),
    "permute_fused": _of_details("permute_fused"),
    "precision": _of_run(_find_main_precision),
    "pressure": _of_run(lambda run: run.analysis.diagnosis.memory_pressure.level),
    "ranks": _of_run(lambda run: run.analysis.capture.world_size or len(run.analysis.ranks)),
    "router_fused": _of_details("router_fused"),
    "share": _share,
    "simt_share": _of_run(_simt_share),
    "synchronizes": _of_run(_waits_for_device),
    "trains": _of_run(_trains),
    "trains_only_norms": _of_run(_trains_only_norms),
    "one_gap_share": _of_run(_one_gap_share),
    "unfilled_share": _of_details("launch_shapes.unfilled_share"),
    "unfused_attention_share": _of_run(_unfused_attention_share),
    "unfused_share": _of_details("unfused_elementwise_share"),
    "unfused_optimizer_share": _of_run(_unfused_optimizer_share),
    "ungrouped_share": _of_details("small_multiplications.share"),
    "vendor": _of_run(_find_vendor),
    "vision_imbalance": _of_run(lambda run: find_imbalance(list_vision_times(run.analysis))),
    "vision_share": _of_run(_measure_vision_share),
    "vision_trained": _of_run(_is_vision_trained),
    "window": _of_run(lambda run: run.window.replace(" ", "-")),
}
"""The names that conditions of fixes may use in addition to settings."""

"""Runs as rules see them, made from nouns: a typical step of 100 ms, its causes, and what else is told."""

from dataclasses import replace

from wallscope.model.analysis import (
    Analysis,
    Anchor,
    Budget,
    CaptureQuality,
    CauseTime,
    ComputeWork,
    RangeWork,
    Rank,
    Typical,
)
from wallscope.model.capture import Export, Finding, Gpu, GraphTracing, Severity
from wallscope.model.diagnosis import Diagnosis, MemoryPressure, Opportunity, Walls
from wallscope.model.enums import Axis, Backend, Collective, ComputeCategory, CopyDirection, Precision, Wall
from wallscope.model.rank_summaries import (
    BlockingCall,
    CategoryPrecision,
    CategoryTime,
    Communication,
    CommunicationOperation,
    ComputeDetails,
    CopyWork,
    HostDetails,
    LaunchCost,
    LaunchShapes,
    LeadingKernel,
    Memory,
    PrecisionWork,
    SmallMultiplications,
    UnfusedAttention,
)
from wallscope.model.speed_of_light import (
    BelowPeak,
    LedgerEntry,
    LedgerLine,
    SampledClock,
    SpeedOfLight,
    UncountedWork,
)

MS = 1_000_000
STEP_NS = 100 * MS
GPUS = {
    "H100": ("NVIDIA H100 80GB HBM3", "sm_90"),
    "GB200": ("NVIDIA GB200", "sm_100"),
    "B200": ("NVIDIA B200", "sm_100"),
    "A100": ("NVIDIA A100-SXM4-80GB", "sm_80"),
    "T4": ("Tesla T4", "sm_75"),
    "MI300X": ("AMD Instinct MI300X", "sm_94"),
    "unknown": ("", None),
}
RANGES = {
    "megatron": "nvte_rmsnorm_fwd",
    "pytorch": "aten::mm",
    "program": "my_kernel",
    "inference": "vllm::all_reduce",
}
_LOSSES = {Wall.MEMORY, Wall.COMMUNICATION, Wall.HOST}

ANCHORS = {
    "step": Anchor("nvtx", "step", "step", 10),
    "capture": Anchor("whole-trace", "window", None, 1),
    "selected": Anchor("whole-trace", "window", None, 1, selected_time_ns=(0, STEP_NS)),
}


def run(  # noqa: PLR0913  # what a run may tell
    causes,
    *,
    gpu="H100",
    experts=False,
    operations=(),
    pressure="unknown",
    graphs="none",
    launch_calls=1_000,
    opaque_ns=0,
    blocking=None,
    pageable=(),
    details=(),
    findings=(),
    world=16,
    window="step",
    verdict=None,
    environment=(),
    ranges=(),
    other_ranges=(),
    copied_in_ms=0,
    copies_back=True,
    migrated_ms=0,
    one_gap_share=0.0,
    below_peak=(),
    uncounted=(),
    clocks=(),
    mfu=None,
):
    """An analysis whose typical step has `causes` (ms each; a pair tells the ceiling too), else compute."""
    told = {cause: of if isinstance(of, tuple) else (of, of) for cause, of in causes.items()}
    entries = [
        CauseTime(
            cause,
            Wall(cause.split("/")[0]),
            round(own * MS),
            own / 100,
            round(won * MS) if Wall(cause.split("/")[0]) in _LOSSES and "unresolved" not in cause else None,
            round(own * MS) if "unresolved" in cause else 0,
        )
        for cause, (own, won) in told.items()
    ]
    rest_ns = STEP_NS - sum(entry.typical_ns for entry in entries)
    if "compute/gemm" not in told and rest_ns > 0:
        entries.append(CauseTime("compute/gemm", Wall.COMPUTE, rest_ns, rest_ns / STEP_NS, None, 0))
    walls = Walls(**{wall: sum(entry.typical_ns for entry in entries if entry.wall == wall) for wall in Wall})
    won = [
        Opportunity(
            entry.cause,
            entry.wall,
            entry.cause,
            entry.recoverable_ns,
            STEP_NS - entry.recoverable_ns,
            STEP_NS / (STEP_NS - entry.recoverable_ns),
            "trace-verified",
            (),
        )
        for entry in entries
        if entry.recoverable_ns
    ]
    largest = max((wall for wall in Wall if wall != Wall.UNATTRIBUTED), key=lambda wall: getattr(walls, wall))
    lost = max(_LOSSES, key=lambda wall: (getattr(walls, wall), wall))
    leading = lost if getattr(walls, lost) >= STEP_NS // 10 else largest
    kinds = [(ComputeCategory.GEMM, 4_000)] + [(ComputeCategory.GROUPED_GEMM, 100)] * experts
    rank = Rank(
        rank=0,
        rank_source="RANK",
        input=0,
        pid=1,
        device=0,
        gpu=0,
        outside_ns=0,
        steps=(),
        typical=Typical(STEP_NS, Budget(walls.compute - opaque_ns, opaque_ns, 0, 0, 0), walls),
        communication=Communication(
            0, 0, None, 0.1, tuple(_operation(*operation) for operation in operations)
        ),
        compute=tuple(ComputeWork(kind, MS, 0.5, count) for kind, count in kinds),
        memory=Memory(
            None,
            None,
            None,
            (
                *map(_pageable, pageable),
                _copied_in(copied_in_ms),
                _migrated(migrated_ms),
                *([COPIED_BACK] if copies_back else []),
            ),
        ),
        unmatched_kernels=(),
        ranges=_list_ranges(ranges),
        causes=tuple(entries),
        compute_details=_details(**dict(details)),
        host_details=replace(_host(launch_calls, blocking), longest_gap_share=one_gap_share),
        speed_of_light=_ledger(dict(below_peak), dict(uncounted), dict(clocks), mfu)
        if below_peak or uncounted or mfu
        else None,
    )
    name, architecture = GPUS[gpu]
    return Analysis(
        schema="wallscope.analysis/1",
        wallscope_version="0",
        inputs=(
            Export(
                "run",
                "",
                0,
                None,
                None,
                None,
                None,
                0,
                (Gpu(0, name, architecture, 1, 1, 1),),
                dict(environment),
            ),
        ),
        capture=CaptureQuality(
            tuple(Finding(code, Severity.INFO, "said") for code in findings),
            None,
            None,
            GraphTracing(graphs),
            1,
            world,
        ),
        anchor=ANCHORS[window],
        ranks=(rank, *([replace(rank, rank=1, ranges=_list_ranges(other_ranges))] if other_ranges else [])),
        diagnosis=Diagnosis(verdict or str(leading), "", memory_pressure=MemoryPressure(pressure, ("told",))),
        opportunities=tuple(sorted(won, key=lambda entry: -entry.recoverable_ns)),
    )


def _ledger(below_peak, uncounted, clocks, mfu):
    """The ledger of a step of which some ms are below the peak, or have unknown FLOPs, by category."""
    lines = [
        LedgerEntry(LedgerLine.BELOW_PEAK, ComputeCategory(category), round(own_ms * MS), proven=True)
        for category, own_ms in below_peak.items()
    ]
    lines += [
        LedgerEntry(LedgerLine.COMPUTE_UNKNOWN, ComputeCategory(category), round(own_ms * MS), proven=False)
        for category, (own_ms, *_) in uncounted.items()
    ]
    return SpeedOfLight(
        window_ns=STEP_NS,
        is_step=True,
        peak=None,
        model_flops=1,
        executed_flops=1,
        source="shapes",
        covered=1.0,
        mfu=mfu,
        hfu=mfu,
        mfu_16bit=mfu,
        model_flops_per_s=1.0,
        lines=tuple(lines),
        uncounted=tuple(
            UncountedWork(
                ComputeCategory(category),
                Precision.FP8,
                1,
                round(own_ms * MS),
                None,
                tuple(map(BelowPeak, why)),
            )
            for category, (own_ms, *why) in uncounted.items()
        ),
        clocks=tuple(
            SampledClock(ComputeCategory(category), 10, round(1_410 * share), share)
            for category, share in clocks.items()
        ),
    )


def _export(gpu, environment):
    return Export("run", "", 0, None, None, None, None, 0, (gpu,), dict(environment))


def _details(precision="bf16", small_grids=None, ungrouped=0.0, kernels=(), unfused_ms=0, **others):
    known = ComputeDetails(
        work_ns=MS,
        precisions=(PrecisionWork(Precision(precision), MS, 1.0, 10),),
        grouped_kernels=0,
        grouped_share=0.0,
        small_multiplications=SmallMultiplications(1, 10, MS, ungrouped),
        unfused_elementwise_share=0.0,
        quantize_share=0.0,
        cast_share=0.0,
        permute_fused=None,
        router_fused=None,
        launch_shapes=LaunchShapes(1.0, 0, small_grids, None, None, None, small_grids),
        category_precisions=tuple(
            CategoryPrecision(ComputeCategory(category), Precision(own), MS, 1 / len(kernels), 1)
            for _, category, own in kernels
        ),
        leading_kernels=tuple(
            LeadingKernel(name, ComputeCategory(category), Precision(own), 1, MS)
            for name, category, own in kernels
        ),
        unfused_attention=_unfused(unfused_ms) if unfused_ms else None,
    )
    return replace(known, **others)


def _unfused(own_ms):
    own_ns = round(own_ms * MS)
    return UnfusedAttention(
        ("attention",), MS, own_ns, 1, (CategoryTime(ComputeCategory.ELEMENTWISE, own_ns),)
    )


def _operation(axis, operation=Collective.ALL_TO_ALL, backend=Backend.NCCL):
    return CommunicationOperation(Collective(operation), Axis(axis), Backend(backend), 1, MS, MS, None)


def _list_ranges(ranges):
    return tuple(_range(name, own_ms) for name, own_ms in dict(ranges).items())


def _range(name, own_ms):
    own_ns = round(own_ms * MS)
    return RangeWork(name, f"step / {name}", 1, MS, own_ns, own_ns, own_ns, own_ns, Walls(own_ns, 0, 0, 0, 0))


def _pageable(direction):
    return CopyWork(CopyDirection(direction), 1, 1, 1, 1, pinned=False, bulk_bandwidth_bytes_per_s=1e9)


COPIED_BACK = CopyWork(CopyDirection.DEVICE_TO_HOST, 1, 4, 1, 1, pinned=True)


def _copied_in(own_ms):
    """Copies of a pinned batch, or of parameters; compute works 1 ms."""
    return CopyWork(CopyDirection.HOST_TO_DEVICE, 1, 1, round(own_ms * MS), round(own_ms * MS), pinned=True)


def _migrated(own_ms):
    """Pages that migrate to the device while kernels run."""
    return CopyWork(CopyDirection.MIGRATION_TO_DEVICE, 1, 1, round(own_ms * MS), 0, pinned=None)


def _host(launch_calls, blocking):
    calls = (BlockingCall("cudaStreamSynchronize", 1.0, None, None, MS, MS, blocking),) if blocking else ()
    launches = LaunchCost(launch_calls, MS, 1, 1, 1.0, 1, 0.5, is_launch_bound=True)
    return HostDetails(calls, launches, None, None, None)

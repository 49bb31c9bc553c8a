"""Parts of the answer about one rank: communication, compute, host, memory, GPU metrics.

A part of the published contract of `model.analysis`. Shares refer to the compute work of the typical step,
which is the added-up durations of its compute kernels, unless stated otherwise. `None` is unknown.

A part of the published contract of `model.analysis`. Times are integer nanoseconds, counts and times are
means of the typical step, `None` is unknown and never means 0.

A part of the published contract of `model.analysis`. Metrics that were not sampled are `None`, never 0.
"""

from enum import StrEnum
from typing import Annotated, Literal

from wallscope.model.enums import (
    Axis,
    Backend,
    Collective,
    ComputeCategory,
    CopyDirection,
    Direction,
    Precision,
)
from wallscope.model.shown import AXIS, FUNCTION, KERNEL_NAME, KERNELS, OPERATION, WORK, Shown
from wallscope.records import dataclass


@dataclass(frozen=True, slots=True)
class CommunicationOperation:
    """The communication operations of one collective, axis and library.

    `evidence` lists the most frequent sources of the axis, at most three.
    """

    operation: Annotated[Collective, OPERATION]
    axis: Annotated[
        Axis,
        AXIS,
    ]
    backend: Annotated[Backend, Shown("communication library of the operations", "library")]
    count: Annotated[int, Shown("number of operations that begin in the {whole}", "count", "count")]
    work_ns: Annotated[int, Shown("summed durations of the operations inside the {whole}", "work", "ms")]
    exposed_ns: Annotated[
        int,
        Shown(
            "time in which any of the operations ran, but no compute kernel or opaque CUDA graph did",
            "exposed",
            "ms",
        ),
    ]
    bytes: Annotated[
        int | None,
        Shown(
            "summed message sizes as NCCL counts them; for all-gather and reduce-scatter, one rank's part",
            "bytes",
            "size",
        ),
    ]
    bus_bandwidth_bytes_per_s: Annotated[
        float | None,
        Shown(
            "bus bytes, as nccl-tests counts them, divided by the duration of the operations, which"
            " includes waiting for peers",
            "bus rate",
            "rate",
        ),
    ] = None
    evidence: Annotated[
        tuple[str, ...], Shown("evidence for the axis; empty if the axis is unknown", "evidence")
    ] = ()


@dataclass(frozen=True, slots=True)
class OverlapTax:
    """The slowdown of compute kernels that overlap communication, compared with running alone.

    `ratio` compares medians of the same kernel and launch shape. `slowed_ns` is the extra work in a typical
    step, below 0 if they ran faster. `kernels` is how many overlapping kernels were compared, and
    `compared_share` is what share of the time of all kernels that overlap communication they take.
    """

    ratio: float
    slowed_ns: int
    kernels: int
    compared_share: float | None = None


@dataclass(frozen=True, slots=True)
class DispatcherWork:
    """Work of a token dispatcher in the typical step: sums of durations, not elapsed time.

    Packing, unpacking and routing (scores, counts, layouts) stay on the GPU. Synchronization waits for peers.
    Transport moves tokens.
    """

    pack_ns: int
    synchronise_ns: int
    transport_ns: int
    unpack_ns: int
    routing_ns: int


@dataclass(frozen=True, slots=True)
class LinkTraffic:
    """What a link carried in the typical step and during exposed communication.

    A network card or switch serves the whole host, and its values are bytes per second. NVLink is the rank's
    own, and its values are shares of its peak. All values are means of samples. A sample belongs to exposed
    communication if that covers at least half of it; without such samples, these values are `None`.
    """

    link: Annotated[str, Shown("NVLink, or name of the card or switch", "link")]
    direction: Annotated[Direction, Shown("direction as the link counts it", "direction")]
    bytes_per_s: Annotated[float | None, Shown("mean rate in the {whole}", "rate", "rate")]
    exposed_bytes_per_s: Annotated[
        float | None, Shown("mean rate during exposed communication", "rate, exposed", "rate")
    ]
    peak_share: Annotated[float | None, Shown("mean share of the peak", "of peak", "percent")]
    exposed_peak_share: Annotated[
        float | None,
        Shown("mean share of the peak during exposed communication", "of peak, exposed", "percent"),
    ]
    samples: Annotated[int, Shown("number of samples of the link", "samples", "count")]
    exposed_samples: Annotated[
        int, Shown("number of samples during exposed communication", "samples, exposed", "count")
    ]


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication of a rank: the time it ran, and the hidden share.

    `overlap_tax` is `None` if no kernel ran often enough both ways, `dispatcher` if experts did not
    communicate, and `traffic` if no link counter was sampled in the steps.
    """

    union_ns: int
    exposed_ns: int
    blocking_ns: int | None
    hidden_share: float | None
    operations: tuple[CommunicationOperation, ...]
    overlap_tax: OverlapTax | None = None
    dispatcher: DispatcherWork | None = None
    traffic: tuple[LinkTraffic, ...] | None = None


@dataclass(frozen=True, slots=True)
class PrecisionWork:
    """GEMMs of one precision, by kernel name; the share refers to all GEMMs."""

    precision: Annotated[Precision, Shown("precision, from the names of the kernels", "precision")]
    work_ns: Annotated[int, WORK]
    share: Annotated[
        float,
        Shown(
            "work divided by that of all matrix multiplications with a known precision",
            "share of these",
            "percent",
        ),
    ]
    kernels: Annotated[int, KERNELS]


@dataclass(frozen=True, slots=True)
class LeadingKernel:
    """Kernels of one short name in the typical step: their precision, number and work."""

    name: str
    category: ComputeCategory
    precision: Precision
    kernels: int
    work_ns: int


@dataclass(frozen=True, slots=True)
class KernelRate:
    """A kernel name in the typical step whose FLOPs are known."""

    name: Annotated[str, KERNEL_NAME]
    kernels: Annotated[int, KERNELS]
    work_ns: Annotated[int, WORK]
    flops_per_s: Annotated[
        float,
        Shown(
            "FLOP/s while the kernels ran for operators with shapes that have no other multiplying kernels",
            "achieved",
            "flops",
        ),
    ]
    peak_share: Annotated[
        float | None,
        Shown(
            "FLOP/s divided by the dense peak of the GPU at the precision of the kernels; empty if"
            " either is unknown",
            "of peak",
            "percent",
        ),
    ]


@dataclass(frozen=True, slots=True)
class CategoryPrecision:
    """Kernels of one multiplying category and precision; the share refers to all compute work."""

    category: ComputeCategory
    precision: Precision
    work_ns: int
    share: float
    kernels: int


@dataclass(frozen=True, slots=True)
class SmallMultiplications:
    """Series of at least four similar GEMMs under 50 microseconds, with nothing between them.

    Experts of a layer run in this way if they are not grouped into one kernel.
    """

    runs: int
    kernels: int
    work_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class LaunchShapes:
    """How well grids and blocks fit the GPU; each value is `None` if its inputs are missing.

    `small_grid_share` is the share of kernels with fewer blocks than the GPU has multiprocessors, and
    `unfilled_share` the part of the GPU that these leave without a block, both by work. `tail_share`
    estimates the idle part of the last, partly filled wave of larger grids, assuming blocks of equal length.
    `occupancy` is theoretical: the mean, by work, over all kernels except GEMM and attention, which are
    designed for a low one. `low_occupancy_share` is the share of those below a quarter, and `known_share`
    that of kernels with known occupancy. `achieved_occupancy` is the mean of what the profiler estimates,
    which is lower if a grid is too small to fill the GPU.
    """

    known_share: float
    small_grid_kernels: int | None
    small_grid_share: float | None
    tail_share: float | None
    occupancy: float | None
    low_occupancy_share: float | None
    unfilled_share: float | None = None
    achieved_occupancy: float | None = None


@dataclass(frozen=True, slots=True)
class CategoryTime:
    """Work of a category of kernels in the typical step, in ns."""

    category: ComputeCategory
    work_ns: int


@dataclass(frozen=True, slots=True)
class UnfusedAttention:
    """Attention in separate kernels in the typical step, found by ranges that name it or by operators.

    `product_ns` is the work of the matrix multiplications there, and `between` all other compute, which fused
    attention does not need. Work of a backward pass counts only if it has such ranges.
    """

    ranges: tuple[str, ...]
    product_ns: int
    between_ns: int
    between_kernels: int
    between: tuple[CategoryTime, ...]


@dataclass(frozen=True, slots=True)
class ComputeDetails:
    """The composition of compute in a typical step, by names and launch shapes of kernels.

    `unfused_elementwise_share` covers single operations of a framework, `cast_share` copies between number
    formats, `quantize_share` scaling and packing for low precision. `permute_fused` and `router_fused` are
    `None` without such kernels, as in models without experts. `leading_kernels` are the first few of each
    material category. `flops` are those of the typical step by operator shapes, including recompute; `None`
    if a kernel that may multiply has none. `known_flops` are those of the kernels that have them, which take
    `flops_share` of the work of all that may multiply. `kernel_rates` are the largest of them, by name.
    `unfused_attention` is `None` without ranges that name
    attention, or with a fused kernel in them.
    """

    work_ns: int
    precisions: tuple[PrecisionWork, ...]
    grouped_kernels: int
    grouped_share: float
    small_multiplications: SmallMultiplications
    unfused_elementwise_share: float
    quantize_share: float
    cast_share: float
    permute_fused: bool | None
    router_fused: bool | None
    launch_shapes: LaunchShapes
    category_precisions: tuple[CategoryPrecision, ...] = ()
    leading_kernels: tuple[LeadingKernel, ...] = ()
    flops: int | None = None
    known_flops: int | None = None
    flops_share: float | None = None
    kernel_rates: tuple[KernelRate, ...] = ()
    unfused_attention: UnfusedAttention | None = None


RepeatedUnit = Literal["microbatch", "layer"]


@dataclass(frozen=True, slots=True)
class BlockingCall:
    """Calls of one name that end in the step and waited until the device was idle.

    `per_unit` is how many of them one range of a layer or microbatch contains. It is given only if at least
    half of the calls are in such ranges, with at least one for every second range.
    """

    name: Annotated[str, FUNCTION]
    count: Annotated[float, Shown("number of calls that end in the {whole}", "times", "plain")]
    unit: RepeatedUnit | None
    per_unit: float | None
    waited_ns: Annotated[
        int,
        Shown(
            "time that the host waited inside the calls; this costs nothing by itself, because the GPU"
            " works in the meantime",
            "host wait",
            "ms",
        ),
    ]
    drained_ns: Annotated[
        int,
        Shown(
            "time of the cause host/queue-drained for this function, in which the GPU is idle between"
            " the return of a call and the next launch",
            "GPU idle",
            "ms",
        ),
    ]
    path: Annotated[str | None, Shown("NVTX ranges that contain most of the calls", "in")]


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """The calls that launched the kernels and graphs of the step.

    `call_ns` adds up their durations, which include profiler overhead. `calls_per_s` is the rate of calls
    that the step needs. `outpaced_share` is the share of calls that took longer than the work they launched;
    a graph is one call for many kernels. `kernel_median_ns` covers compute kernels, `None` if there are none.
    The step is launch-bound if most calls are outpaced and the host is not ahead.
    """

    calls: int
    call_ns: int
    median_ns: int
    p90_ns: int
    calls_per_s: float
    kernel_median_ns: int | None
    outpaced_share: float
    is_launch_bound: bool


@dataclass(frozen=True, slots=True)
class HostAhead:
    """Time from the end of a launch call to the start of its first operation: the depth of the launch queue.

    A long time means a deep queue; if it is near 0, the device waits for the host. Only calls for compute and
    opaque graphs are included. A call that returns after its kernel began counts as 0.
    """

    median_ns: int
    p10_ns: int
    launches: int


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Share of the step in which the thread with the most launches was on a CPU.

    It comes from thread switches if they were traced. Otherwise it is estimated from CPU samples, which exist
    only for running threads: their number times the usual time between two. `count` is the number of switches
    or samples in all steps.
    """

    share: float
    source: Literal["switches", "samples"]
    count: int


@dataclass(frozen=True, slots=True)
class Serialisation:
    """Kernels of different streams that ran one after the other without a dependency.

    A kernel counts if it started within 5 microseconds after the end of an earlier issued kernel of another
    stream, and was ready for at least 10 microseconds. Ready means issued, with all dependencies done.
    `held_ns` adds up how long they were ready while the other kernel ran. `roomy_count` and `roomy_ns`
    include only those after a kernel with fewer blocks than the GPU has multiprocessors, because larger ones
    may have filled the GPU. `overlap_ns` is the time in which kernels of several streams ran together. All
    this is evidence of shared work queues, not proof. `max_connections` is CUDA_DEVICE_MAX_CONNECTIONS.
    """

    max_connections: int | None
    count: float
    held_ns: int
    roomy_count: float | None
    roomy_ns: int | None
    overlap_ns: int


@dataclass(frozen=True, slots=True)
class HostRange:
    """A path of ranges, and how much of the host wall it contains in the mean step.

    Attributes:
        name: of its innermost range, folded.
        path: written out, outermost first.
        host_ns: time of the host wall in it and in the ranges inside.
    """

    name: str
    path: str
    host_ns: int


@dataclass(frozen=True, slots=True)
class LockedCall:
    """Calls of one name that waited while another thread held the driver in calls of another name.

    `count` and `waited_ns` are those of a step. They cost time only if the device waits, which is the cause
    `memory/driver-lock`.
    """

    name: str
    holder: str
    count: float
    waited_ns: int


@dataclass(frozen=True, slots=True)
class HostDetails:
    """The host in the typical step, with the most expensive blocking calls first.

    `launches` and `ahead` are `None` if no launch call is known, `cpu` without switches and samples, and
    `serialisation` if it is unknown which streams order with the null stream. `range` is the innermost path
    that holds at least half of the host wall, `None` without one. `locked_calls` are sorted by their waits,
    the longest first. `longest_gap_ns` is the longest host time in a single gap of these steps, allocation
    included, and `longest_gap_share` its share.
    """

    blocking_calls: tuple[BlockingCall, ...]
    launches: LaunchCost | None
    ahead: HostAhead | None
    cpu: CpuTime | None
    serialisation: Serialisation | None
    range: HostRange | None = None
    locked_calls: tuple[LockedCall, ...] = ()
    longest_gap_ns: int = 0
    longest_gap_share: float = 0.0


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies of one direction and host memory.

    The bandwidth is `None` without copies of that size and for memsets. Smaller copies measure latency.
    """

    direction: Annotated[
        CopyDirection,
        Shown(
            "host-to-device, device-to-host, device-to-device, host-to-host, migration-to-device,"
            " migration-to-host, migration-between-devices, fill (memset) or unknown",
            "direction",
        ),
    ]
    count: Annotated[int, Shown("number of copies that begin in the {whole}", "count", "count")]
    bytes: Annotated[int, Shown("summed sizes of the copies", "bytes", "size")]
    work_ns: Annotated[int, Shown("summed durations of the copies inside the {whole}", "work", "ms")]
    exposed_ns: Annotated[
        int,
        Shown(
            "time in which any of the copies ran, but no compute kernel, opaque CUDA graph or"
            " communication did",
            "alone",
            "ms",
        ),
    ]
    pinned: Annotated[
        bool | None,
        Shown(
            "whether the host memory is pinned; empty if unknown or if no host memory is used", "host memory"
        ),
    ]
    bulk_bandwidth_bytes_per_s: Annotated[
        float | None, Shown("bandwidth of copies of 64 KiB or more while they were running", "rate", "rate")
    ] = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Device memory in use, from recorded allocations and releases; all values are lower bounds.

    `headroom_bytes` is the capacity minus the peak. `growth_bytes_per_step` compares the ends of the first
    and the last steady step, `None` if there are fewer than two. Older allocations are missing unless
    recording began before the first device operation (`from_the_start`).
    """

    headroom_bytes: int | None
    growth_bytes_per_step: int | None
    from_the_start: bool


@dataclass(frozen=True, slots=True)
class Offload:
    """Copies to the host and back in the typical step; `work_ns` sums their durations, both ways."""

    to_host: int
    to_host_bytes: int
    to_device: int
    to_device_bytes: int
    work_ns: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a rank: capacity and traffic.

    `allocator_ns` adds up the time of launching threads in allocation and release calls during a step: host
    time, not a stall. `use` is `None` if allocations were not recorded.
    """

    peak_bytes: int | None
    capacity_bytes: int | None
    allocator_calls: int | None
    copies: tuple[CopyWork, ...]
    allocator_ns: int | None = None
    use: MemoryUse | None = None
    offload: Offload | None = None


class GpuMetric(StrEnum):
    """Metrics with a known meaning, each a share of the GPU's peak.

    `sm-active` is residency: how many multiprocessors hold a warp, not how much they do. `sm-issue` and
    `tensor-active` show throughput. For NVLink the user data of requests and responses is the payload. Shares
    of PCIe include its protocol.
    """

    SM_ACTIVE = "sm-active"
    SM_ISSUE = "sm-issue"
    TENSOR_ACTIVE = "tensor-active"
    TENSOR_OR_FP16_ACTIVE = "tensor-or-fp16-active"  # Turing counts both together
    DRAM_READ = "dram-read"
    DRAM_WRITE = "dram-write"
    NVLINK_RECEIVED_REQUESTS = "nvlink-received-requests"
    NVLINK_RECEIVED_RESPONSES = "nvlink-received-responses"
    NVLINK_SENT_REQUESTS = "nvlink-sent-requests"
    NVLINK_SENT_RESPONSES = "nvlink-sent-responses"
    PCIE_RECEIVED = "pcie-received"
    PCIE_SENT = "pcie-sent"


SPELLED = {
    "sm active": GpuMetric.SM_ACTIVE,
    "sm issue": GpuMetric.SM_ISSUE,
    "tensor active": GpuMetric.TENSOR_ACTIVE,
    "tensor active / fp16 active": GpuMetric.TENSOR_OR_FP16_ACTIVE,
    "dram read bandwidth": GpuMetric.DRAM_READ,
    "dram write bandwidth": GpuMetric.DRAM_WRITE,
    "nvlink rx requests user data": GpuMetric.NVLINK_RECEIVED_REQUESTS,
    "nvlink rx responses user data": GpuMetric.NVLINK_RECEIVED_RESPONSES,
    "nvlink tx requests user data": GpuMetric.NVLINK_SENT_REQUESTS,
    "nvlink tx responses user data": GpuMetric.NVLINK_SENT_RESPONSES,
    "pcie rx bandwidth": GpuMetric.PCIE_RECEIVED,
    "pcie tx bandwidth": GpuMetric.PCIE_SENT,
}
"""The metrics by their names in the configurations of Nsight Systems 2023.4 to 2026, normalized."""
CLOCK_METRIC = "gpc clock frequency"
"""The clock of the multiprocessors in Hz, normalized like these."""


@dataclass(frozen=True, slots=True)
class MetricMean:
    """A metric of the GPU in the typical step.

    Samples are whole percentages, so the mean is coarse below 1 % and rounded above.
    """

    metric: Annotated[GpuMetric, Shown("name of the metric", "metric")]
    mean_share: Annotated[
        float, Shown("mean of the samples, as a share of the peak", "mean of peak", "percent")
    ]
    samples: Annotated[int, Shown("number of samples", "samples", "count")]


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples of the rank's GPU from the steps that make up its typical step.

    They cover the whole GPU and all of its users. `samples` counts moments. `exclusive_share` is the share of
    them in which no other rank of the export had an operation on that GPU, `None` if the GPU of another rank
    is unknown. Processes that were not captured are not visible.
    """

    gpu: int
    samples: int
    exclusive_share: float | None
    means: tuple[MetricMean, ...]

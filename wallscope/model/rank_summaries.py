"""Parts of the answer about one rank: communication, compute, host, memory, GPU metrics.

A part of the published contract of `model.analysis`. Shares are of the compute work of the typical step,
added-up durations of its compute kernels, unless they say of what else: work, not time. `None` is unknown.

A part of the published contract of `model.analysis`. Times are integer nanoseconds, counts and times are
means of the typical step, `None` is unknown and never means 0.

A part of the published contract of `model.analysis`. What was not sampled is `None`, never 0.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from wallscope.model.enums import Axis, Backend, Collective, ComputeCategory, CopyDirection, Precision


@dataclass(frozen=True, slots=True)
class CommunicationOperation:
    """The communication operations of one collective, axis and library.

    `work_ns` adds up durations; `exposed_ns` is the time in which one of them ran and neither
    compute nor an opaque graph did. `bytes` are as NCCL counts them: of all-gather and reduce-scatter
    one rank's part. `evidence` are the commonest things that told the axis, at most three. The bandwidth
    is over the duration on this rank, which includes waiting for peers.
    """

    operation: Collective
    axis: Axis
    backend: Backend
    count: int
    work_ns: int
    exposed_ns: int
    bytes: int | None
    bus_bandwidth_bytes_per_s: float | None = None
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OverlapTax:
    """How much slower compute kernels ran while communication ran beside them than alone.

    `ratio` compares medians of the same kernel and launch shape; `slowed_ns` is the extra work in a
    typical step, below 0 where they ran faster; `kernels` is how many that ran beside it were compared.
    """

    ratio: float
    slowed_ns: int
    kernels: int


@dataclass(frozen=True, slots=True)
class DispatcherWork:
    """Work of a token dispatcher in the typical step: added-up durations, not time.

    Packing, unpacking and routing (scores, counts, layouts) stay on the GPU; synchronisation waits for
    peers; transport moves tokens.
    """

    pack_ns: int
    synchronise_ns: int
    transport_ns: int
    unpack_ns: int
    routing_ns: int


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication of a rank: the time it ran, and how much of it nothing hid.

    `overlap_tax` is `None` where no kernel ran often enough both ways, `dispatcher` where nothing
    communicated between experts.
    """

    union_ns: int
    exposed_ns: int
    blocking_ns: int | None
    hidden_share: float | None
    operations: tuple[CommunicationOperation, ...]
    overlap_tax: OverlapTax | None = None
    dispatcher: DispatcherWork | None = None


@dataclass(frozen=True, slots=True)
class PrecisionWork:
    """Matrix multiplications of one precision, as names of kernels tell; the share is of all of them."""

    precision: Precision
    work_ns: int
    share: float
    kernels: int


@dataclass(frozen=True, slots=True)
class LeadingKernel:
    """Kernels of one short name in the typical step: what they are, how many begin, how long they run."""

    name: str
    category: ComputeCategory
    precision: Precision
    kernels: int
    work_ns: int


@dataclass(frozen=True, slots=True)
class CategoryPrecision:
    """Kernels of a category that multiplies, of one precision; the share is of all compute work."""

    category: ComputeCategory
    precision: Precision
    work_ns: int
    share: float
    kernels: int


@dataclass(frozen=True, slots=True)
class SmallMultiplications:
    """Runs of at least four like matrix multiplications under 50 microseconds, nothing between them.

    That is how the experts of a layer run that are not grouped into one kernel.
    """

    runs: int
    kernels: int
    work_ns: int
    share: float


@dataclass(frozen=True, slots=True)
class LaunchShapes:
    """How well grids and blocks fit the GPU; each `None` where the facts for it are missing.

    `small_grid_share` is of kernels with fewer blocks than the GPU has multiprocessors. `tail_share` is
    what the last, partly filled wave of larger grids leaves idle, if all blocks take equally long: an
    estimate. `occupancy` is the theoretical one, the mean by work of all kernels but matrix
    multiplications and attention, which are made to run at a low one; `low_occupancy_share` is of those
    below a quarter. `known_share` is of kernels whose occupancy could be worked out.
    """

    known_share: float
    small_grid_kernels: int | None
    small_grid_share: float | None
    tail_share: float | None
    occupancy: float | None
    low_occupancy_share: float | None


@dataclass(frozen=True, slots=True)
class ComputeDetails:
    """What the compute kernels of a typical step are made of, as names and launch shapes tell.

    `unfused_elementwise_share` is of single operations of a framework, `cast_share` of copies between
    number formats, `quantize_share` of scaling and packing for low precision. `permute_fused` and
    `router_fused` are `None` where no kernel tells, as in models without experts. `leading_kernels` are the
    first few of each category that matters. `flops` are those of the typical step by the shapes of operators,
    work that runs again included; `None` where a kernel that may multiply lacks them.
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


RepeatedUnit = Literal["microbatch", "layer"]


@dataclass(frozen=True, slots=True)
class BlockingCall:
    """Calls of one name that waited until the device had nothing left to do, those that end in the step.

    `per_unit` is how many of them one range of a layer or microbatch holds, where at least half of them lie
    in such ranges and there is one for every other range. `waited_ns` is how long the host stood in them: no
    cost by itself, the device worked. `drained_ns` is the cost, what the cause `host/queue-drained/<name>`
    owns. `path` is the commonest path of ranges around them, of those that are in a range.
    """

    name: str
    count: float
    unit: RepeatedUnit | None
    per_unit: float | None
    waited_ns: int
    drained_ns: int
    path: str | None


@dataclass(frozen=True, slots=True)
class LaunchCost:
    """The calls that launched the kernels and graphs of the step.

    `call_ns` adds up their durations, as the profiler lengthens them. `calls_per_s` is the rate at which the
    step needs them. `outpaced_share` is of calls that took longer than all that they launched then ran: a
    graph is one call for many kernels. `kernel_median_ns` is of compute kernels, `None` where there are
    none. The step is launch-bound where most calls are outpaced and the host is not ahead.
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
    """From the end of a launch call to the start of what it launched first: the launch queue, as time.

    A long time is a deep queue, the opposite of starvation; near 0 the device waits for the host. Calls of
    compute and of opaque graphs alone; one that returns after its kernel began is 0 ahead.
    """

    median_ns: int
    p10_ns: int
    launches: int


@dataclass(frozen=True, slots=True)
class CpuTime:
    """Share of the step's time that the thread which launches most was on a CPU.

    By the switches of threads, where these were traced; else estimated from CPU samples, which are taken
    of running threads alone: their number by the usual time between two. `count` is that of the
    switches or samples in all steps.
    """

    share: float
    source: Literal["switches", "samples"]
    count: int


@dataclass(frozen=True, slots=True)
class Serialisation:
    """Kernels of different streams that ran one behind the other though nothing orders them.

    Counted are kernels that started within 5 microseconds after one of another stream ended that was issued
    earlier, and had been ready for 10 microseconds and more by then: issued, all that they wait for
    done. `held_ns` adds up how long they were ready while the other ran. `roomy_count` and `roomy_ns` are
    of those behind a kernel with fewer blocks than the GPU has multiprocessors; behind larger ones the GPU
    may just have been full. `overlap_ns` is the time in which kernels of several streams did run together.
    Evidence of shared work queues, no proof: `max_connections` is CUDA_DEVICE_MAX_CONNECTIONS.
    """

    max_connections: int | None
    count: float
    held_ns: int
    roomy_count: float | None
    roomy_ns: int | None
    overlap_ns: int


@dataclass(frozen=True, slots=True)
class HostRange:
    """A path of ranges and how much of the host wall passes in it, in the mean step.

    Attributes:
        name: of its innermost range, folded.
        path: written out, outermost first.
        host_ns: time of the host wall in it and in the ranges inside.
    """

    name: str
    path: str
    host_ns: int


@dataclass(frozen=True, slots=True)
class HostDetails:
    """The host's part in the typical step; blocking calls by what they cost, the most first.

    `launches` and `ahead` are `None` where no launch call is known, `cpu` without switches and samples,
    `serialisation` where it is unknown which streams order with the null stream. `range` is the innermost
    path that holds at least half of the host wall, `None` without one.
    """

    blocking_calls: tuple[BlockingCall, ...]
    launches: LaunchCost | None
    ahead: HostAhead | None
    cpu: CpuTime | None
    serialisation: Serialisation | None
    range: HostRange | None = None


@dataclass(frozen=True, slots=True)
class CopyWork:
    """Copies of one direction and host memory; `exposed_ns` is time in which nothing else ran.

    `pinned` is `None` where no host memory takes part or the export does not tell. The bandwidth is that
    of copies of 64 KiB and more while they ran, `None` without any and for fills; smaller ones measure
    latency.
    """

    direction: CopyDirection
    count: int
    bytes: int
    work_ns: int
    exposed_ns: int
    pinned: bool | None
    bulk_bandwidth_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Device memory in use, as recorded allocations and releases tell: all is a lower bound.

    `headroom_bytes` is what the peak leaves of the capacity; `growth_bytes_per_step` compares the ends of
    the first and the last steady step, `None` where there are fewer than two. Unless recording began
    before the first device operation (`from_the_start`), older allocations are missing.
    """

    headroom_bytes: int | None
    growth_bytes_per_step: int | None
    from_the_start: bool


@dataclass(frozen=True, slots=True)
class Offload:
    """Copies to the host that come back, in the typical step: both ways, with added-up durations."""

    to_host: int
    to_host_bytes: int
    to_device: int
    to_device_bytes: int
    work_ns: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a rank: capacity and traffic.

    `allocator_ns` adds up the time that threads that issue work spent in allocation and release calls
    during a step: host time, not a stall. `use` is `None` where allocations were not recorded.
    """

    peak_bytes: int | None
    capacity_bytes: int | None
    allocator_calls: int | None
    copies: tuple[CopyWork, ...]
    allocator_ns: int | None = None
    use: MemoryUse | None = None
    offload: Offload | None = None


class GpuMetric(StrEnum):
    """Metrics whose meaning is known, each a share of the GPU's peak.

    `sm-active` is residency: how many multiprocessors hold a warp, not how much they do; `sm-issue` and
    `tensor-active` tell throughput. Of NVLink the user data of requests and responses is the payload;
    shares of PCIe hold its protocol too.
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
"""The metrics as the configurations of Nsight Systems 2023.4 to 2026 name them, normalised."""


@dataclass(frozen=True, slots=True)
class MetricMean:
    """Mean of one metric over its samples in the typical step, as a share of the peak.

    Samples are whole percents: below a percent the mean is coarse, and above 1 it is rounded.
    """

    metric: GpuMetric
    mean_share: float
    samples: int


@dataclass(frozen=True, slots=True)
class GpuMetrics:
    """Samples of the rank's GPU whose time lies inside the steps of its typical step.

    They are of the whole GPU, whoever used it. `samples` counts moments; `exclusive_share` is of those
    during which no operation of another rank of the export ran on that GPU, `None` where it is unknown
    on which GPU another rank ran. Processes that were not captured are not seen.
    """

    gpu: int
    samples: int
    exclusive_share: float | None
    means: tuple[MetricMean, ...]

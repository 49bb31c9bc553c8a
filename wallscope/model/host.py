"""What the host of a rank did in the typical step, in the answer: calls that drained the queue, launches.

A part of the published contract of `model.analysis`. Times are integer nanoseconds, counts and times are
means of the typical step, `None` is unknown and never means 0.
"""

from dataclasses import dataclass
from typing import Literal

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
class HostDetails:
    """The host's part in the typical step; blocking calls by what they cost, the most first.

    `launches` and `ahead` are `None` where no launch call is known, `cpu` without switches and samples,
    `serialisation` where it is unknown which streams order with the null stream.
    """

    blocking_calls: tuple[BlockingCall, ...]
    launches: LaunchCost | None
    ahead: HostAhead | None
    cpu: CpuTime | None
    serialisation: Serialisation | None

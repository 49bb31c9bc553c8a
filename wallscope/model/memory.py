"""Memory of a rank in the answer: capacity, use, traffic, offload.

A part of the published contract of `model.analysis`: times are integer nanoseconds, `None` is unknown.
"""

from dataclasses import dataclass

from wallscope.model.kinds import CopyDirection


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

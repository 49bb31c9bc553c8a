"""What a rank communicated: operations by axis, the dispatcher's work, and what overlap costs."""

from dataclasses import dataclass

from wallscope.model.kinds import Axis, Backend, Collective


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

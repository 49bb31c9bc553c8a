"""What is inside the compute of a rank, in the answer.

A part of the published contract of `model.analysis`. Shares are of the compute work of the typical step,
added-up durations of its compute kernels, unless they say of what else: work, not time. `None` is unknown.
"""

from dataclasses import dataclass

from wallscope.model.kinds import Precision


@dataclass(frozen=True, slots=True)
class PrecisionWork:
    """Matrix multiplications of one precision, as names of kernels tell; the share is of all of them."""

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
    `router_fused` are `None` where no kernel tells, as in models without experts.
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

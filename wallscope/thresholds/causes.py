"""Limits of causes: recomputation, copies, memory, compute, overlap, host."""

from typing import Final

SHORTEST_RECOMPUTED_RUN_COUNT: Final = 8
"""Kernels of the forward pass that must repeat in a row, to be forward work run again. Chosen."""
SHORTEST_FRESH_PREFIX_COUNT: Final = 4
"""Kernels that must repeat, for marked work to be run again and not for the first time. Chosen."""
RECOMPUTED_NAMES_COUNT: Final = 4
"""Different kernels of such a run: layers of one kernel name repeat themselves in both passes. Chosen."""
MOST_RECOMPUTED_SHARE: Final = 0.6
"""Of the backward pass; where more looks like the forward pass, ranges miss some backward work. Chosen."""
FEWEST_ATTENTION_TURNS_COUNT: Final = 2
"""Replays of attention between backward kernels: one may be chance where parts are not trained. Chosen."""
BULK_COPY_BYTES: Final = 65_536
"""Smaller copies between host and device move no bytes worth a claim: they cost the call. Chosen."""
MOST_FRESH_OFFLOAD_SHARE: Final = 0.25
"""Copies of a size that never come back, up to which those of the size are offload. Chosen."""
HIGH_HEADROOM_SHARE: Final = 0.05
"""Of capacity left at the peak, below which pressure is high. Chosen."""
NEAR_HEADROOM_SHARE: Final = 0.15
"""The same for near. Chosen."""
AMPLE_HEADROOM_SHARE: Final = 0.3
"""With so much left, recomputation and offload are not taken for pressure. Chosen."""
OFFLOADED_BYTES: Final = 1 << 26
"""Bytes moved to the host and back per step from which they are evidence of pressure. Chosen."""
SMALL_GEMM_NS: Final = 50_000
"""Matrix multiplications below are small. Chosen."""
FEWEST_SMALL_RUN_COUNT: Final = 4
"""Small ones in a row that could be one grouped multiplication. Chosen."""
LOW_OCCUPANCY_SHARE: Final = 0.25
"""Share of the warps of a multiprocessor below which kernels not designed for it are reported. Chosen."""
KNOWN_PRECISION_SHARE: Final = 0.5
"""Share of GEMMs in the leading precision required to report MFU. Chosen."""
LEAST_COUNTED_SHARE: Final = 0.5
"""Share of the work of multiplying kernels whose FLOPs must be known, to state a rate and MFU. Chosen."""
UNKNOWN_PRECISION_SHARE: Final = 0.05
"""Share of GEMMs of unknown precision from which it counts as one of the run's. Chosen."""
FEWEST_BESIDE_COUNT: Final = 5
"""Kernels of a shape alone, and overlapping communication, required to compute a slowdown. Chosen."""
BESIDE_SHARE: Final = 0.5
"""Share of a kernel that communication must cover to overlap it. Chosen."""
LIKE_KERNELS_RATIO: Final = 1.5
"""Long by short kernels of a shape alone, up to which they count as alike. Chosen."""
SHORT_KERNELS_SHARE: Final = 0.1
"""Which of them are the short ones: this quantile. Chosen."""
LONG_KERNELS_SHARE: Final = 0.9
"""Which are the long ones. Chosen."""
FORWARD_PARTS_COUNT: Final = 4
"""One in so many reductions of a group may come from the main thread (of the loss, of norms), for the others
to be of gradients. Chosen: tensor parallelism reduces as often there."""
EXPERT_KERNELS_NEAR_COUNT: Final = 6
"""Kernels before and after a message among which one of experts must be. Chosen: an MoE layer has a few."""
EXPERT_MESSAGES_SHARE: Final = 0.5
"""Messages of a group that lie between kernels of experts, for them to carry tokens. Chosen: most."""
DATA_WAIT_NS: Final = 1_000_000
"""Time without a launch before a batch copy that is data loading. Chosen: a finished batch takes less."""
BATCH_COPY_BYTES: Final = 4_096
"""Of a copy to the device that may be of a batch. Chosen: a page; token ids of a sequence are more."""
FEWEST_BATCHES_COUNT: Final = 3
"""Copies of one size that recur, for them to be of batches. Chosen, as `FEWEST_UNITS_COUNT`."""
READY_NS: Final = 10_000
"""Work that has been ready for so long waits for more than the latency of its launch. Chosen."""
HELD_BEHIND_NS: Final = 5_000
"""A held kernel begins within this after the one that held it. Chosen."""
HELD_LOOKED_BACK_COUNT: Final = 8
"""Kernels before it that may have held it. Chosen, to bound the time."""
FEWEST_CPU_SAMPLES_COUNT: Final = 20
"""Minimum number of CPU samples to estimate where a thread's time went. Chosen."""
FEWEST_COLLECTOR_SAMPLES_COUNT: Final = 2
"""CPU samples in a row inside a garbage collector, for its run to be known. Chosen: one may be chance."""
COLLECTOR_SAMPLES_APART_RATIO: Final = 3
"""Time between two of them, by the usual one: beyond, the thread did not run in between. Chosen."""
LAUNCH_BOUND_SHARE: Final = 0.5
"""Of launches that outlast what they launch, above which a rank may be launch-bound. Chosen: most."""

"""Limits of causes (recomputation, copies, memory, compute, overlap, host), of replays and of ranks.

Ranks: which collectives are one, whose clock is off, who is late. Limits that only `whatif` uses are in its
modules.
"""

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
PLANNED_KERNELS_SHARE: Final = 0.8
"""Of the time of multiplying kernels, in those that fit a configuration, to take its FLOPs. Chosen: others
belong to heads, or have tiles of unknown size."""
ONE_PRECISION_SHARE: Final = 0.9
"""Of the time of kernels that multiply, in one precision, to measure all of them by its peak. Chosen: a
router or a first layer may run in another."""
COMPLETE_FLOPS_SHARE: Final = 0.99
"""Of the work of multiplying kernels, with FLOPs by shapes: beyond, a configuration adds nothing. Chosen."""
SHORT_KERNEL_NS: Final = 10_000
"""A multiplication below this takes as long to start and end as to multiply. Chosen."""
SAMPLED_ALONE_SHARE: Final = 0.9
"""Of a sample of GPU metrics that kernels of one category must run, without others. Chosen."""
FEWEST_SAMPLES_COUNT: Final = 10
"""Samples of which a mean says something. Chosen: each is in whole percents."""
SATURATED_BANDWIDTH_SHARE: Final = 0.6
"""Of the memory's peak, from which bandwidth limits kernels: copies reach 0.8 to 0.9 of it. Chosen."""
BELOW_PEAK_SHARE: Final = 0.1
"""Of the time of kernels of a category, from which a reason for being below the peak is named. Chosen."""
FULL_EXPERT_ROWS: Final = {"sm_90": 512, "sm_100": 1024, "sm_103": 1024}
"""Rows of an expert that two tiles of a grouped multiplication have, by architecture: with fewer, tiles stay
partly empty and each weight is read for few rows."""
HIGHEST_CLOCK_RATIO: Final = 1.08
"""Rate by that of the data sheet up to which a higher clock explains it.

Hopper runs up to 1,980 MHz, and its data sheet assumes 1,830.
"""
UNKNOWN_PRECISION_SHARE: Final = 0.05
"""Share of GEMMs of unknown precision from which it counts as one of the run's. Chosen."""
MOST_BETWEEN_PRODUCTS_COUNT: Final = 8
"""Kernels from the softmax of attention to a multiplication: scale, bias, mask, casts, dropout. Chosen."""
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
FIRST_LAUNCH_NS: Final = 100_000
"""Of the first launch of a kernel that loads its module, at least. Chosen: launches take some 5 µs."""
FIRST_LAUNCH_RATIO: Final = 10
"""The same by the median of launches. Chosen."""
DATA_WAIT_NS: Final = 1_000_000
"""Time without a launch before a batch copy that is data loading. Chosen: a finished batch takes less."""
OFFLOAD_WORK_NS: Final = 200_000
"""Time without a call before offloaded bytes return that is work on them. Chosen: Python takes less."""
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


FEWEST_PLAYED_WINDOWS_COUNT: Final = 2
"""Windows of a replay: one is replayed, another checks it. By definition."""
USUAL_DEPENDENCY_LATENCY_NS: Final = 1_000
"""Between dependent kernels of a stream. Measured: on the GPUs of the last ten years."""
PATH_ERROR_SHARE: Final = 0.01
"""Largest error of unchanged replayed steps for a critical path. Chosen; elsewhere 2 and 5 %."""
ONE_WALL_OF_PART_SHARE: Final = 0.9
"""Share of a part of the critical path that one wall must have to be its wall. Chosen."""
MOST_PLAYED_COUNT: Final = 30_000
"""Operations of a replay window, which has one step at least. Chosen, to bound the time: a dozen causes are
asked of each rank."""
REFUSED_PLAYED_COUNT: Final = 60_000
"""Two steps with more get no replayed fixes; `wallscope whatif` replays them on request. Ranks
that have more together are replayed one by one. Chosen, to bound the time."""
FIX_REPLAY_ERROR_SHARE: Final = 0.05
"""A fix gets no replayed gain if steps simulated with the latencies of the others are off by more. Chosen."""
REPLAYED_LENGTH_SHARE: Final = 0.1
"""Largest difference between a step and the time from its first operation to that of the next step, by the
step, with which it is replayed. Chosen: the replay measures the latter."""
FOLLOWED_STREAMS_COUNT: Final = 4
"""Busiest streams whose operations are followed from step to step in a replay. Chosen: compute, communication
and copies both ways; each takes another simulation."""
SIDE_BY_SIDE_RATIO: Final = 1.1
"""Sum of the lengths of kernels by the time in which any ran, above which replays may let them run side by
side. Chosen: the last blocks of a kernel overlap the next one in many captures, by 1 to 2 %."""
UNEXPLAINED_STEP_SHARE: Final = 0.001
"""Of a replayed step, that no path through it explains, for a thread with a pace of its own to hold it up.
Chosen: less is rounding."""
UPPER_BOUND_ERROR_SHARE: Final = 0.02
"""No upper bound is given if steps simulated unchanged are off by more. Chosen; `PATH_ERROR_SHARE` is that of
paths, and `FIX_REPLAY_ERROR_SHARE` that of steps simulated with the latencies of others."""


LATEST_RECORD_NS: Final = 2**61
"""No record starts or ends later. By definition: above the clocks of all captures, including UTC in ns."""
LONGEST_RECORD_NS: Final = 2**50
"""No record lasts longer. Chosen: thirteen days."""
LONGEST_SUM_NS: Final = 2**60
"""All records of one kind take no longer together. By definition: sums of it stay within 64 bits."""
LONGEST_LEAD_NS: Final = 3_600_000_000_000
"""A program runs before the first other record of a trace for less than this. Chosen: an hour."""
CALLS_LEAD_NS: Final = 1_000_000
"""The same of operations and calls, which nothing precedes by so much. Chosen."""
SURPLUS_NS: Final = 10_000_000_000
"""How much longer than all other records show a capture, at least, one of them may last. Chosen."""
CLOCK_EARLY_NS: Final = 10_000
"""An operation that starts so long before its launch cannot be on the clock of the CPU. Measured: of captures
with good clocks the worst starts 3 µs early."""
CLOCK_EARLY_SHARE: Final = 0.01
"""Launched operations that must start early, for the clock of their device to be off. Chosen: one is an error
of its own."""
CLOCK_EARLY_IDLE_SHARE: Final = 0.2
"""The same of operations on an idle device: others wait in the queue, and may hide it. Chosen."""
CLOCK_LATE_NS: Final = 50_000
"""Work that a call waited for may end so long after it, and a launch on an idle device may take so long.
Measured: at most 3 µs, and 40 µs as the smallest of a capture."""
CLOCK_LATE_SHARE: Final = 0.2
"""Waits that must return before the end of their work, for the clock to be off. Chosen."""
CLOCK_IDLE_NS: Final = 10_000
"""A device is idle that has run nothing for so long. Chosen."""
CLOCK_FEWEST_IDLE_COUNT: Final = 8
"""Launches on an idle device, from which on their smallest latency says something. Chosen."""
CLOCK_PROMPT_SHARE: Final = 0.05
"""Of these, that share the smallest latency at least. Chosen: fewer than in any capture with good clocks."""
CLOCK_ALIKE_NS: Final = 40_000
"""Smallest latencies that differ by less are one. Measured: those of parts of a capture, as above."""
CLOCK_USUAL_LATENCY_NS: Final = 6_000
"""Smallest latency of a launch on an aligned device. Measured: the median of that of 60 captures."""
CLOCK_UNKNOWN_LATENCY_NS: Final = 10_000_000
"""Latency of all launches from which on a capture with too few of them may be off or not. Chosen."""
CLOCK_DRIFT_BINS_COUNT: Final = 32
"""Parts of a capture whose smallest latencies show a drift. Chosen."""
CLOCK_FEWEST_ON_LINE_COUNT: Final = 6
"""Of these, that must lie on a line. Chosen."""
CLOCK_ON_LINE_SHARE: Final = 0.6
"""The same as a share. Chosen: most."""


FEWEST_MET_COUNT: Final = 2
"""Collectives that must end together, for ranks to be partners. By definition: one may be chance."""
LEAST_MET_SHARE: Final = 0.9
"""The same as a share of the rank with fewer of them. Chosen."""
MET_ENDS_APART_NS: Final = 50_000
"""Between the ends of one collective, in the median. Clocks of two GPUs of a host differ by some 20 µs."""
MET_SPREAD_NS: Final = 2_000
"""How much the distance of ends on one clock may vary. Chosen; other values below for other evidence."""
MET_SPREAD_SHARE: Final = 0.25
"""The same as a share of how much the distance of starts varies. Chosen."""
SAME_WORK_SHARE: Final = 0.2
"""Of an operation's duration, how far its begin and end lie from those that NCCL traced. Chosen."""
SIZED_MET_SPREAD_NS: Final = 20_000
"""The same as `MET_SPREAD_NS` where the size of the group is known. Chosen."""
FEWEST_PAIRED_COUNT: Final = 2
"""Collectives of two ranks on two clocks that must pair, if the communicator is unknown. Chosen."""
PAIRED_ALIKE_SHARE: Final = 0.98
"""Pairs that must be the same operation. Chosen."""
PAIRED_SPREAD_NS: Final = 50_000
"""How much the distance of ends on two clocks may vary. Chosen; on one clock it is `MET_SPREAD_NS`."""
PAIRED_SPREAD_SHARE: Final = 0.25
"""The same as a share of how much the distance of starts varies. Chosen."""
FARTHEST_SHIFT_COUNT: Final = 256
"""Collectives that a capture may lack at its beginning, if the communicator is known. Chosen."""
FARTHEST_UNNAMED_SHIFT_COUNT: Final = 4
"""The same if it is unknown. Chosen: a longer shift can fit by chance."""
SHIFT_SAMPLE_COUNT: Final = 400
"""Pairs by which shifts are judged. Chosen, to bound the time."""
SAME_SHIFT_NS: Final = 5_000
"""Shifts are equally good if distances vary by so much more than at the best. Chosen."""
SAME_SHIFT_RATIO: Final = 1.5
"""And by so many times what they vary at the best. Chosen."""
EVEN_GROUP_NS: Final = 1_000
"""A further rank belongs to a group if its distances vary by so much more than those of the first. Chosen."""
EVEN_GROUP_RATIO: Final = 3.0
"""And by so many times what those vary. Chosen; shifts have 1.5."""
REGULAR_ORDER_RATIO: Final = 2.0
"""By how much more ends may vary in an order of ranks than in the best one, to be as good. With eight
collectives of a kind, planted jobs show up to 1.6 within an order, and 2.5 and more beyond it."""
REGULAR_GROUPS_SHARE: Final = 0.9
"""Of the ranks that must end with the first of their group, for all groups to have an order. Chosen."""
REGULAR_SAMPLE_COUNT: Final = 8
"""Groups, and ranks of each, by which an order is judged. Chosen, to bound the time."""
KNOWN_GROUP_RATIO: Final = 1.5
"""By how much less constant the next rank is, where a group is one of another operation. Chosen."""
KNOWN_PAIR_RATIO: Final = 3.0
"""The same where the known group has two ranks. Chosen, as `EVEN_GROUP_RATIO`."""
FEWEST_FOR_DRIFT_COUNT: Final = 8
"""Minimum number of collectives to compute a drift between clocks. Chosen."""
SHORTEST_FOR_DRIFT_NS: Final = 50_000_000
"""And the time that they span. Chosen."""
LARGEST_DRIFT_RATIO: Final = 1e-3
"""A larger drift is an error: only an offset is used. Chosen; crystals drift by some 1e-5."""
CLOCK_ROUNDS_COUNT: Final = 3
"""Times that clocks are laid on each other anew. Chosen."""
EARLY_RECEIVER_NS: Final = 50_000
"""A sender may be through so long before a receiver's clock says that it began. Chosen."""
UNEVEN_STAGES_SHARE: Final = 0.03
"""Of the step that a pipeline stage must work longer than the others, to be uneven. Chosen."""
COMPARED_PEERS_COUNT: Final = 8
"""Peers that a late rank is compared with. Chosen, to bound the time."""
SAME_KERNEL_COUNT_SHARE: Final = 0.005
"""A rank runs as many kernels as its peers if counts differ by no more. Chosen."""
MOST_OF_LATENESS_SHARE: Final = 0.6
"""Of what a rank takes longer that a reason must explain. Chosen."""
SLOWED_ALIKE_SHARE: Final = 0.5
"""How unevenly kernels may be slowed, for a slower clock to be the reason. Chosen."""
UNKNOWN_WAIT_SHARE: Final = 0.5
"""Of the time in collectives that were not matched, above which a rank's waiting is unknown. Chosen: most."""
REPORTED_WAIT_SHARE: Final = 0.25
"""Share of waiting in the time of collectives from which the verdict of a job states it. Chosen."""
REPORTED_JITTER_SHARE: Final = 0.02
"""Share of the step that ranks wait in turns from which the verdict states it. Chosen."""
MOST_REPLAYED_STEPS_COUNT: Final = 16
"""Steps of a job that are replayed. Chosen, to bound the time."""
CULPRIT_SHARE: Final = 0.01
"""Of the step that the repair of a unit must save, for the unit to be named. Chosen."""
UNEVEN_STAGE_GAIN_SHARE: Final = 0.02
"""The same for a pipeline stage: layers are not divisible at will. Chosen."""
LATE_STAGE_SHARE: Final = 0.1
"""By how much more a stage computes than the others, to be late even where moving layers gains nothing.
Chosen: more than an embedding or the loss explains."""
SHARED_LATENESS_SHARE: Final = 0.5
"""Of the ranks of a node that must be late, by this share of the mean of all, for the node to be. Chosen."""
SAME_GAIN_SHARE: Final = 0.03
"""Of the best gain that another may be less, to be about the same. Chosen."""
MOST_CULPRITS_COUNT: Final = 4
"""Units that are named of a job, one after the other. Chosen, to bound the time."""
WIDELY_SHARED_COUNT: Final = 32
"""Peers whose median is what a rank is compared with. Chosen, to bound the time."""
CERTAIN_DEVIATIONS_COUNT: Final = 4.0
"""Standard errors by which kernels take longer in a step, to be slow and not so by chance. Chosen."""
QUEUED_STAY_NS: Final = 5_000
"""Between operations of a stream of which the second waits for the first. Chosen: kernels follow so."""
LATE_STEP_SHARE: Final = 0.5
"""Of what a unit loses in the mean step, for it to be late in a step. Chosen."""
FEWEST_FOR_VARIATION_COUNT: Final = 3
"""Minimum number of steps to measure that. Chosen."""

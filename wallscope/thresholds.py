"""Every limit that decides a claim; names end with the unit. "Chosen": no measurement stands behind a value.

`_SHARE` is 0 to 1, `_RATIO` one value by the other.
"""

from fractions import Fraction
from typing import Final

# --- Steps ----------------------------------------------------------------------------------------------

FEWEST_ANCHOR_COUNT: Final = 2
"""A range marks steps if it occurs this often on a thread. By definition: one range does not repeat."""
MOST_ANCHOR_NAMES_COUNT: Final = 8
"""Of the names that may mark steps, the ones that cover most host time are tried. Chosen."""
FEWEST_UNITS_COUNT: Final = 3
"""A kernel sequence has a unit if that occurs so often. Chosen: of two the second may be cut off."""
SHORTEST_UNIT_COUNT: Final = 8
"""Kernels of a repeating unit, at least; shorter ones are loops inside a step. Chosen."""
SHORTEST_GRAPH_UNIT_COUNT: Final = 2
"""The same where CUDA graphs run: one replay stands for many kernels. Chosen."""
UNIT_MATCH_SHARE: Final = 0.9
"""Kernels that must repeat one unit later, for a unit to be one. Chosen."""
SAME_UNIT_MATCH_SHARE: Final = 0.005
"""Units whose matches differ less are equally good: the shortest is taken. Chosen."""
LIKELY_UNIT_MATCH_SHARE: Final = 0.5
"""Estimated match of a shift, from which on it is counted exactly. Chosen, below `UNIT_MATCH_SHARE`."""
UNIT_CANDIDATES_COUNT: Final = 200
"""Shifts that are counted exactly, the most likely first. Chosen, to bound the time."""
REGULAR_UNITS_SHARE: Final = 0.8
"""Units that must be as long as the shift, or alike, for windows to be steps and no fragments. Chosen."""
LIKE_UNITS_SHARE: Final = 0.75
"""Kernels that two units must share by name, of the longer one, to be alike. Chosen: some steps do more."""
MODEL_UNITS_COUNT: Final = 9
"""Units that the others are compared with, spread over all. Chosen, to bound the time."""
SURE_UNIT_MATCH_SHARE: Final = 0.95
"""The same as `UNIT_MATCH_SHARE` for a unit of fewer kernels than `SHORTEST_UNIT_COUNT`. Chosen."""
SHORTEST_SURE_UNIT_COUNT: Final = 3
"""Kernels of different names that such a unit holds, at least: two alternate in many a loop. Chosen."""
SHORTEST_STRETCH_SHARE: Final = 0.25
"""Of the kernels that the repeating part of a capture must hold, or recurring ranges must span. Chosen."""
STRETCH_PARTS_COUNT: Final = 4
"""Where a capture has no unit as a whole, it is looked for behind the first, second ... of so many parts."""
MOST_STREAMS_IN_TURN_COUNT: Final = 64
"""Streams of a rank of most work, that are looked at for taking turns. Chosen, to bound the time."""
MARKED_KERNELS_SHARE: Final = 0.5
"""Of the kernels from its first to its last instance that a range must hold, to mark steps. Chosen: most."""
MARKED_BY_CYCLE_SHARE: Final = 0.2
"""The same for one of several that take turns and together hold `CYCLE_KERNELS_SHARE`. Chosen."""
CYCLE_KERNELS_SHARE: Final = 0.8
"""Of the kernels that outermost ranges of equal count must hold together, to be phases of a step. Chosen."""
FEWEST_UNNAMED_STEPS_COUNT: Final = 3
"""Instances with work that a range of any name must have, to mark steps. Chosen, as `FEWEST_UNITS_COUNT`."""
MOST_UNNAMED_COUNT: Final = 32
"""Recurring ranges that are looked at, those of most host time first. Chosen, to bound the time."""
SAME_KERNELS_SHARE: Final = 0.95
"""Of the kernels of few outer ranges that an inner one must hold, to be the step instead. Chosen."""
COARSER_STEPS_RATIO: Final = 1.5
"""More ranges by updates or layered units, above which ranges are parts of a step. Chosen: below two."""
TOLD_RANGES_COUNT: Final = 4
"""Names of recurring ranges in a finding. Chosen."""
UNIT_LENGTH_PARTS_COUNT: Final = 10
"""A unit is about as long as the shift if it differs by at most one in so many kernels of it. Chosen."""
LAYERED_MATCH_SHARE: Final = 0.75
"""Match of a shorter shift that makes a unit layered, and so a step instead of a window. Chosen."""
LAYERED_PARTS_COUNT: Final = 3
"""How often the shorter shift must fit into the unit. Chosen."""
FEWEST_UPDATES_COUNT: Final = 2
"""Optimizer kernels of a burst that ends a step, at least. Chosen."""
FEWEST_BETWEEN_UPDATES_COUNT: Final = 20
"""Other kernels between two bursts, more than this. Chosen."""
SPLIT_BURST_PARTS_COUNT: Final = 4
"""Bursts are one where windows between them are unlike, and others lie so many times as far apart. Chosen."""
ANCHOR_AGREEMENT_SHARE: Final = 0.05
"""Two ways of finding steps disagree (`anchors-disagree`) if counts differ by more. Chosen."""
WARM_UP_RATIO: Final = 1.25
"""A leading step that takes longer than so many medians of the later ones is warm-up. Chosen."""
FEWEST_STEPS_FOR_QUARTILES_COUNT: Final = 8
"""Of so many steps those between the quartiles of length make the typical step, else all. Chosen."""
ENOUGH_STEPS_COUNT: Final = 5
"""With fewer steady steps, the unit inside shows the variation, and `few-steps` is reported. Chosen."""
FEWEST_INNER_UNITS_COUNT: Final = 4
"""A unit inside the step is reported if it occurs this often, and at least once per step. Chosen."""
WORKING_RANK_PARTS_COUNT: Final = 10
"""A rank works, and counts, if it computes at least one in so many parts of what the busiest does. Chosen."""

# --- Who waits for whom ---------------------------------------------------------------------------------

AGREEING_RECORDS_SHARE: Final = 0.5
"""Waits that must show the same offset of record numbers, for numbers to resolve waits. Chosen."""
EXPLAINED_TOLERANCE_NS: Final = 2_000
"""Work may end so much after what waited for it began, and still explain it: clock and rounding. Chosen."""
LONGEST_DEPENDENCY_LATENCY_NS: Final = 20_000
"""From the end of what was waited for to the start of what waited, at most. Chosen."""
LONGEST_UNEXPLAINED_LATENCY_NS: Final = 50_000
"""The same where nothing says that more was waited for: what takes longer is unresolved. Chosen."""
INFERRED_CLOSE_NS: Final = 10_000
"""What began within this after an operation of another stream ended may have waited for it. Chosen."""
INFERRED_CANDIDATES_COUNT: Final = 4
"""Operations that ended last before, which are looked at for that. Chosen, to bound the time."""
FEWEST_INFERRED_COUNT: Final = 3
"""Times that a pair of streams must show it, where no call says that a stream waits. Chosen."""
INFERRED_SHARE: Final = 0.5
"""And the share of the operations of that name and stream that nothing else explains. Chosen: most."""
FULL_QUEUE_COUNT: Final = 950
"""Launches of a stream that are pending when its queue is full, at least. Measured: 1,001 to 1,022."""
SHORTEST_HELD_CALL_NS: Final = 50_000
"""Of calls that a full queue or a lock may have held. Chosen; launches mostly take 3 to 15 us."""
LOCK_RETURN_NS: Final = 20_000
"""Two calls return together if no more lies between. Chosen: the way out of the driver."""
LOCKED_WORK_NS: Final = 100_000
"""A call that waited for a lock returns within this after its holder: it does its own work first. Measured:
50 to 80 us where a copy of 332 MB waits for one of 4 bytes (NERSC's vision transformer)."""
LOCKED_SHARE: Final = 0.8
"""Share of a call that another call must have overlapped, to have blocked it. Chosen: nearly all."""
LOCK_CANDIDATES_COUNT: Final = 8
"""Calls that returned last, which are looked at for that. Chosen, to bound the time."""
FEWEST_QUERIES_COUNT: Final = 3
"""Queries in a row that are a wait. Chosen: one or two only look."""
QUERIES_APART_NS: Final = 20_000
"""Time between two of them, at most. Chosen."""
FEWEST_SPINS_COUNT: Final = 5
"""Times that a thread must go on right after a kernel of its own ends, to have spun for it. Chosen."""
SPINS_SHARE: Final = 0.8
"""And the share of the runs of that kernel. Chosen: nearly all."""
TAIL_OPERATIONS_COUNT: Final = 6
"""Operations kept of those that a stream has to be through with, the latest-ending. Chosen, to bound sets."""
PRODUCER_TOLERANCE_NS: Final = 2_000
"""The same for work that is known to be waited for, in a blame chain. Chosen."""
LONGEST_CHAIN_COUNT: Final = 100_000
"""Operations that the blame chain of a gap passes; the rest is unresolved. Chosen, to bound the time."""
EXPLAINED_CLOSE_RATIO: Final = 4
"""A wait is explained by work that ended within this many usual dependency latencies. Chosen."""
EXPLAINED_CLOSE_NS: Final = 4_000
"""Within this it is explained in any case. Chosen."""
FEWEST_EXPLAINED_COUNT: Final = 3
"""Waits that another stream must explain, for records to be taken as made there. Chosen."""
EXPLAINED_CANDIDATES_COUNT: Final = 4
"""Streams that are tried for a kind of record. Chosen."""
EXPLAINED_LOOKED_BACK_COUNT: Final = 64
"""Earlier uses of streams by the thread that candidates are taken from. Chosen, to bound the time."""
EXPLAINED_ROUNDS_COUNT: Final = 3
"""Times that the order is built again from what the last round resolved. Chosen."""
GRAPH_EDGE_NS: Final = 5_000
"""A node that begins within this after another ended may depend on it. Chosen."""
GRAPH_EDGE_SHARE: Final = 0.9
"""Replays in which it must do so, for the edge to be taken as real. Chosen."""
FEWEST_REPLAYS_COUNT: Final = 2
"""Minimum number of replays to infer edges. By definition: one does not repeat."""
REPLAY_CLOCKS_APART_NS: Final = 20_000
"""A host segment that ends this little before its dependency is replayed after it. Chosen: clocks differ."""
BLOCKING_COPY_LATE_NS: Final = 50_000
"""A copy that is through when its call returns may end so much later on the device's clock. Chosen."""
BLOCKING_COPY_INSIDE_SHARE: Final = 0.5
"""Of a copy from pageable memory, before its call returned, for the call to be held by it. Chosen."""
FEWEST_PEERS_COUNT: Final = 3
"""Peers from which a group of NCCL messages is an all-to-all. Rings and pipelines have two neighbors."""
FEWEST_MESSAGES_COUNT: Final = 4
"""The same in messages, if peers are unknown: a ring sends and receives one per neighbor."""

# --- Collectives that are one ---------------------------------------------------------------------------

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
FARTHEST_UNTOLD_SHIFT_COUNT: Final = 4
"""The same if it is unknown. Chosen: a longer shift can fit by chance."""
SHIFT_SAMPLE_COUNT: Final = 400
"""Pairs by which shifts are judged. Chosen, to bound the time."""
SAME_SHIFT_NS: Final = 5_000
"""Shifts are equally good if distances vary by so much more than at the best. Chosen."""
SAME_SHIFT_RATIO: Final = 1.5
"""And by so many times what they vary at the best. Chosen."""
EVEN_GROUP_NS: Final = 5_000
"""A further rank belongs to a group if its distances vary by so much more than those of the first. Chosen."""
EVEN_GROUP_RATIO: Final = 3.0
"""And by so many times what those vary. Chosen; shifts have 1.5."""
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

# --- Recomputation and copies ---------------------------------------------------------------------------

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

# --- The wall -------------------------------------------------------------------------------------------

DOMINANT_SHARE: Final = 0.10
"""Of the step that a loss wall must take, to be the wall. Chosen."""
DOMINANT_LEAD_SHARE: Final = 0.03
"""Of the step that it must lead the next by. Chosen."""
DOMINANT_LED_SHARE: Final = 2 / 3
"""Of the steady steps that it must lead on. Chosen."""
MIXED_SHARE: Final = 0.20
"""Of the step that all loss walls take together, from which on the wall is `mixed`. Chosen."""
UNKNOWN_SHARE: Final = 0.10
"""Unattributed share of the step from which the wall is `unknown`, if no loss exceeds it. Chosen."""
HIGH_CONFIDENCE_SHARE: Final = DOMINANT_LEAD_SHARE
"""Of the step that may belong to another wall, up to which a verdict is sure: what a wall must lead by."""
MEDIUM_CONFIDENCE_SHARE: Final = 0.20
"""The same up to which it is fairly sure. Chosen: twice what makes a wall dominant."""
NO_KERNEL_SHARE: Final = 0.0005
"""Of a capture without steps in which kernels must run, for a verdict. Chosen: less prints as 0.0 %."""
WORK_OUTSIDE_SHARE: Final = 0.25
"""Share of device work before the first step from which steps may not represent the capture. Chosen."""
NEARLY_WHOLE_STEP_SHARE: Final = 0.95
"""Largest share of the step that a range may cover to be named as the place of host time. Chosen."""
OVERALL_SHARE: Final = 0.5
"""Of the capture that a loss must take then, to be its wall. By definition: most of it."""
SHARED_DEVICE_SHARE: Final = 0.03
"""Of the step in which work is queued on an idle device, from which on the verdict says so. Chosen."""
TOLD_UNRECOGNIZED_SHARE: Final = 0.03
"""Share of the step in unrecognized kernels from which the first sentence states it. Chosen."""
SHARE_ROUNDING: Final = 1e-9
"""Shares are rounded quotients: one that equals a threshold may come out a hair below it."""
NEXT_WALL_SHARE: Final = 0.10
"""Of what is left without the wall that a loss must take, to be the next. Chosen, as `DOMINANT_SHARE`."""
TOLD_CAUSE_SHARE: Final = 0.1
"""Share of the wall that a cause must take, to be named in the verdict. Chosen."""
TOLD_CAUSES_COUNT: Final = 2
"""Causes that the verdict names, at most. Chosen."""
MOSTLY_WAITING_PARTS_COUNT: Final = 2
"""Communication is said to be waiting if that is at least one in so many parts of it. Chosen: half."""
MUCH_COMMUNICATION_SHARE: Final = 0.25
"""Share of the step with communication from which the verdict states that it is hidden. Chosen."""
MOSTLY_HIDDEN_SHARE: Final = 0.5
"""Share of that time with overlapping compute for that statement. By definition: most of it."""
STALLED_STEP_RATIO: Final = 1.1
"""The longest steady step is reported if it takes longer than this many medians. Chosen."""

# --- What is large enough -------------------------------------------------------------------------------

MATERIAL_SHARE: Final = 0.01
"""Smaller values are neither acted on nor reported: possible gains of causes, ceilings, recompute, a late
rank, unrecognized kernels, calls or operations of a finding, the profiler. It is a share of the typical step,
or of the total concerned. A smaller kernel does not decide whether ranks do the same work. Chosen; the README
names it. Lists show more: `SHOWN_LOSS_SHARE`.
"""
ASKED_CAUSE_SHARE: Final = MATERIAL_SHARE / 2
"""Another question: of the typical step that a cause must take, for its ceiling to be worked out. A cause
can win more than it takes, and whether that is material is known only then. Half is chosen, for the time."""
OVERTURNING_SHARE: Final = DOMINANT_LEAD_SHARE
"""Unattributed time is warned of, and time that other ranks may explain, once it could change the wall.
"""
AT_WORK_TO_THE_END_SHARE: Final = 0.01
"""Of the capture, before its end, in which a stream must work, to be at work to the end. Chosen."""
ASKED_CAUSES_COUNT: Final = 12
"""Causes for which a ceiling is worked out. Chosen, to bound the time."""
GRAVE_PROFILER_OVERHEAD_SHARE: Final = 0.05
"""Of the window that the profiler took from one process, for `profiler-overhead` to be a warning. Chosen."""
RANGES_A_LAUNCH_RATIO: Final = 3
"""Ranges of PyTorch operators by launches, from which on `emit-nvtx` is said. Chosen."""
FEWEST_OPERATOR_RANGES_COUNT: Final = 10
"""And so many of them. Chosen."""
UNMATCHED_COLLECTIVES_SHARE: Final = 0.05
"""Of collectives that met no peer, for a finding on it. Chosen."""
ENDS_FAR_APART_NS: Final = 200_000
"""Ends of one collective so far apart on one clock are a finding. Chosen."""
CAPTURES_APART_NS: Final = 600_000_000_000
"""Captures that began farther apart are not of one job: clocks and queues set apart minutes at most."""

# --- Memory ---------------------------------------------------------------------------------------------

HIGH_HEADROOM_SHARE: Final = 0.05
"""Of capacity left at the peak, below which pressure is high. Chosen."""
NEAR_HEADROOM_SHARE: Final = 0.15
"""The same for near. Chosen."""
AMPLE_HEADROOM_SHARE: Final = 0.3
"""With so much left, recomputation and offload are not taken for pressure. Chosen."""
OFFLOADED_BYTES: Final = 1 << 26
"""Bytes moved to the host and back per step from which they are evidence of pressure. Chosen."""

# --- Compute and overlap --------------------------------------------------------------------------------

SMALL_GEMM_NS: Final = 50_000
"""Matrix multiplications below are small. Chosen."""
FEWEST_SMALL_RUN_COUNT: Final = 4
"""Small ones in a row that could be one grouped multiplication. Chosen."""
LOW_OCCUPANCY_SHARE: Final = 0.25
"""Share of the warps of a multiprocessor below which kernels not designed for it are reported. Chosen."""
KNOWN_PRECISION_SHARE: Final = 0.5
"""Share of GEMMs in the leading precision required to report MFU. Chosen."""
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

# --- Host -----------------------------------------------------------------------------------------------

FORWARD_PARTS_COUNT: Final = 4
"""One in so many reductions of a group may come from the main thread (of the loss, of norms), for the others
to be of gradients. Chosen: tensor parallelism reduces as often there."""
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
LAUNCH_BOUND_SHARE: Final = 0.5
"""Of launches that outlast what they launch, above which a rank may be launch-bound. Chosen: most."""

# --- Replays (limits that only `whatif` uses are in its modules) ----------------------------------------

FEWEST_PLAYED_WINDOWS_COUNT: Final = 2
"""Windows of a replay: one is replayed, another checks it. By definition."""
PATH_ERROR_SHARE: Final = 0.01
"""Largest error of unchanged replayed steps for a critical path. Chosen; elsewhere 2 and 5 %."""
MOST_PLAYED_COUNT: Final = 30_000
"""Operations that are replayed without a request. Chosen, to bound the time."""
REFUSED_PLAYED_COUNT: Final = 60_000
"""Two steps with more are not replayed without a request; `wallscope whatif` replays more."""
FIX_REPLAY_ERROR_SHARE: Final = 0.05
"""A fix gets no replayed gain if steps simulated with the latencies of the others are off by more. Chosen."""
UPPER_BOUND_PLAYED_COUNT: Final = 12_000
"""Operations of a window in which upper bounds of causes are simulated, one step at least. Chosen: a dozen
causes are asked of each rank. To be unified with `MOST_PLAYED_COUNT`."""
UPPER_BOUND_ERROR_SHARE: Final = 0.02
"""No upper bound is given if steps simulated unchanged are off by more. Chosen. To be unified with
`PATH_ERROR_SHARE` and `FIX_REPLAY_ERROR_SHARE`."""
ASKED_PLAYED_COUNT: Final = 160_000
"""Operations of a window that `wallscope whatif` simulates, as the user asked for it. Chosen."""

# --- Ranks ----------------------------------------------------------------------------------------------

LATE_IN_TURN_SHARE: Final = 0.05
"""Of the step that a rank must be late on some steps alone, net, to hold the job up in turn. Chosen."""
LATE_STEPS_SHARE: Final = 2 / 3
"""Of the steps on which it must be late, to be so repeatedly. Chosen."""
FEWEST_LATE_STEPS_COUNT: Final = 3
"""Minimum number of steps for that. Chosen."""
LATE_OF_ALL_SHARE: Final = 0.004
"""Of all time that a rank must be late in turn, together. Chosen."""
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
TOLD_WAIT_SHARE: Final = 0.25
"""Share of waiting in the time of collectives from which the verdict of a job states it. Chosen."""
TOLD_JITTER_SHARE: Final = 0.02
"""Share of the step that ranks wait in turns from which the verdict states it. Chosen."""

# --- Comparisons: docs/diff.md measures how often they are wrong ----------------------------------------

MARGIN_SHARE: Final = 0.02
"""Changes of the step up to this are none, if not said otherwise. Measured: docs/diff.md. `wallscope diff`
and its help spell it again."""
MARGIN_NS: Final = 10_000
"""Changes up to this are none either. Measured: docs/diff.md."""
CONFIDENCE_SHARE: Final = 0.95
"""Of the interval of a ratio. Convention."""
FEWEST_STEPS_FOR_SPREAD_COUNT: Final = 5
"""Minimum number of steps to estimate a run's variation. Chosen; as many as `ENOUGH_STEPS_COUNT`."""
SLOW_STEP_RATIO: Final = 1.25
"""Steps that take longer than so many medians may be left out as slow. Chosen; as `WARM_UP_RATIO`."""
OUTLYING_DEVIATIONS_COUNT: Final = 3
"""And lie so many deviations above the median. Convention."""
USUAL_STEPS_SHARE: Final = 0.75
"""Of the steps that must be usual, for slow ones to be left out. The quartiles leave out slow ones then."""
RESAMPLES_COUNT: Final = 600
"""Draws of the bootstrap. Measured: docs/diff.md."""
DETECTED_SHARE: Final = 0.8
"""Chance with which the change that is called detectable is found. Convention for the power of a test."""
MOST_CORRELATED_RATIO: Final = 0.9
"""Largest correlation of neighboring steps. Chosen: beyond it no number of steps is sufficient."""
OTHER_WORK_SHARE: Final = 0.5
"""Of compute kernels that both sides share, below which they do other work and have no verdict. Chosen."""
LIKE_WORK_SHARE: Final = 0.9
"""The same from which on they do the same work. Chosen."""
UNTOLD_PART_SHARE: Final = 0.05
"""Unsplit share of an axis above which waiting and transfer are not separate. docs/ranks.md names it."""
LIKE_OPERATIONS_RATIO: Final = Fraction(9, 10)
"""Fewer by more runs of an operation, from which on differently named ones can be the same. Chosen."""
HIDDEN_CHANGE_SHARE: Final = 0.1
"""Of communication that must be hidden more or less, for overlap to be the explanation. Chosen."""
EXPLAINED_SHARE: Final = 0.002
"""Of base's step that a queue drain must change, to be an explanation. Chosen."""
MORE_KERNELS_RATIO: Final = Fraction(12, 10)
"""More by fewer kernels, above which fusion is the explanation. Chosen."""
MORE_VOLUME_RATIO: Final = 1.05
"""Bytes of an axis by those of the other side, above which volume is an explanation. Chosen."""
MORE_SLOW_STEPS_SHARE: Final = 0.05
"""By which the share of slow steps must differ, to be an explanation. Chosen."""
MORE_SLOW_STEPS_COUNT: Final = 2
"""And by so many steps. Chosen."""

# --- Fixes and plans ------------------------------------------------------------------------------------


# --- What is worth a line on a screen or page -----------------------------------------------------------

SHOWN_LOSS_SHARE: Final = 0.001
"""Share of the typical step that a loss must take, for the list of causes. Chosen."""
SHOWN_HOST_SHARE: Final = 0.001
"""The same for calls that drain the queue and work that was held. Chosen."""
SHOWN_CHANGE_SHARE: Final = 0.001
"""Of base's step that a cause must change, for the first screen of a comparison. Chosen."""
SHOWN_COMPUTE_SHARE: Final = 0.05
"""Share of compute work that a property of kernels must have, to be reported. Chosen."""
SHOWN_OVERLAP_TAX_SHARE: Final = 0.01
"""Slowdown of kernels that overlap communication, to be reported. Chosen."""
SHOWN_COPY_BYTES: Final = 1 << 16
"""Mean size of a copy from which its bandwidth is reported. The same as `BULK_COPY_BYTES`."""

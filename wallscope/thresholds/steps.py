"""Limits of what the trace shows: what a step is, which steps differ, who waits for whom."""

from typing import Final

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
SHORTEST_SURE_UNIT_COUNT: Final = 2
"""Kernels of different names that such a unit holds, at least: one that repeats makes no unit. Chosen."""
SHORTEST_STRETCH_SHARE: Final = 0.25
"""Of the kernels that the repeating part of a capture must hold, or recurring ranges must span. Chosen."""
STRETCH_PARTS_COUNT: Final = 4
"""Where a capture has no unit as a whole, it is looked for behind the first, second ... of so many parts."""
MOST_STREAMS_IN_TURN_COUNT: Final = 64
"""Streams of a rank of most work, that are looked at for taking turns. Chosen, to bound the time."""
MARKED_KERNELS_SHARE: Final = 0.5
"""Of the kernels from its first to its last instance that a range must hold, to mark steps. Chosen: most."""
MARKED_COMPUTE_SHARE: Final = 0.5
"""Of the compute time that a range with a known name must have issued, to be the only step. Chosen: most."""
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
FEWEST_STEPS_FOR_MODES_COUNT: Final = 8
"""Steady steps that are needed to find kinds of steps. Chosen."""
FEWEST_MODE_STEPS_COUNT: Final = 3
"""Steps of a kind, at least. Chosen: two may be chance."""
SMALLEST_MODE_SHARE: Final = 0.15
"""The same as a share of all steady steps; fewer are rare stalls. Chosen."""
MODES_APART_RATIO: Final = 1.05
"""Median of a kind by that of the shorter one, at least. Chosen: less is not worth a sentence."""
SPLIT_MODES_RATIO: Final = 0.75
"""Distance of the medians of two kinds by their joint width, as logarithms. Measured: 2 % are chance."""
SPLIT_MODES_STEPS_COUNT: Final = 20
"""And so much by the number of steps more: of few steps the best split is often good. Measured."""
WIDEST_MODE_GAP_PARTS_COUNT: Final = 8
"""Between two kinds no step lies in one of so many parts of the way between their medians. Chosen."""
RARE_STALL_SHARE: Final = 0.03
"""Of all steady time that a cause must take beyond its median, on few steps: `DOMINANT_LEAD_SHARE`."""
RARE_LONG_PARTS_COUNT: Final = 4
"""The period of a rare stall counts steps with at least one in so many parts of the longest. Chosen."""
RARE_EXCESS_SHARE: Final = 0.05
"""Of the median step that it must take more, for a step to be one of those. Chosen."""
RARE_DEVIATIONS_COUNT: Final = 6
"""And so many median deviations of the cause more. Chosen: about four standard deviations."""
RARE_STEPS_PARTS_COUNT: Final = 2
"""Fewer than one step in so many has a rare stall. By definition: of more the median speaks."""
REGULAR_PERIOD_SHARE: Final = 2 / 3
"""Of the distances between its steps that must be equal, for it to have a period. Chosen."""
FEWEST_FOR_PERIOD_COUNT: Final = 3
"""Steps with the stall that are needed for a period. By definition: two have one distance."""
MEAN_ABOVE_MEDIAN_RATIO: Final = 1.1
"""Mean by median of the steady steps, from which on the verdict states both. Chosen."""
FEWEST_STEPS_EACH_SIDE_COUNT: Final = 3
"""Steps before and after the moment from which on kernels are slower, at least. Measured: 0.8 % of runs that
only vary at random are taken for slower at 3, fewer where there are more steps."""
SLOWER_KERNELS_RATIO: Final = 1.03
"""Length of the same kernels after that moment by the length before it, at least. Chosen."""
COMPARED_WORK_SHARE: Final = 0.5
"""Of the work of compute kernels that must be comparable from step to step. Chosen: most."""
CLOCK_EXPLAINS_SHARE: Final = 0.5
"""Of what kernels are slower, that a lower clock may leave unexplained, to be the reason. Chosen: most."""


AGREEING_RECORDS_SHARE: Final = 0.5
"""Waits that must show the same offset of record numbers, for numbers to resolve waits. Chosen."""
EXPLAINED_TOLERANCE_NS: Final = 2_000
"""Work may end so much after what waited for it began, and still explain it: clock and rounding. Chosen."""
LONGEST_DEPENDENCY_LATENCY_NS: Final = 20_000
"""From the end of what was waited for to the start of what waited, at most. Chosen."""
LONGEST_UNEXPLAINED_LATENCY_NS: Final = 50_000
"""The same where nothing says that more was waited for: what takes longer is unresolved. Chosen. A capture
with enough of them has its own limit, from `LONGEST_DEPENDENCY_LATENCY_NS` on."""
LONGEST_LAUNCH_LATENCY_NS: Final = 1_000_000
"""From the return of a launch to its start on an idle device, at most; beyond, something unknown held it.
Chosen: drivers that collect launches first take some hundred microseconds. A capture with enough of
them has its own limit, from `LONGEST_UNEXPLAINED_LATENCY_NS` on."""
LATE_STARTS_SHARE: Final = 0.01
"""Of the latencies that must be longer than what is usual, for something to explain them. Chosen: fewer are
their tail."""
USUAL_LATENCIES_SHARE: Final = 0.95
"""Quantile of the latencies without a call that holds the stream, up to which one is usual. Chosen: in 60 of
69 captures with enough of them, that behind an operation is at most 20 µs."""
UNUSUAL_LATENCY_RATIO: Final = 2
"""How many times as long as that a latency is at least, for something else to explain it. Chosen: by itself,
the quantile leaves one of 20 beyond it in every capture."""
FEWEST_USUAL_LATENCIES_COUNT: Final = 20
"""Latencies that a capture must have, to know it. Chosen: of fewer, the quantile is the longest one."""
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
"""Of calls that a full queue or a lock may have held. Chosen; launches mostly take 3 to 15 us. A capture with
enough calls of a role that nothing can have held has its own limit for them: `UNUSUAL_LATENCY_RATIO` times
`USUAL_LATENCIES_SHARE` of theirs, from `LEAST_HELD_CALL_NS` on up to this."""
LEAST_HELD_CALL_NS: Final = 20_000
"""The same where such calls are all shorter. Chosen, as `LOCK_RETURN_NS`: in less, any two calls return
together."""
LOCK_RETURN_NS: Final = 20_000
"""Two calls return together if no more lies between. Chosen: the way out of the driver."""
LOCKED_WORK_NS: Final = 100_000
"""A call that waited for a lock returns within this after its holder: it does its own work first. Measured:
50 to 80 us where a copy of 332 MB waits for one of 4 bytes (NERSC's vision transformer)."""
LOCKED_SHARE: Final = 0.8
"""Share of a call that another call must have overlapped, to have blocked it. Chosen: nearly all."""
FEWEST_LOCKS_COUNT: Final = 3
"""Times that a thread outside calls must go on right after a long call of another one returns, to have waited
for a lock that it held. Chosen."""
LOCKS_SHARE: Final = 0.5
"""And the share of the times that such a call returns while it is outside calls. Chosen: most. One that works
by itself goes on so close after 20 us of some hundred."""
SHORTEST_HOLDING_ALLOCATION_NS: Final = 20_000
"""Of calls that allocate or free and may hold a lock of the program. Chosen: caching allocators take less."""
FOLLOWED_BY_RATIO: Final = 2
"""Spread of pauses by that of the time since something ended in them, for a thread that goes on some tens of
microseconds later to have waited for it. Of work that does not wait, the latter is the larger. Chosen."""
PARKED_PARTS_COUNT: Final = 8
"""A thread goes on behind another one if at most one in so many parts of its pause lies between. Chosen."""
LOCKED_LENGTH_RATIO: Final = 3
"""Length of a call by that of undisturbed ones with the same purpose, to have waited for a lock. Chosen."""
USUAL_CALLS_SHARE: Final = 0.25
"""Quantile of their lengths that is undisturbed: locks hold few calls. Chosen."""
FEWEST_USUAL_CALLS_COUNT: Final = 8
"""Calls with a purpose, to know their usual length. Chosen."""
LOCK_CANDIDATES_COUNT: Final = 8
"""Calls that returned last, which are looked at for that. Chosen, to bound the time."""
FEWEST_QUERIES_COUNT: Final = 3
"""Queries in a row that are a wait. Chosen: one or two only look."""
QUERIES_APART_NS: Final = 20_000
"""Time between two of them, up to which the thread did nothing else. With more it slept or worked: then an
operation must end between the last two of them. Chosen."""
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

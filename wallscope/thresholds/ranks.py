"""Limits of collectives that are one, of clocks and of late ranks."""

from typing import Final

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
FARTHEST_UNNAMED_SHIFT_COUNT: Final = 4
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
REPORTED_WAIT_SHARE: Final = 0.25
"""Share of waiting in the time of collectives from which the verdict of a job states it. Chosen."""
REPORTED_JITTER_SHARE: Final = 0.02
"""Share of the step that ranks wait in turns from which the verdict states it. Chosen."""

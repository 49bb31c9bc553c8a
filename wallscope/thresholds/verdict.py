"""Limits of the verdict (which wall dominates, how sure), of advice, what is shown, and comparisons.

How often the limits of comparisons are wrong is measured in docs/diff.md.
"""

from fractions import Fraction
from typing import Final

DOMINANT_SHARE: Final = 0.10
"""Of the step that a loss wall must take, to be the wall. Chosen."""
NAMED_LOSS_SHARE: Final = 0.01
"""Of the step that the largest loss of a compute-bound step must take, to be named with its share. Chosen."""
NAMED_UNCOUNTED_SHARE: Final = 0.1
"""Of the step that matrix kernels with unknown FLOPs must take, to be described. Chosen."""
NEAR_PEAK_SHARE: Final = 0.6
"""Of the peak, from which a step is near what the hardware reaches. Chosen: the best published runs."""
NEAR_MEASURED_SHARE: Final = 0.9
"""Of the best rate that libraries were measured to reach, from which matrices are near it. Chosen."""
SHOWN_LINE_SHARE: Final = 0.005
"""Of the step that a line of the ledger takes, to have a row of its own on a screen. Chosen."""
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
LEAST_COVERED_SHARE: Final = 0.8
"""Of the time from first to last operation that steps without marks must cover, to stand for the program."""
HIGH_CONFIDENCE_COVERED_SHARE: Final = 0.95
"""The same for a verdict to be sure. Chosen: a twentieth changes no wall that leads."""
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
NO_NAMES_SHARE: Final = 0.9
"""Of kernel time in unrecognized kernels, from which on names say nothing. Chosen: next to all."""
TOLD_UNRECOGNIZED_SHARE: Final = 0.03
"""Share of the step in unrecognized kernels from which the first sentence states it. Chosen."""
SHARE_ROUNDING: Final = 1e-9
"""Shares are rounded quotients: one that equals a threshold may come out a hair below it."""
NEXT_ACTION_SHARE: Final = 0.10
"""Of the step in a wall, from which it has a recommendation or a next capture. As `DOMINANT_SHARE`."""
FIRST_FIXES_COUNT: Final = 3
"""Recommendations on a first screen; one of them addresses the dominant wall if any does. Chosen."""
NEXT_WALL_SHARE: Final = 0.10
"""Of what is left without the wall that a loss must take, to be the next. Chosen, as `DOMINANT_SHARE`."""
LITTLE_GAIN_SHARE: Final = 0.5
"""Of the time of a cause that its removal must gain, not to be called limited by other work. Chosen."""
SAME_STEP_SHARE: Final = 0.005
"""Of the step that two replays of one removal differ by at most. Chosen: less than two digits show."""
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
MATERIAL_SHARE: Final = 0.01
"""Smaller values are neither acted on nor reported: possible gains of causes, ceilings, recompute, a late
rank, unrecognized kernels, calls or operations of a finding, the profiler. It is a share of the typical step,
or of the total concerned. A smaller kernel does not decide whether ranks do the same work. Chosen.
Lists show more: `SHOWN_LOSS_SHARE`.
"""
ONE_GAP_SHARE: Final = 0.5
"""Host time of a capture without steps in one gap, from which it is what happens once. Chosen: most of it."""
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


SHOWN_WALL_SHARE: Final = 0.00005
"""Of the step that a wall must take, for a bar on the first screen. Chosen: less prints as 0.0 %."""
SHOWN_LOSS_SHARE: Final = 0.001
"""Share of the typical step that a loss must take, for the list of causes. Chosen."""
SHOWN_HIDDEN_SHARE: Final = 0.02
"""Of the typical step in which communication must run and delay nothing, for the first screen to state it.
Chosen."""
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


SHOWN_FIXES_COUNT: Final = 5
"""Fixes of the first screen. Chosen."""
FIXES_OF_A_CAUSE_COUNT: Final = 2
"""Of one cause before those of others. Chosen."""
NEXT_WALL_OF_FIX_SHARE: Final = 0.10
"""Of what is left behind a fix that a loss must take, to be the next wall. Chosen, as `DOMINANT_SHARE`."""
REPLAYED_FIXES_COUNT: Final = 16
"""Fixes that are replayed, the most worth first. Chosen, to bound the time."""
SHOWN_WIN_SHARE: Final = 0.001
"""Share of the step that a replay must gain, to be reported as more than nothing. Chosen."""
SMALL_PART_OF_CAUSE_SHARE: Final = 0.5
"""Of the time of its causes that a fix gains less than, to say why. Chosen: most of it stays."""
MOSTLY_IN_RANGE_SHARE: Final = 0.5
"""Of a part of the host time that a range must hold at least, to be named with it. By definition: most."""
PAGEABLE_SHARE: Final = 0.1
"""Of the bytes of a direction that must be of pageable memory, for pinning to be advised. Chosen."""
SHOWN_CAPTURE_ADVICE_COUNT: Final = 3
"""Pieces of advice on the capture on the first screen. Chosen."""
LEADING_KERNELS_COUNT: Final = 3
"""Kernels of a category that are named as evidence. Chosen."""
KERNEL_RATES_COUNT: Final = 20
"""Kernels that are listed with their rate. Chosen."""
EVIDENCE_LINES_COUNT: Final = 3
"""Lines of evidence of a fix. Chosen."""

BF16_ATTENTION_OF_FP32_RATIO: Final = 0.25
"""Time left of FP32 attention in BF16. Measured: 1,018 to 237 ms (0.23) in the NERSC SC23 tutorial, A100."""
BF16_GEMM_OF_TF32_RATIO: Final = 0.5
"""Time left of TF32 multiplications in BF16 or FP16. Measured: 79 to 36 ms (0.46), the same; peaks: 0.5."""
BF16_GEMM_OF_FP32_RATIO: Final = 0.2
"""Time left of FP32 multiplications outside tensor cores in BF16. Chosen: peak rates of A100 say 0.06, those
of V100 to FP16 0.13, and memory bounds some."""
TF32_GEMM_OF_FP32_RATIO: Final = 0.3
"""Time left of FP32 multiplications in TF32. Chosen: peak rates of A100 say 0.13, and memory bounds some."""
BF16_CONVOLUTION_OF_TF32_RATIO: Final = 0.5
"""Time left of TF32 convolutions in BF16 or FP16. Peak rates. Measured with the next: 124 to 71 ms (0.57) in
the NERSC SC21 tutorial, A100, of which 71 % ran in TF32."""
BF16_CONVOLUTION_OF_FP32_RATIO: Final = 0.75
"""Time left of FP32 convolutions then: some have no other kernel. Measured with the one before."""


LONG_SEQUENCE_COUNT: Final = 8_192
"""Tokens; longer sequences ask for context parallelism. Chosen."""
UNEVEN_ENCODER_SHARE: Final = 0.1
"""Of the longest time of a vision tower on a rank, by how much the shortest is shorter. Chosen."""
IMAGE_TOKENS_SHARE: Final = 0.5
"""Of a sequence whose mix of images and text is unknown; no published run states its own. Chosen."""

TOKENS_OF_A_RANK_COUNT: Final = 4_096
"""Tokens of a sequence for each rank of context parallelism; twice as many on a rack. Chosen."""
TENSOR_FOR_CONTEXT_FROM_COUNT: Final = 131_072
"""Tokens from which on tensor parallelism takes a part of context parallelism, on a rack. Chosen."""
TENSOR_FOR_CONTEXT_COUNT: Final = 4
"""Ranks of tensor parallelism then. Chosen."""
INEFFECTIVE_OVERLAP_SHARE: Final = 0.8
"""Exposed part of communication from which on an overlap that a file switches on does not work. Chosen."""
MEANT_KEY_RATIO: Final = 0.9
"""Likeness (difflib) from which on an unknown key is taken for a misspelt one. Chosen."""
RESERVED_MEMORY_SHARE: Final = 0.06
"""Of the memory of a GPU that CUDA, NCCL and fragments take. Chosen; 4 to 5 GB of 80 in published logs."""


MARGIN_SHARE: Final = 0.02
"""Changes of the step up to this are none, if not said otherwise. Measured: docs/diff.md. `wallscope diff`
and its help spell it again."""
MARGIN_NS: Final = 10_000
"""Changes up to this are none either. Measured: docs/diff.md."""
CONFIDENCE_SHARE: Final = 0.95
"""Of the interval of a ratio. Convention."""
SURE_CHANCE_SHARE: Final = 0.01
"""Probability without a change, or share of false discoveries, up to which a change is sure. docs/diff.md."""
SURE_OF_ASSUMED_RATIO: Final = 2.0
"""Of a change by half its interval, from which on it is sure although the noise between runs is assumed.
Runs that differ by twice as much do not reach it by chance. Measured: docs/diff.md."""
MAKES_UP_SHARE: Final = 0.5
"""Of the change of the step that a wall or cause must make up, to be likely by that. By definition: most."""
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
WANDERING_BLOCKS_COUNT: Final = 10
"""Blocks of steps whose means show whether the level of a run wanders. Chosen."""
FEWEST_STEPS_OF_BLOCK_COUNT: Final = 2
"""Steps of such a block, at least. Chosen: in shorter runs a walk is less than what is assumed."""
MOST_WANDERING_RATIO: Final = 0.376
"""Von Neumann's ratio of 10 means, halved, below which they wander: 1 % of independent ones. Hart 1942."""
SURE_SHIFT_ERRORS_COUNT: Final = 5
"""Standard errors by which the steps of a run must shift, at least: the best place is taken. Chosen."""
FEWEST_STEPS_OF_SHIFT_COUNT: Final = 2
"""Steps before and after it, at least. Chosen: one step is an outlier."""
SHARED_LEVELS_RATIO: Final = 1.02
"""Level by the next shorter one, of the steps of both sides together. Chosen, as the margin of a change."""
FEWEST_STEPS_FOR_WARM_UP_COUNT: Final = 6
"""Steps of a run in which a warm-up is recognized, at least. Chosen: fewer often fit by chance."""
SURE_WARM_UP_LIKELIHOOD: Final = 14
"""Twice the logarithm of the likelihood of a decay by that of one level, at least. Measured: docs/diff.md."""
UNLIKE_SHIFT_LIKELIHOOD: Final = 12
"""The same by that of a shift at one step. Measured: at most 1 % of runs without a decay, docs/diff.md."""
WHITE_REST_RATIO: Final = 1.2
"""Von Neumann's ratio of what a decay leaves, at least: 2 if it is not correlated. Measured, as above."""
WARM_UP_DECAY_SHARE: Final = 0.02
"""By which the first step must exceed what steps decay to. Chosen, as the margin of a change."""
WARM_UP_REST_SHARE: Final = 0.005
"""Excess of a step below which a warm-up is over. Chosen: a quarter of the margin of a change."""
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
REPLACED_WORK_RATIO: Final = Fraction(1, 10)
"""Less by more work of kernels gone and new in a range, from which on they replace each other. Chosen."""
LEADING_OPERATION_SHARE: Final = 0.8
"""Of what a group of operations changed by, from which on the one that did has a line of its own. Chosen."""
UNEXPLAINED_SHARE: Final = 0.01
"""Of base's step that a cause must change, to be called not explained by anything recorded. Chosen."""
BIAS_SHARE: Final = 0.005
"""Of base's step that dearer launches must make, to be noted as a bias. Chosen."""
UNIFORM_WORK_SHARE: Final = 0.6
"""Of the work of kernels that must change alike, for an amount of work or a clock to be inferred. Chosen."""
OTHER_WORK_RATIO: Final = 1.15
"""Time per call by that of the other side, from which on it shows another amount of work. Chosen."""
UNIFORM_CHANGE_RATIO: Final = 1.3
"""Spread of such ratios, at most: small kernels do not grow with their input. Chosen."""
OTHER_CLOCK_RATIO: Final = 1.02
"""The same ratio, from which on it shows another clock. Chosen, above what runs differ by."""
UNIFORM_CLOCK_RATIO: Final = 1.02
"""Spread of ratios that a clock makes, at most. Chosen."""
LIKE_INPUT_RATIO: Final = 1.1
"""Bytes copied to the device by those of the other side, up to which the input is alike. Chosen."""
CONFOUNDING_SHARE: Final = 0.25
"""Of the change of the step that a bias may make, from which on it stands next to the verdict. Chosen."""
MAIN_PRECISION_SHARE: Final = Fraction(1, 4)
"""Of the work of a category, from which on a precision is named as one that it runs in. Chosen."""
FEWEST_COMPILED_KERNELS_COUNT: Final = 3
"""Kernels of Triton of different names, from which on a compiler makes them, and no library. Chosen."""
FEWER_KERNELS_RATIO: Final = Fraction(3, 2)
"""Kernels of the optimizer by those of the other side, from which on it is fused or split. Chosen."""
OTHER_COPIES_RATIO: Final = Fraction(5, 4)
"""Copies or their bytes by those of the other side, from which on they are an explanation. Chosen."""
SHOWN_JOINT_SHARE: Final = 0.002
"""Of base's step that a cause must change, to be named with the change that it goes with. Chosen."""
APPLIED_FALL_SHARE: Final = 0.5
"""Of the time of its causes that must be gone, to recognize a fix by it. Chosen: most of what it removes."""
SIDE_EFFECT_SHARE: Final = 0.1
"""Of the time that an applied fix won, below which another change is its side effect. Chosen: a call may
drain the queue no more because a graph launches the work behind it."""
SAME_WHOLE_SHARE: Final = 0.005
"""A bound is about the mean if that is nearer to its step than the typical one by more. Chosen."""
EXPLAINING_SHARE: Final = 0.003
"""Of base's step that an explanation or operation must change, for the first screen. Chosen."""

"""What the words of pages mean: their own texts, in the glossary too."""

from typing import Final

from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import DeviceState, Wall

WALL_WORDS: Final = {
    Wall.COMPUTE: "A compute kernel runs, or the device goes from one kernel to the next with nothing else in"
    " the way. Forward work that runs again in the backward pass is memory's.",
    Wall.COMMUNICATION: "Nothing computes, and an operation between ranks bound what comes next: it moved"
    " data or waited for peers.",
    Wall.MEMORY: "Nothing computes, and a copy, a fill or the allocator bound what comes next; and forward"
    " work that runs again to save memory.",
    Wall.HOST: "Nothing computes, and the host bound what comes next: launches, calls that drained the queue,"
    " framework, data loading, small copies.",
    Wall.UNATTRIBUTED: "The owner is not known. Such time is never spread over the other walls.",
}
"""Who pays for a nanosecond."""

STATE_WORDS: Final = {
    DeviceState.COMPUTE: "At least one compute kernel ran.",
    DeviceState.OPAQUE_GRAPH: "A CUDA graph that was traced as a whole ran, and no compute kernel beside it.",
    DeviceState.EXPOSED_COMMUNICATION: "Communication ran, and neither of the above.",
    DeviceState.EXPOSED_COPY: "A copy or fill ran, and none of the above.",
    DeviceState.IDLE: "Nothing ran.",
}
"""What the device did, in order of precedence."""

WORDS: Final = {
    "typical step": "Mean of the steady steps of ordinary length, rounded so that its parts add up to it.",
    "wall": "Who pays for a nanosecond: compute while it runs, else the link of the chain that bound.",
    "cause": "Why that wall pays: `wall/cause` or `wall/cause/detail`. The causes of a wall add up to it.",
    "share": "Of the typical step. The verdict rests on medians over the steady steps, with p10 and p90.",
    "owns": "Time on the chain that bound the step. What merely ran beside a wait is not blamed.",
    "ceiling": "The step played again without one cause, next constraints heeded: at best, no forecast."
    " It can win more than the cause owns: the device may wait less elsewhere too. Ceilings do not add up.",
    "work": "Durations added up. Operations that run side by side count twice: work is no time.",
    "exposed": "Time in which communication or a copy ran and neither compute nor an opaque graph did.",
    "gap": "A stretch of a step without compute and opaque graphs, with the chain of links that filled it.",
    "slack": "How much earlier the next constraint would have bound: what its removal wins there at most.",
    "steady": "A step that counts: no warm-up, no graph capture, not cut by the end of the capture.",
    "unsplit": "Moving data and waiting for peers, which one rank alone cannot tell apart.",
    "transfer": "All participants are in, bytes move: the shortest residence of a matched collective.",
    "peer-wait": "What a matched collective lasts longer on this rank: others came later.",
    "pipeline-wait": "The same between stages of a pipeline, which wait for each other by design.",
    "hand-over": "From the end of an operation to the start of what waited for it on another stream.",
    "queue-drained": "The host refills the queue: from the return of a call that had waited until the device"
    " had nothing left, up to the next launch.",
    "unattributed": "Time whose owner is not known. It is never spread over the walls.",
}
"""Of the answer."""

COMPARISON_WORDS: Final = {
    "base, head": "The two sides: before a change, and after it.",
    "typical step": "Mean of the steady steps of ordinary length, over all runs; of all steps if none is.",
    "change": "Head less base. That of the step is the sum of those of walls, that of a wall of its causes,"
    " that of a cause of its operations, to the nanosecond.",
    "95 % interval": "Where the ratio of the typical steps lies, by what steps or runs vary.",
    "slower, faster": "The interval does not hold 1 and the ratio is past the margin. No change: the interval"
    " lies inside the margin. All else is inconclusive.",
    "could be told": "The smallest change that four of five comparisons like this one would find.",
    "by count, by each": "What the change of how often an operation runs makes, at the mean of what each owns"
    " on both sides; the rest.",
    "hidden": "Share of the work of communication that ran beside compute.",
    "slow step": "One that takes over 1.25 times the median; the typical step leaves such steps out.",
    "gate": "Fails by growth past its limit that is surely none by chance.",
}
"""Of a comparison."""


def explain_cause(cause: str) -> str:
    """A cause in a few words, and what the words of its name mean that need it.

    >>> explain_cause("communication/ep/unsplit").partition(". ")[2]
    'Moving data and waiting for peers, which one rank alone cannot tell apart.'
    """
    told = [WORDS[part] for part in cause.split("/")[1:] if part in WORDS]
    return ". ".join([describe_cause(cause), *told])

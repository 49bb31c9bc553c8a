"""The changes of a replay in words: what is scaled, removed, hidden or captured as CUDA graphs."""

from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.whatif import Question

THINK, LAUNCH = "think", "launch"
_AXES = {
    "ep": "expert-parallel",
    "dp-gradient": "gradient",
    "dp-parameter": "parameter",
    "tp": "tensor-parallel",
    "cp": "context-parallel",
    "pp": "pipeline",
}
_DRAINED = "host/queue-drained/"
_TARGETS = {
    THINK: "host time outside CUDA calls",
    LAUNCH: "launch calls and launch latency",
    "copies": "copies",
    "jitter": "jitter of communication",
    "synchronisation": "synchronizing calls",
    "allocator": "allocator calls",
    "recompute": "recomputation",
    "offload": "offload copies",
}


def name_target(target: str) -> str:
    """Return what a replay changes in words: a wall of traffic, a category of kernels, a cause.

    >>> name_target("communication:ep"), name_target("category:gemm"), name_target("collective:all-to-all")
    ('expert-parallel communication', 'gemm kernels', 'all-to-all collectives')
    >>> name_target("host/queue-drained/cudaStreamSynchronize")
    'the wait in cudaStreamSynchronize'
    >>> name_target("host/other-call")
    'host time inside other CUDA calls'
    """
    kind, _, detail = target.partition(":")
    if kind == "communication" and detail:
        return f"{_AXES.get(detail, detail)} communication"
    if kind in {"category", "collective"}:
        return f"{detail} {'kernels' if kind == 'category' else 'collectives'}"
    if target.startswith(_DRAINED):
        return f"the wait in {target.removeprefix(_DRAINED)}"
    if "/" in target:
        return describe_cause(target)
    return _TARGETS.get(target, target)


def describe_share(question: Question) -> str:
    """Say what share of a target stays.

    >>> describe_share(Question("scale", "category:gemm", 0.25))
    'gemm kernels at 25 %'
    """
    return f"{name_target(question.target)} at {100 * (question.share or 0.0):.3g} %"


def describe_question(question: Question) -> str:
    """Say what a replay changes, in words that follow "replay".

    >>> describe_question(Question("hide", "communication:ep"))
    'with expert-parallel communication fully hidden'
    >>> describe_question(Question("scale", "think", 0.5))
    "with host time outside CUDA calls at 50 % of today's duration"
    """
    target = name_target(question.target)
    match question.kind:
        case "scale":
            return (
                f"with {describe_share(question)} of today's duration"
                if question.share
                else f"without {target}"
            )
        case "without":
            return f"without {target}"
        case "graph":
            launched = "all launches" if question.target == "*" else f"launches in {question.target}"
            return f"with {launched} as CUDA graphs"
        case "hide":
            return f"with {target} fully hidden"
        case "overlap":
            return f"with {target} on a stream of its own"

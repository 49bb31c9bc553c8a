"""Forms of words: spellings that people use for the same term have the same form.

Blanks, dashes, underscores and capitals do not count, nor do endings (`buckets`, `bucketing`) and usual
short forms (`grad`). The forms are for comparison alone.
"""

import re
from functools import cache

_PARTS = re.compile(r"[a-z0-9]+")
_ENDINGS = (
    *(
        "izations",
        "ization",
        "izers",
        "izer",
        "izing",
        "ized",
        "izes",
        "ize",
        "ations",
        "ation",
        "ators",
        "ator",
    ),
    *("ating", "ated", "ates", "ate", "ings", "ing", "isms", "ism", "ions", "ion", "ers", "er", "ed", "es"),
)
_SHORTEST = 3
_DOUBLED = "bdgmnpt"
"""Letters that endings double, as in `mapping`."""
_SHORT_FORMS = {
    "a2a": "all to all",
    "ag": "all gather",
    "allgather": "all gather",
    "alltoall": "all to all",
    "allreduce": "all reduce",
    "alloc": "allocator",
    "attn": "attention",
    "bwd": "backward",
    "comm": "communication",
    "comms": "communication",
    "conf": "configuration",
    "config": "configuration",
    "cudagraph": "cuda graph",
    "cudagraphs": "cuda graph",
    "dataloader": "data loader",
    "emb": "embedding",
    "env": "environment",
    "fwd": "forward",
    "gc": "garbage collection",
    "cpus": "cpu",
    "gpus": "gpu",
    "grad": "gradient",
    "grads": "gradient",
    "mem": "memory",
    "microbatch": "micro batch",
    "microbatches": "micro batch",
    "opt": "optimizer",
    "optim": "optimizer",
    "optimiser": "optimizer",
    "param": "parameter",
    "params": "parameter",
    "perf": "performance",
    "reducescatter": "reduce scatter",
    "rs": "reduce scatter",
    "seq": "sequence",
    "sync": "synchronize",
    "syncs": "synchronize",
    "userbuffer": "user buffer",
    "userbuffers": "user buffer",
    "wgrad": "weight gradient",
    "dgrad": "data gradient",
}


def spell_form(text: str) -> str:
    """Return the form of a text: its words without endings, with one blank between them.

    >>> spell_form("--overlap_grad-reduce") == spell_form("Overlapped gradients, reduced")
    True
    >>> spell_form("expert parallelism") == spell_form("Expert-Parallel")
    True
    """
    return " ".join(
        _cut_ending(word)
        for part in _PARTS.findall(text.lower())
        for word in _SHORT_FORMS.get(part, part).split()
    )


@cache
def _cut_ending(word: str) -> str:
    """Return a word without its ending; numbers and short words stay.

    >>> [_cut_ending(word) for word in ("recomputed", "recompute", "parallelism", "losses", "h100")]
    ['recomput', 'recomput', 'parallel', 'loss', 'h100']
    """
    if not word.isalpha():
        return word
    word = word.replace("isation", "ization")
    if word.endswith("ies") and len(word) > _SHORTEST + 1:
        return f"{word[:-3]}y"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _SHORTEST:
            word = word.removesuffix(ending)
            return word[:-1] if word[-1] == word[-2] and word[-1] in _DOUBLED else word
    if word.endswith("s") and not word.endswith(("ss", "us", "as", "is")) and len(word) > _SHORTEST:
        word = word[:-1]
    return word[:-1] if word.endswith("e") and len(word) > _SHORTEST else word

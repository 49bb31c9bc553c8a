"""Limits of plans, and of what is read in configurations."""

from typing import Final

LONG_SEQUENCE_COUNT: Final = 8_192
"""Tokens; longer sequences ask for context parallelism. Chosen."""
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

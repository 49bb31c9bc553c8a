"""Counts tokens with a real vocabulary of 200,000, which the package ships: nothing is fetched."""

import warnings
from functools import cache

MOST_TOKENS = 600
"""What a brief answer has at most."""


def count_tokens(text: str) -> int:
    """The tokens of a text."""
    return len(_load_vocabulary().encode(text))


@cache
def _load_vocabulary():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it opens its vocabulary in an older way
        import bpe_openai

        vocabulary = bpe_openai.get_encoding("o200k_base")
        vocabulary.encode("")
    return vocabulary

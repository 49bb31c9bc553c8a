"""Counts tokens with a real vocabulary of 200,000, which the package ships: nothing is fetched."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it opens its vocabulary in an older way
    import bpe_openai

    _ENCODING = bpe_openai.get_encoding("o200k_base")
    _ENCODING.encode("")

MOST_TOKENS = 600
"""What a brief answer has at most."""


def count_tokens(text: str) -> int:
    """The tokens of a text."""
    return len(_ENCODING.encode(text))

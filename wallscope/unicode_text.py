"""Text that UTF-8 cannot hold: halves of surrogate pairs, which bytes of file names and options become."""

from collections.abc import Mapping
from typing import Any


def spell_surrogates(text: str) -> str:
    r"""Return a text with lone surrogates spelled out, so that it can be written as UTF-8.

    >>> spell_surrogates("run\udcff.sqlite"), spell_surrogates("für")
    ('run\\udcff.sqlite', 'für')
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def spell_all(plain: Any) -> Any:
    """Return plain data (objects, lists, texts) with lone surrogates spelled out in every text of it."""
    if isinstance(plain, str):
        return spell_surrogates(plain)
    if isinstance(plain, Mapping):
        return {spell_surrogates(key): spell_all(value) for key, value in plain.items()}
    if isinstance(plain, list | tuple):
        return [spell_all(value) for value in plain]
    return plain

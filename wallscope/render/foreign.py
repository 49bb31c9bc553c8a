"""Foreign text made harmless: names in an export are chosen by whoever wrote the program."""

import unicodedata

_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def visible(text: str, most: int = 200) -> str:
    r"""The text with control, bidirectional and other invisible characters spelled out, cut to `most`.

    >>> visible("ncclDevKernel\x1b[31m"), visible("a\u202eb"), visible("abcdef", most=4)
    ('ncclDevKernel\\x1b[31m', 'a\\u202eb', 'abc…')
    """
    return spelled(text if len(text) <= most else text[: most - 1] + "…")


def spelled(text: str) -> str:
    """All of the text, with the letters spelled out that cannot be seen."""
    if text.isprintable():
        return text
    return "".join(_spelled(letter) if unicodedata.category(letter) in _UNSAFE else letter for letter in text)


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

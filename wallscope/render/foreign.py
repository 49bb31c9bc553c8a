"""Foreign text made harmless: names in an export are chosen by whoever wrote the program."""

import unicodedata

_MOST_NAME, _LONGEST_PATH = 40, 120
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


def shorten_path(path: str) -> str:
    """Keep the end of a written path of ranges, which tells most of it.

    >>> shorten_path("train_step / forward / layer_#"), shorten_path("a" * 30 + " / " + "b" * 30 + " / c")
    ('train_step / forward / layer_#', '… / bbbbbbbbbbbbbbbbbbbbbbbbbbbbbb / c')
    """
    names = path.split(" / ")
    kept = names[-1]
    for name in reversed(names[:-1]):
        if len(kept) + len(name) > _MOST_NAME:
            return visible(f"… / {kept}", most=_LONGEST_PATH)
        kept = f"{name} / {kept}"
    return visible(kept, most=_LONGEST_PATH)


def _spelled(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")

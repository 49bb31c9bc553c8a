"""Markdown as GitHub and GitLab read it, with foreign text that can make nothing but letters."""

from collections.abc import Iterable

from wallscope.render.foreign import visible

_NOTHING = "\u200b"  # a space without width: GitHub mentions, links and runs nothing across it
_SPECIAL = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|!~&"}
    | {"@": f"@{_NOTHING}", ":": f":{_NOTHING}", "$": f"${_NOTHING}"}
)


def escaped(text: str, most: int = 500) -> str:
    r"""Prose with foreign names in it: no markup, link, mention or workflow command comes of it.

    >>> escaped("a|b `c` <i>"), escaped("https://x.invalid").startswith("https:\u200b//")
    ('a\\|b \\`c\\` \\<i\\>', True)
    """
    return visible(text, most).translate(_SPECIAL).replace(f":{_NOTHING} ", ": ")


def code(text: str, most: int = 120) -> str:
    """A name as code, in tables too."""
    shown = visible(text, most).replace("`", "'").replace("|", "\\|")
    return f"`{shown}`" if shown.strip() else "` `"


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]], numbers: frozenset[str]) -> list[str]:
    """Lines of a table and an empty one; columns whose heading is among `numbers` stand to the right."""
    aligned = tuple("---:" if name in numbers else "---" for name in header)
    return [_row(header), _row(aligned), *map(_row, rows), ""]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"

"""The lines of a configuration file in which settings of failed checks are written, to change them there."""

import re
from collections.abc import Iterable, Iterator

from wallscope.advice.preconditions import precondition_rows
from wallscope.model.advice import ConfigurationCheck, RunConfiguration

_MOST_LINES = 3
_LONGEST_LINE = 70
_OF_FORM = {"framework", "model_family"}
"""What the form of a file shows; no line states it."""


def quote_stops(
    text: str, name: str, check: ConfigurationCheck, configuration: RunConfiguration
) -> dict[str, tuple[str, ...]]:
    """Return the lines that state what failed checks use, by id of the check.

    Args:
        text: the file.
        name: its name, as sources of settings have it.
        check: the result.
        configuration: the settings that were read.
    """
    rows = precondition_rows()
    found = {}
    for row in check.stops:
        asked = rows[row.precondition.id].keys() if row.precondition.id in rows else set()
        keys = sorted(asked - _OF_FORM)
        known = (configuration.settings[key].source for key in keys if key in configuration.settings)
        written = [source.removeprefix(f"{name}: ") for source in known if source.startswith(f"{name}: ")]
        quoted = tuple(dict.fromkeys(_quote_lines(text, written)))[:_MOST_LINES]
        if quoted:
            found[row.precondition.id] = quoted
    return found


def _quote_lines(text: str, written: Iterable[str]) -> Iterator[str]:
    lines = text.splitlines()
    found = ((place, each) for each in written if (place := find_line(lines, each)) is not None)
    for place, each in sorted(found):
        yield f"line {place + 1}: {_cut_line(lines[place], each)}"


def _cut_line(line: str, written: str) -> str:
    """Return a line, or what follows the setting in a long one."""
    if len(line.strip()) <= _LONGEST_LINE:
        return line.strip()
    start = max(line.find(written), 0)
    return f"{line[start : start + _LONGEST_LINE].strip()} …"


def find_line(lines: list[str], written: str) -> int | None:
    """Return the index of the line that states a setting; its sections come before it, in order.

    >>> find_line(["tokenizer:", "  size: 1", "model:", "  size: 2"], "model.size")
    3
    >>> find_line(["torchrun x --bf16", "--fp16-other", "--fp16"], "--fp16")
    2
    """
    *sections, leaf = re.split(r"\.(?!\d)", written)
    start = 0
    for section in sections:
        start = _find_word(lines, section, start) or start
    place = _find_word(lines, leaf, start)
    return _find_word(lines, leaf, 0) if place is None else place


def _find_word(lines: list[str], word: str, start: int) -> int | None:
    """Return the first line from `start` that has a word as a key or flag; dashes and underscores are one."""
    spelled = re.escape(word.lstrip("-")).replace("_", "[-_]").replace(r"\-", "[-_]")
    pattern = re.compile(rf"(?<![\w-])(?:--)?{spelled}(?![\w-])")
    return next((place for place in range(start, len(lines)) if pattern.search(lines[place])), None)

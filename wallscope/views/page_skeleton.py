"""What all pages share in addition to the template: the names of their sections."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from wallscope.model.section import Section

_TITLES: Final = {
    "timeline": "Timeline",
    "steps": "Steps",
    "ranks": "Ranks",
    "job": "Late ranks and waits",
    "survey": "Similar ranks",
    "clocks": "Collectives and clocks",
    "causes": "Time breakdown",
    "path": "Critical path",
    "communication": "Communication",
    "memory": "Memory",
    "host": "Host",
    "compute": "Compute",
    "phases": "Ranges",
    "limits": "Capture quality",
    "computed": "Method and definitions",
    "changes": "Changes",
    "sweep": "Sweep",
    "sureness": "Replay accuracy",
    "operations": "Operations",
    "comparable": "Comparability",
}
"""What sections hold, by their keys; navigation and headings of all pages."""


def title_sections(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """Name sections by what they hold."""
    return tuple(replace(one, title=_TITLES.get(one.key, one.title)) for one in sections if one is not None)

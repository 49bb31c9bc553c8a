"""What all pages share in addition to the template: the five answers at the top, and names of sections."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.enums import Wall
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


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """One of the five answers that each page begins with: wall, cause, first action, its bound, doubts.

    Args:
        label: what the answer is about.
        head: the answer in a few words.
        lines: what explains it.
        target: the part of the page with the details; empty without one.
        wall: the wall whose color stands next to it.
        predicted: the step before and after, and the latter as a share of the former.
        command: the command to run, empty without one.
        tone: whether the answer is sure, where the answer is about that.
    """

    label: str
    head: str
    lines: tuple[str, ...] = ()
    target: str = ""
    wall: Wall | None = None
    predicted: tuple[str, str, float] | None = None
    command: str = ""
    tone: Literal["ok", "warn", ""] = ""


def split_cause(cause: str) -> tuple[str, tuple[str, ...]]:
    """Split the description of a cause of communication into its operation and what it consists of.

    >>> split_cause("communication/ep/unsplit")
    ('Expert-parallel all-to-all (dispatch and combine)', ('Transfer + peer wait, not separable.',))
    >>> split_cause("host/framework")
    ('Host time outside CUDA calls (Python, framework, program)', ())
    """
    name = units.capitalize(describe_cause(cause))
    head, _, rest = name.partition(", ") if cause.startswith(f"{Wall.COMMUNICATION}/") else (name, "", "")
    return head, (f"{units.capitalize(rest)}.",) if rest else ()


def title_sections(sections: Iterable[Section | None]) -> tuple[Section, ...]:
    """Name sections by what they hold."""
    return tuple(replace(one, title=_TITLES.get(one.key, one.title)) for one in sections if one is not None)

"""From which to which release a program makes an assertion, and which release counts.

A stated release decides. Without one the newest does, and the answer says so.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final

from wallscope.advice.conditions import Lookup, Outcome
from wallscope.advice.rejected_settings import releases
from wallscope.files import read_toml
from wallscope.model.advice import KnownSetting
from wallscope.records import dataclass

ASSUMED: Final = " is assumed"
"""Ends the key of a release that no file states."""

_CORE, _BRIDGE = "megatron_core_version", "megatron_bridge_version"
_PROGRAMS: Final = {
    "core": ("Megatron Core", _CORE, None),
    "megatron-lm": ("Megatron-LM", _CORE, "megatron-lm"),
    "megatron-bridge": ("Megatron Bridge", _BRIDGE, "megatron-bridge"),
}
"""What makes assertions: its name, the setting that states its release, and the framework that it is."""

_SPAN = re.compile(r"(?P<program>[a-z-]+)(?: (?P<since>\d[\d.]*))?(?: to (?P<until>\d[\d.]*))?")

Release = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReleaseSpan:
    """The releases of a program that make an assertion: from `since`, before `until`; `None` is open."""

    program: str
    since: Release | None
    until: Release | None

    def find_outcome(self, lookup: Lookup) -> Outcome:
        """Return whether the release of a run makes the assertion; `None` if that release is unknown."""
        _, key, framework = _PROGRAMS[self.program]
        known, used = lookup("framework")
        if framework is not None and known and used != framework:
            return False
        known, value = lookup(key)
        release = parse_release(str(value)) if known else ()
        if self.since is None and self.until is None:
            return True
        return self.contains(release) if release else None

    def contains(self, release: Release) -> bool:
        """Return whether the program makes the assertion in a release."""
        return (self.since or ()) <= release and (self.until is None or release < self.until)

    def say(self) -> str:
        """Say from which to which release; empty if every release that is compared makes it."""
        name, _, _ = _PROGRAMS[self.program]
        since = f" from {_write(self.since)} on" if self.since else ""
        until = f" before {_write(self.until)}" if self.until else ""
        return f"{name}{since}{until}" if since or until else ""


def parse_span(text: str) -> ReleaseSpan:
    """Parse a program and its releases.

    >>> parse_span("megatron-lm 0.14 to 0.18.2")
    ReleaseSpan(program='megatron-lm', since=(0, 14), until=(0, 18, 2))

    Raises:
        ValueError: the program is unknown, or a release has no numbers.
    """
    found = _SPAN.fullmatch(text)
    if found is None or found["program"] not in _PROGRAMS:
        raise ValueError(f"{text!r} is not a program with its releases")
    since, until = (parse_release(found[name]) if found[name] else None for name in ("since", "until"))
    return ReleaseSpan(found["program"], since, until)


def parse_release(text: str) -> Release:
    """Return the numbers of a release, without a suffix; `()` if it begins with none.

    >>> parse_release("0.18.2rc1"), parse_release("main")
    ((0, 18, 2), ())
    """
    found = re.match(r"\d+(\.\d+)*", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def find_outcome(spans: Sequence[ReleaseSpan], lookup: Lookup) -> Outcome:
    """Return whether any program of a run makes the assertion in its release; true without spans."""
    outcomes = [span.find_outcome(lookup) for span in spans] or [True]
    return True if True in outcomes else None if None in outcomes else False


def say_releases(spans: Sequence[ReleaseSpan], lookup: Lookup) -> str:
    """Say which program makes an assertion since when, if not always, and whether its release is assumed.

    Only the program of the run counts.
    """
    found = next((span for span in spans if span.find_outcome(lookup)), None)
    said = found.say() if found else ""
    if found is None or not said:
        return ""
    is_assumed = lookup(f"{_PROGRAMS[found.program][1]}{ASSUMED}")[1] is True
    return f"{said}; no release is stated, so the newest counts" if is_assumed else said


def say_other_releases(spans: Sequence[ReleaseSpan], lookup: Lookup) -> str:
    """Say that the release of a run does not make an assertion, and which do; empty if it may."""
    if find_outcome(spans, lookup) is not False:
        return ""
    known, used = lookup("framework")
    own = [span for span in spans if not known or _PROGRAMS[span.program][2] in {None, used}] or spans
    made = " or ".join(span.say() or _PROGRAMS[span.program][0] for span in own)
    stated = lookup(_PROGRAMS[own[0].program][1])[1]
    return f"does not apply: {made} makes this check, and the release is {stated}"


@cache
def newest_releases() -> Mapping[str, str]:
    """Return the newest release of Core and of Megatron Bridge that the checks know, by its setting."""
    found = {_CORE: "megatron-lm", _BRIDGE: "megatron-bridge"}
    return {key: f"{_write(max(releases('since', name).values()))}.0" for key, name in found.items()}


def pair_releases(settings: Mapping[str, KnownSetting]) -> dict[str, KnownSetting]:
    """Return the release of Core that a stated release of Megatron Bridge brings, or the reverse."""
    pairs = read_toml("advice/releases.toml")["core_of_bridge"]
    for key, other, table in (
        (_BRIDGE, _CORE, pairs),
        (_CORE, _BRIDGE, {core: bridge for bridge, core in pairs.items()}),
    ):
        if key in settings and other not in settings:
            release = ".".join(map(str, parse_release(str(settings[key].value))[:2]))
            if release in table:
                return {other: KnownSetting(f"{table[release]}.0", settings[key].source)}
    return {}


def _write(release: Release) -> str:
    return ".".join(map(str, release))

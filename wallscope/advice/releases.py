"""Compare settings of a file with the release of the framework that the file states."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from wallscope.advice.configuration_text import Entry
from wallscope.advice.settings import bare_name
from wallscope.model.advice import KnownSetting
from wallscope.model.capture import Finding, Severity
from wallscope.resources import read_toml

_STATED_BY: Final = {
    "megatron-lm": ("Megatron-LM", "megatron_core_version"),
    "megatron-bridge": ("Megatron Bridge", "megatron_bridge_version"),
}
_SHOWN_COUNT: Final = 3
_UNSET = (None, False, "None", "False", "null", "none")

_Release = tuple[int, int]


@cache
def releases(kind: str, framework: str) -> Mapping[str, _Release]:
    """Return the first release with a setting (`since`), or without it (`until`), by the setting's name."""
    table = read_toml("advice/releases.toml")[kind].get(framework, {})
    return {name: _parse(release) for release, names in table.items() for name in names}


def _parse(text: str) -> _Release:
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


def check_releases(
    path: Path, entries: Iterable[Entry], settings: Mapping[str, KnownSetting]
) -> Iterator[Finding]:
    """Yield a finding for settings that the stated release lacks, or one that no release is stated.

    Megatron-LM stops at an unknown argument. Megatron Bridge drops an unknown key with a warning. Values that
    enable nothing are ignored.
    """
    framework = str(settings["framework"].value) if "framework" in settings else ""
    if framework not in _STATED_BY:
        return
    program, key = _STATED_BY[framework]
    since, until = releases("since", framework), releases("until", framework)
    names = dict.fromkeys(bare_name(name) for name, value in entries if value not in _UNSET and value != [])
    newer = sorted((each for each in names if each in since), key=lambda each: since[each])
    stated = settings.get(key)
    if stated is None or not isinstance(stated.value, str):
        if newer:
            first = _write(since[newer[-1]])
            yield Finding(
                "configuration-release",
                Severity.INFO,
                f"{path.name}: {newer[-1]} needs {program} {first} or newer; the file states no release",
                f"add {key} with the release that runs, such as {first}.0 (in quotes)",
            )
        return
    release = _parse(stated.value)
    lacking = {each: f"from {_write(since[each])}" for each in newer if since[each] > release}
    lacking |= {
        each: f"before {_write(until[each])}" for each in names if each in until and until[each] <= release
    }
    if lacking:
        shown = [f"{name} ({where})" for name, where in list(lacking.items())[:_SHOWN_COUNT]]
        more = f" and {len(lacking) - _SHOWN_COUNT} more" if len(lacking) > _SHOWN_COUNT else ""
        stops = framework == "megatron-lm"
        yield Finding(
            "configuration-release",
            Severity.ERROR if stops else Severity.WARNING,
            f"{path.name}: {program} {_write(release)} lacks {', '.join(shown)}{more};"
            f" it {'stops at them' if stops else 'ignores them'}",
            f"use a release that has them, or remove them; correct {key} if it is wrong",
        )


def _write(release: _Release) -> str:
    return ".".join(map(str, release))

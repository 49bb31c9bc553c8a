"""Arguments that Megatron-LM's parser rejects: values that it does not know, and switches with a value."""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

from wallscope.advice.bridge_sections import report_impossible
from wallscope.advice.configuration_text import Entry
from wallscope.advice.settings import bare_name, vocabulary
from wallscope.model.capture import Finding
from wallscope.resources import read_toml

_VALUES_OF_SWITCHES: Final = {"true", "false", "1", "0", "yes", "no"}
_FEW: Final = 8


@cache
def choices() -> dict[str, list[str]]:
    """Return the accepted values of settings that have few, by current name."""
    return dict(read_toml("advice/settings.toml")["choices"])


def find_rejected_arguments(path: Path, entries: Iterable[Entry], *, is_open: bool) -> Iterator[Finding]:
    """Yield the flags of an argument list with which the parser of Megatron-LM stops.

    Args:
        path: the file, for messages.
        entries: flags and their values.
        is_open: whether words of the list may be missing.
    """
    words = vocabulary()
    for written, value in entries:
        bare = bare_name(written)
        name = words.name(written) or words.off.get(bare) or words.name(bare.removeprefix("no_"))
        kind = words.kinds.get(name or "")
        if not written.startswith("--") or name is None or kind is None or not isinstance(value, str):
            continue
        if "$" in value:
            continue
        first, *others = value.split() or [""]
        if kind == "switch":
            if first.lower() in _VALUES_OF_SWITCHES and not others:
                yield report_impossible(
                    f"{path.name}: {written} takes no value, and has {first}",
                    "remove the value; leave out the flag to disable it",
                )
        elif not first and kind != "environment" and not is_open:
            yield report_impossible(f"{path.name}: {written} has no value", "write its value after it")
        elif first and name in choices() and first not in choices()[name]:
            known = choices()[name]
            yield report_impossible(
                f"{path.name}: {written} has no choice {first[:40]!r}",
                f"choose from {', '.join(known[:_FEW])}",
            )

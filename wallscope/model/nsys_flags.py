"""Which options and values an installed nsys takes: its own help says so."""

import re
from collections.abc import Iterable, Mapping

from wallscope.records import dataclass

_OPTION = re.compile(
    r"\s*(?:\((?:Experimental|Deprecated)\) )?(?:-\w, )?(--[a-z0-9][a-z0-9-]*)(?:\[[^\]]*\])?(?:[= ].*)?"
)
_CHOICES = re.compile(r"Possible (?:values|formats)\b.*?(?:\n\s*\n|\.\s*\n|\Z)", re.DOTALL)
_ANYTHING = re.compile(r"Possible values are:? (?:\(|a |integers|one or more|`range@)")


@dataclass(frozen=True, slots=True)
class InstalledNsys:
    """An nsys, its version as it prints it, and the text about each option of `profile` and `export`."""

    path: str
    version: str
    profile: Mapping[str, str]
    export: Mapping[str, str]

    def takes(self, flag: str, command: str = "profile") -> bool:
        """Return whether this nsys has the option of a flag (`--trace=cuda,nvtx`), and lists its values."""
        name, _, value = flag.partition("=")
        text = (self.profile if command == "profile" else self.export).get(name)
        if text is None:
            return False
        listed = _CHOICES.search(text)
        if not value or listed is None or _ANYTHING.match(listed[0]):
            return True
        return all(
            re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", listed[0]) is not None
            for word in value.split(",")
        )

    def sort_flags(
        self, flags: Iterable[str], command: str = "profile"
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the flags that this nsys takes, and those that it does not."""
        taken: list[str] = []
        refused: list[str] = []
        for flag in flags:
            (taken if self.takes(flag, command) else refused).append(flag)
        return tuple(taken), tuple(refused)


def parse_options(help_text: str) -> dict[str, str]:
    r"""Return the text about each option in the help of a command of nsys.

    >>> parse_options("\t-t, --trace=\n\n\t   Possible values are 'cuda', 'nvtx'.\n")["--trace"]
    "Possible values are 'cuda', 'nvtx'."
    """
    found: dict[str, list[str]] = {}
    name = None
    for line in help_text.splitlines():
        option = _OPTION.fullmatch(line)
        if option is not None:
            name = option[1]
            found[name] = []
        elif name is not None:
            found[name].append(line)
    return {option: "\n".join(lines).strip() for option, lines in found.items()}

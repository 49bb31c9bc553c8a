"""How a run was configured, as far as it is known: settings under one canonical name each."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Value = bool | int | float | str | None | tuple["Value", ...]


@dataclass(frozen=True, slots=True)
class KnownSetting:
    """A setting's value, and what told it: a file, a kernel or range of the trace, the environment."""

    value: Value
    source: str


@dataclass(frozen=True, slots=True)
class RunConfiguration:
    """Settings by canonical name, which is the current Megatron Bridge key without its section.

    What is absent is unknown; a setting that is known to be off is there with its value.
    """

    settings: Mapping[str, KnownSetting] = field(default_factory=dict)

    def get(self, key: str) -> Value:
        """The value, or `None` where it is unknown."""
        known = self.settings.get(key)
        return None if known is None else known.value

    def knows(self, key: str) -> bool:
        """Whether anything told the setting."""
        return key in self.settings

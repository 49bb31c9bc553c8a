"""The record of a commit in a store: its runs, their testbed, and the lengths of their steps."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal

RECORD_SCHEMA: Final = "wallscope.record/1"
CONFIGURATION: Final = "configuration"
"""The label with the fingerprint of the configuration; users select by it and do not set it."""
PULL_REQUEST: Final = "pull-request"
"""The origin of runs of code that is not merged yet."""


@dataclass(frozen=True, slots=True)
class Testbed:
    """What runs must share to be compared: GPU, size of the job, definition of a step, and labels.

    `configuration` are their settings by name. Runs on one machine that differ only in it are compared if
    there are no others, and the output states that.
    """

    gpu: str | None
    world_size: int | None
    ranks: int
    unit: str
    name: str | None
    labels: Mapping[str, str]
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def machine(self) -> "Testbed":
        """The testbed without the configuration."""
        return replace(self, configuration={})

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the configuration in eight digits; empty if it is unknown."""
        text = json.dumps(dict(self.configuration), sort_keys=True)
        return sha256(text.encode()).hexdigest()[:8] if self.configuration else ""

    def fits(self, labels: Mapping[str, str]) -> bool:
        """Return whether it has all the labels; `configuration` matches a prefix of the fingerprint."""
        own = {key: value for key, value in labels.items() if key != CONFIGURATION}
        return own.items() <= self.labels.items() and self.fingerprint.startswith(
            labels.get(CONFIGURATION, "")
        )

    def __str__(self) -> str:
        """The testbed in one line, for selection by a user."""
        size = self.world_size or self.ranks
        fingerprint = [f"{CONFIGURATION}={self.fingerprint}"] if self.configuration else []
        parts = [self.gpu or "GPU unknown", f"{size} ranks" if size > 1 else "1 rank", self.name or self.unit]
        return ", ".join(
            [*parts, *(f"{key}={value}" for key, value in sorted(self.labels.items())), *fingerprint]
        )


@dataclass(frozen=True, slots=True)
class RecordedRank:
    """One rank of a recorded run: the object with its profile, and its typical step by cause."""

    rank: int | None
    device: int | None
    object: str
    typical_ns: int
    steps: int
    causes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One run of a commit on a testbed; `speaks` is the index of the rank that computes least.

    `origin` is `PULL_REQUEST`, or a value of a later version; without one the run is a reference.
    """

    schema: Literal["wallscope.record/1"]
    commit: str
    testbed: Testbed
    recorded_utc_ns: int
    ranks: tuple[RecordedRank, ...]
    speaks: int
    origin: str | None = None

    @property
    def is_reference(self) -> bool:
        """Return whether other runs may use it as their base, and for the noise between runs."""
        return self.origin is None

    @property
    def representative(self) -> RecordedRank:
        """The rank that is compared."""
        return self.ranks[self.speaks]

    def metric_ns(self, name: str) -> int:
        """The typical step (`step`), or the time of a wall or a cause in it."""
        rank = self.representative
        if name == "step":
            return rank.typical_ns
        return sum(
            time_ns
            for cause, time_ns in rank.causes.items()
            if cause == name or cause.partition("/")[0] == name
        )


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation between runs, relative to what varies, and from how many degrees of freedom."""

    deviation: float
    freedom: float


@dataclass(frozen=True, slots=True)
class RecordedNoise:
    """What recorded runs differ by: `step`, walls and causes by name; `steps` is how many a run has."""

    noise: Mapping[str, Noise]
    steps: float

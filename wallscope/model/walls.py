"""Who pays for time, in nanoseconds."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Walls:
    """Who pays for a window; the five parts sum to it, exactly."""

    compute: int
    communication: int
    memory: int
    host: int
    unattributed: int

    def parts(self) -> tuple[int, ...]:
        """The five parts, in the order of `Wall`."""
        return (self.compute, self.communication, self.memory, self.host, self.unattributed)

"""How a run was configured, as far as it is known: settings under one canonical name each."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from wallscope.model.capture import GraphTracing
from wallscope.model.kinds import Axis, Backend, Precision

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


@dataclass(frozen=True, slots=True)
class TraceFacts:
    """What a trace shows of the machine and the run; empty or `None` is unknown.

    `architecture` is as exports write it (`sm_90`), `communicator_sizes` are the numbers of ranks of the
    communicators seen on an axis, `backends` the communication libraries whose kernels ran. `least` is how
    large numbers of the configuration must be for what ran: their values are not known by that.
    """

    architecture: str | None = None
    gpu: str | None = None
    nvlink_domain: int | None = None
    world_size: int | None = None
    backends: tuple[Backend, ...] = ()
    communicator_sizes: Mapping[Axis, tuple[int, ...]] = field(default_factory=dict)
    cuda_graphs: GraphTracing | None = None
    precisions: tuple[Precision, ...] = ()
    grouped_experts: bool | None = None
    permute_fused: bool | None = None
    router_fused: bool | None = None
    ep_overlap: bool | None = None
    delayed_wgrad: bool | None = None
    activation_offload: bool | None = None
    least: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    def settings(self) -> dict[str, Value]:
        """Facts of the machine under the keys that conditions ask for; unknown ones are left out."""
        numbers = re.fullmatch(r"sm_(\d+)\d[a-z]?", self.architecture or "")
        facts: dict[str, Value] = {
            "compute_capability": None if numbers is None else int(numbers[1]),
            "gpu_name": self.gpu,
            "nvlink_domain": self.nvlink_domain,
            "world_size": self.world_size,
        }
        return {key: value for key, value in {**facts, **self.environment}.items() if value is not None}

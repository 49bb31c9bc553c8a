"""The machines that advice knows."""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from wallscope.errors import OptionError
from wallscope.model.configuration import TraceFacts


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of GPU server; `nvlink_domain` GPUs are joined by NVLink."""

    id: str
    name: str
    architecture: str
    nvlink_domain: int

    @property
    def is_rack(self) -> bool:
        """Whether NVLink joins a whole rack."""
        return self.nvlink_domain > 8

    @property
    def has_fp8(self) -> bool:
        """Whether its matrix units take FP8."""
        return int(self.architecture.removeprefix("sm_")) >= 89

    @property
    def is_blackwell(self) -> bool:
        """Whether MXFP8 and NVFP4 run on it."""
        return int(self.architecture.removeprefix("sm_")) >= 100

    def facts(self) -> TraceFacts:
        """What a trace of it would show of the machine."""
        return TraceFacts(architecture=self.architecture, gpu=self.name, nvlink_domain=self.nvlink_domain)


@cache
def machines() -> dict[str, Machine]:
    """All of them by short name."""
    text = (files("wallscope.advice") / "hardware.toml").read_text(encoding="utf-8")
    return {
        id_: Machine(id_, table["name"], table["architecture"], table["nvlink_domain"])
        for id_, table in tomllib.loads(text).items()
    }


def machine(name: str) -> Machine:
    """The machine of a short name or of a device name such as `NVIDIA H100 80GB HBM3`.

    Raises:
        OptionError: there is none.
    """
    words = name.lower().replace("-", " ").split()
    for word in words:
        if word in machines():
            return machines()[word]
    raise OptionError(f"--hardware {name} — is not known — name one of {', '.join(machines())}")

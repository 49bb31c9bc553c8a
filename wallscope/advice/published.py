"""Published data: machines, model families, presets, long-context configurations, throughput."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import log2
from typing import Any

from wallscope.errors import OptionError
from wallscope.files import read_toml
from wallscope.model.advice import Band, Levers, Preset, Sizes, TraceFacts
from wallscope.records import dataclass

_IN_SLOTS = {"pcie", "nvl", "mig"}
"""Words in the names of PCIe cards, which a bridge may join to neighbors, and of GPU instances."""
_NAME = re.compile(r"(?P<family>.+)_(?P<gpus>\d+)gpu_(?P<machine>[a-z]+\d+)_(?P<precision>[a-z0-9]+)")
_PRECISIONS = {"fp8cs": "fp8", "fp8sc": "fp8", "fp8ds": "fp8", "fp8mx": "mxfp8"}
_MOST_NEAR = 3
_SHARDED = ("_fsdp", "_hsdp")
_FP8_OF_AMD = ("gfx942", "gfx950")


@dataclass(frozen=True, slots=True)
class Machine:
    """A kind of GPU server; NVLink joins `nvlink_domain` GPUs, `None` if unknown.

    GPUs with architecture `None` are newer than Blackwell.
    """

    id: str
    name: str
    architecture: str | None
    nvlink_domain: int | None
    memory_bytes: int | None = None

    @property
    def is_rack(self) -> bool:
        """Whether NVLink joins a whole rack."""
        return is_rack(self.nvlink_domain)

    @property
    def has_fp8(self) -> bool:
        """Whether its matrix cores support FP8."""
        return self._number >= 89 or self.architecture in _FP8_OF_AMD

    @property
    def is_hopper(self) -> bool:
        """Whether its tensor cores scale FP8 by blocks, without MXFP8."""
        return self.architecture == "sm_90"

    @property
    def is_blackwell(self) -> bool:
        """Whether it supports MXFP8 and NVFP4."""
        return self._number >= 100

    @property
    def best_precision(self) -> str:
        """The precision of 16 bits that its matrix cores support: BF16, or FP16 on older GPUs."""
        is_of_amd = self.architecture is not None and not self.architecture.startswith("sm_")
        return "bf16" if self._number >= 80 or is_of_amd else "fp16"

    @property
    def _number(self) -> int:
        """The compute capability; of GPUs newer than Blackwell above all, of AMD's 0."""
        if self.architecture is None:
            return 1_000
        return int(self.architecture.removeprefix("sm_")) if self.architecture.startswith("sm_") else 0

    def facts(self) -> TraceFacts:
        """Return what a trace would show of the machine."""
        return TraceFacts(architecture=self.architecture, gpu=self.name, nvlink_domain=self.nvlink_domain)


@dataclass(frozen=True, slots=True)
class Model:
    """A family: its number of experts (0: none) if known, and starting sizes of heuristics, if any."""

    id: str
    experts: int | None
    start: Sizes | None
    vision: bool


@dataclass(frozen=True, slots=True)
class LongContext:
    """A published configuration for one long sequence length."""

    seq_length: int
    sizes: Sizes
    virtual_pipeline: int | None
    text: str
    dispatcher: str
    levers: Levers


@cache
def machines() -> dict[str, Machine]:
    """Return all machines by short name."""
    return {
        id_: Machine(
            id_,
            table["name"],
            table.get("architecture"),
            table.get("nvlink_domain"),
            table["memory_gb"] * 10**9 if "memory_gb" in table else None,
        )
        for id_, table in _read_hardware().items()
    }


def _read_hardware() -> Mapping[str, Mapping[str, Any]]:
    return read_toml("advice/hardware.toml")


def nvlink_domain(gpu: str | None) -> int | None:
    """Return how many GPUs NVLink joins, by the device name of one; `None` if unknown.

    >>> nvlink_domain("NVIDIA H100 80GB HBM3"), nvlink_domain("NVIDIA GB200")
    (8, 72)
    >>> nvlink_domain("NVIDIA H100 PCIe"), nvlink_domain("NVIDIA GeForce RTX 4090"), nvlink_domain(None)
    (None, None, None)
    """
    words = _words(gpu or "")
    if not _IN_SLOTS.isdisjoint(words):
        return None
    return next(
        (_read_hardware()[word].get("nvlink_domain") for word in words if word in _read_hardware()), None
    )


def is_rack(domain: int | None) -> bool:
    """Return whether NVLink joins more GPUs than a node of eight has."""
    return domain is not None and domain > 8


def _words(name: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", name.lower())


def find_machine(name: str) -> Machine:
    """Return the machine with a short name or a device name such as `NVIDIA H100 80GB HBM3`.

    Raises:
        OptionError: there is none.
    """
    for word in _words(name):
        if word in machines():
            return replace(machines()[word], nvlink_domain=nvlink_domain(name))
    raise OptionError(f"--hardware {name} — is unknown — name one of {', '.join(machines())}")


def _models() -> Mapping[str, Mapping[str, Any]]:
    tables: Mapping[str, Mapping[str, Any]] = read_toml("advice/models.toml")["model"]
    return tables


def find_model(name: str) -> Model:
    """Return the model family with a name.

    Raises:
        OptionError: there is none.
    """
    wanted = _letters(name)
    for id_, table in _models().items():
        if wanted in {_letters(id_), *map(_letters, table["names"])}:
            start = Sizes(table["tp"], table["pp"], 1, table["ep"]) if "tp" in table else None
            return Model(id_, table.get("experts"), start, table.get("vision", False))
    known = ", ".join(table["names"][0] for table in _models().values())
    raise OptionError(f"--model {name} — is unknown — name one of {known}")


def list_models(name: str) -> tuple[str, ...]:
    """Return the ids of the model families that a name means, or whose names begin with its words."""
    wanted = _words(name)
    return tuple(
        id_
        for id_, table in _models().items()
        if wanted and any(_words(each)[: len(wanted)] == wanted for each in (id_, *table["names"]))
    )


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def presets() -> tuple[Preset, ...]:
    """Return all shipped presets."""
    return tuple(
        _parse_preset(name, words) for name, words in read_toml("advice/presets.toml")["preset"].items()
    )


def _parse_preset(name: str, words: str) -> Preset:
    layout, batch, dispatcher, graphs, recompute, overlap, _, *sharded = words.split()
    found = _NAME.match(name)
    if found is None:
        raise ValueError(f"{name} does not name a preset")
    tensor, stages, virtual, context, expert = (_parse_count(word) for word in layout.split("/"))
    micro, whole = (_parse_count(word) for word in batch.split("/"))
    precision = found["precision"]
    return Preset(
        name=name,
        family=found["family"],
        gpus=int(found["gpus"]),
        machine=found["machine"],
        precision=_PRECISIONS.get(precision, precision),
        sizes=Sizes(tensor or 1, stages or 1, context or 1, expert or 1),
        virtual_pipeline=virtual,
        micro_batch=micro,
        global_batch=whole,
        dispatcher=dispatcher,
        cuda_graphs=graphs.replace("_", " "),
        recompute=recompute,
        ep_overlap={"on": True, "off": False}.get(overlap),
        states_layout=tensor is not None or expert is not None,
        fully_sharded=bool(sharded) or name.endswith(_SHARDED),
    )


def _parse_count(word: str) -> int | None:
    return None if word == "-" else int(word)


def nearest_presets(family: str, machine: Machine, gpus: int, precision: str) -> tuple[Preset, ...]:
    """Return presets of the family with a layout: same machine first, then precision, then size."""
    same = [each for each in presets() if each.family == family and each.states_layout]

    def distance(each: Preset) -> tuple[bool, bool, float, bool, str]:
        far = abs(log2(each.gpus / gpus))
        kin = machine.is_rack is not is_rack(nvlink_domain(each.machine))
        return each.machine != machine.id, kin, far, each.precision != precision, each.name

    return tuple(sorted(same, key=distance)[:_MOST_NEAR])


def find_long_context(family: str, machine: Machine, seq_length: int) -> LongContext | None:
    """Return the configuration published for this length, else for the next longer one below twice it."""
    fitting = [
        table
        for table in read_toml("advice/models.toml")["family"]
        if table["model"] == family
        and machine.id in table["machines"]
        and seq_length <= table["seq_length"] < 2 * seq_length
    ]
    if not fitting:
        return None
    table = min(fitting, key=lambda each: each["seq_length"])
    sizes = table["sizes"]
    layout = Sizes(sizes["tp"], sizes["pp"], sizes["cp"], sizes["ep"])
    levers = Levers(
        tuple(table["recompute"]), short_gradients=True, offloads_optimizer=table.get("offload", False)
    )
    return LongContext(
        table["seq_length"], layout, sizes.get("vpp"), table["text"], table["dispatcher"], levers
    )


def find_bands(family: str, machine: Machine, *, is_long: bool) -> tuple[Band, ...]:
    """Return the throughput published for the family on the machine, for short or for long sequences."""
    found = [
        table
        for table in read_toml("advice/bands.toml")["band"]
        if (table["family"], table["machine"]) == (family, machine.id) and table.get("long", False) is is_long
    ]
    return tuple(
        Band(family, machine.id, each.get("gpus"), each.get("precision"), each["text"], tuple(each["facts"]))
        for each in found
    )

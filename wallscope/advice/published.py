"""What was published: model families, presets, long-context configurations, throughput."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import log2
from typing import Any

from wallscope.advice.hardware import Machine
from wallscope.errors import OptionError
from wallscope.model.advice import Band, Preset, Sizes

_NAME = re.compile(r"(?P<family>.+)_(?P<gpus>\d+)gpu_(?P<machine>[a-z]+\d+)_(?P<precision>[a-z0-9]+)")
_PRECISIONS = {"fp8cs": "fp8", "fp8sc": "fp8", "fp8ds": "fp8", "fp8mx": "mxfp8"}
_MOST_NEAR = 3


@dataclass(frozen=True, slots=True)
class Model:
    """A family: its experts where known, and sizes that heuristics start from, if there are any."""

    id: str
    experts: int | None
    start: Sizes | None
    vision: bool


@dataclass(frozen=True, slots=True)
class LongFamily:
    """A published configuration for one long sequence length."""

    model: str
    machines: tuple[str, ...]
    seq_length: int
    sizes: Sizes
    virtual_pipeline: int | None
    text: str
    facts: tuple[str, ...]


def _document(name: str) -> dict[str, Any]:
    return tomllib.loads((files("wallscope.advice") / f"{name}.toml").read_text(encoding="utf-8"))


@cache
def _models() -> Mapping[str, Mapping[str, Any]]:
    tables: Mapping[str, Mapping[str, Any]] = _document("models")["model"]
    return tables


def model(name: str) -> Model:
    """The family of a name.

    Raises:
        OptionError: there is none.
    """
    folded = _folded(name)
    for id_, table in _models().items():
        if folded in {_folded(id_), *map(_folded, table["names"])}:
            start = Sizes(table["tp"], table["pp"], 1, table["ep"]) if "tp" in table else None
            return Model(id_, table.get("experts"), start, table.get("vision", False))
    known = ", ".join(table["names"][0] for table in _models().values())
    raise OptionError(f"--model {name} — is not known — name one of {known}")


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


@cache
def presets() -> tuple[Preset, ...]:
    """All presets that travel with the package."""
    return tuple(_preset(name, words) for name, words in _document("presets")["preset"].items())


def _preset(name: str, words: str) -> Preset:
    layout, batch, dispatcher, graphs, recompute, overlap, _ = words.split()
    found = _NAME.match(name)
    if found is None:
        raise ValueError(f"{name} names no preset")
    tensor, stages, virtual, context, expert = (_count(word) for word in layout.split("/"))
    micro, whole = (_count(word) for word in batch.split("/"))
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
        ep_overlap=True if overlap == "on" else None,
        states_layout=expert is not None,
    )


def _count(word: str) -> int | None:
    return None if word == "-" else int(word)


def nearest(family: str, machine: Machine, gpus: int, precision: str) -> tuple[Preset, ...]:
    """Presets of the family with a layout: the same machine first, then the precision, then the size."""
    same = [each for each in presets() if each.family == family and each.states_layout]

    def distance(each: Preset) -> tuple[bool, bool, float, bool, str]:
        far = abs(log2(each.gpus / gpus))
        kin = machine.is_rack is not (each.machine in {"gb200", "gb300", "vr200"})
        return each.machine != machine.id, kin, far, each.precision != precision, each.name

    return tuple(sorted(same, key=distance)[:_MOST_NEAR])


def long_family(family: str, machine: Machine, seq_length: int) -> LongFamily | None:
    """The configuration published for this length, else for the next longer one, up to twice as long."""
    fitting = [
        table
        for table in _document("models")["family"]
        if table["model"] == family
        and machine.id in table["machines"]
        and seq_length <= table["seq_length"] < 2 * seq_length
    ]
    if not fitting:
        return None
    table = min(fitting, key=lambda each: each["seq_length"])
    sizes = table["sizes"]
    return LongFamily(
        family,
        tuple(table["machines"]),
        table["seq_length"],
        Sizes(sizes["tp"], sizes["pp"], sizes["cp"], sizes["ep"]),
        sizes.get("vpp"),
        table["text"],
        tuple(table["facts"]),
    )


def bands(family: str, machine: Machine, *, is_long: bool) -> tuple[Band, ...]:
    """Throughput published for the family on the machine; long sequences have figures of their own."""
    found = [
        table
        for table in _document("bands")["band"]
        if (table["family"], table["machine"]) == (family, machine.id) and table.get("long", False) is is_long
    ]
    return tuple(
        Band(family, machine.id, each.get("gpus"), each.get("precision"), each["text"], tuple(each["facts"]))
        for each in found
    )

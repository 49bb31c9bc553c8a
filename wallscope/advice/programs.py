"""Recognize the program of a capture: the framework whose settings apply, and the evidence for it.

Advice uses the terms of that program: DALI for a PyTorch loader, streams for CUDA C++. Evidence are names of
kernels and ranges, loaded libraries, and the process. The patterns are data (`programs.toml`).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import polars as pl

from wallscope.model.advice import Framework, Program, RunConfiguration, System
from wallscope.resources import read_toml

GENERAL_SYSTEMS: tuple[System, ...] = ("environment", "launcher", "nsys")
"""Systems whose settings apply to any program, if it reads the variable."""
_LONGEST_NAME = 60
_VARIABLES_OF: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("NVTE_", ("megatron",)),
    ("TORCH_", ("megatron", "pytorch")),
    ("PYTORCH_", ("megatron", "pytorch")),
    ("XLA_", ("jax", "tensorflow")),
)
"""Prefixes of variables that only some frameworks read."""


@dataclass(frozen=True, slots=True)
class ProgramTraces:
    """Evidence of a framework: names of kernels and ranges, loaded libraries, the process."""

    names: pl.Series
    libraries: tuple[str, ...] = ()
    interpreter: str | None = None


@cache
def _document() -> dict[str, Any]:
    return read_toml("advice/programs.toml")


def choose_systems(framework: str | None, given: Collection[System]) -> tuple[System, ...]:
    """Return the systems, among the given ones, whose settings apply to a framework besides the general ones.

    >>> choose_systems("megatron", ["pytorch", "megatron-lm"]), choose_systems("megatron", ["pytorch"])
    (('megatron-lm',), ('pytorch',))
    """
    if framework is None:
        return ()
    entry = next(one for one in _document()["framework"] if one["framework"] == framework)
    own = [system for system in entry["systems"] if system in given]
    chosen = own or [system for system in entry.get("also", ()) if system in given]
    return cast("tuple[System, ...]", tuple(chosen))


def is_read_by(variable: str, framework: str | None) -> bool:
    """Return whether programs of a framework read an environment variable.

    >>> is_read_by("NVTE_FUSED_ATTN", "pytorch"), is_read_by("CUDA_MODULE_LOADING", None)
    (False, True)
    """
    readers = next((own for start, own in _VARIABLES_OF if variable.startswith(start)), None)
    return readers is None or framework in readers


def detect_program(traces: ProgramTraces, configuration: RunConfiguration) -> Program:
    """Return the program; a configuration file with settings shows Megatron.

    >>> names = pl.Series(["dali::kernels::warp", "at::native::add"])
    >>> found = detect_program(ProgramTraces(names), RunConfiguration())
    >>> found.name, found.parts, found.evidence[0]
    ('PyTorch', ('dali',), "name 'at::native::add'")
    """
    frameworks = _document()["framework"]
    if configuration.settings:
        entry = next(one for one in frameworks if one["framework"] == "megatron")
        shown: str | None = "the configuration file has its settings"
    else:
        entry, shown = next(
            ((one, shown) for one in frameworks if (shown := _find_evidence(one, traces)) is not None),
            ({}, None),
        )
    if shown is None:
        return Program(None, "unknown program")
    framework: Framework = entry["framework"]
    parts = [*_list_parts(framework, traces)]
    return Program(
        framework,
        entry["name"],
        tuple(part for part, _ in parts),
        (shown, *(line for _, line in parts)),
    )


def _list_parts(framework: str, traces: ProgramTraces) -> Iterator[tuple[str, str]]:
    for one in _document()["part"]:
        if framework in one["of"] and (shown := _find_evidence(one, traces)) is not None:
            yield one["part"], f"{one['name']}: {shown}"


def _find_evidence(entry: dict[str, Any], traces: ProgramTraces) -> str | None:
    """Return the evidence of a framework or part in words; `None` if there is none."""
    if "names" in entry:
        found = traces.names.filter(traces.names.str.contains(entry["names"]))
        if len(found):
            return f"name '{_shorten(found.sort()[0])}'"
    loaded = _first_of(entry.get("libraries", ()), traces.libraries)
    if loaded is not None:
        return f"library {loaded}"
    wanted = entry.get("interpreter")
    if wanted is not None and wanted == traces.interpreter:
        return f"the process is {_RUN_BY[wanted]}, and no name belongs to a framework"
    if wanted == "native" and traces.interpreter is None and len(traces.names):
        return "no name of a kernel, range or library belongs to a framework"
    return None


_RUN_BY = {"native": "a compiled program", "julia": "julia"}


def _first_of(wanted: Sequence[str], there: Sequence[str]) -> str | None:
    return next((one for one in wanted if one in there), None)


def _shorten(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…"

"""The records that the hook writes next to a report: steps, their times without the profiler, versions."""

import contextlib
import json
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from wallscope.errors import CaptureError
from wallscope.model.capture import CAPTURE_RECORD_SCHEMA, CAPTURE_RECORDS
from wallscope.records import dataclass
from wallscope.user_files import read_user_bytes

STEADY_SHARE = 0.05
"""Step times that differ by more do not stand for each other. Chosen: half of a slowdown worth a warning."""
CONFIGURATION = "configuration.yaml"
"""The file next to the reports with the parallel sizes that the program had."""
_SETTINGS = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "context": "context_parallel_size",
    "expert": "expert_model_parallel_size",
    "expert_tensor": "expert_tensor_parallel_size",
}
_SHOWN_VERSIONS = ("torch", "cuda", "hip", "nccl", "megatron.core", "transformer_engine", "deepspeed", "jax")
SLOW_SHARE = 0.10
"""A slowdown by the profiler that the user should know how to lower. Chosen."""
_MALFORMED = (AttributeError, KeyError, RecursionError, TypeError, ValueError)
_MOST_BYTES = 4 << 20
_MOST_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class CaptureRecord:
    """What one process of the captured program counted and measured; times in ns by the clock of the host."""

    run: str
    report: str
    rank: int
    host: str
    phase: str
    is_early: bool
    steps: int
    captured_steps: int
    skip: int
    source: str
    optimizers: tuple[str, ...]
    marks: str
    skipped: tuple[int, ...]
    notes: tuple[str, ...]
    errors: tuple[str, ...]
    before_ns: tuple[int, ...]
    during_ns: tuple[int, ...]
    after_ns: tuple[int, ...]
    durations_ns: Mapping[str, int]
    versions: Mapping[str, str]
    parallel: Mapping[str, int]
    environment: Mapping[str, str]
    written_ns: int

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is measured."""
        return self.phase == "over"

    @property
    def has_capture(self) -> bool:
        """Whether the profiler was stopped after a step, so that there is something to analyze."""
        return self.phase in {"after", "over"} and self.captured_steps > 0 and not self.errors


@dataclass(frozen=True, slots=True)
class UnprofiledStep:
    """The time of a step without the profiler in the same run; `None` with the reason if it is unknown."""

    step_ns: int | None
    reason: str = ""


def read_records(folder: Path, *, host: str = "*") -> tuple[CaptureRecord, ...]:
    """Return the records in a folder, of one host or all; other files are left out."""
    found = []
    for path in sorted(folder.glob(CAPTURE_RECORDS.format(host=host))):
        with contextlib.suppress(OSError, *_MALFORMED, CaptureError):
            found.append(_read_record(path))
    return tuple(found)


def find_records(reports: Iterable[Path]) -> tuple[CaptureRecord, ...]:
    """Return the records of the processes in reports, exports or traces, the newest of each rank."""
    names: dict[Path, set[str]] = {}
    for report in reports:
        names.setdefault(report.parent, set()).add(_strip_ends(report.name))
    newest: dict[tuple[str, str, int], CaptureRecord] = {}
    for folder, own in names.items():
        for one in read_records(folder):
            key = (one.report, one.host, one.rank)
            if one.report in own and one.captured_steps and _is_newer(one, newest.get(key)):
                newest[key] = one
    return tuple(sorted(newest.values(), key=lambda one: (one.rank, one.host)))


def _strip_ends(name: str) -> str:
    """Return the name of a report or trace without what follows its first dot.

    >>> _strip_ends("rank-0.json.gz"), _strip_ends("report-node.sqlite")
    ('rank-0', 'report-node')
    """
    return name.partition(".")[0]


def _is_newer(one: CaptureRecord, other: CaptureRecord | None) -> bool:
    return other is None or one.written_ns > other.written_ns


def measure_unprofiled_step(records: Iterable[CaptureRecord]) -> UnprofiledStep:
    """Return the time of a step before the profiler began: the median of its ranks, if they were steady.

    The steps of a rank lie between two waits for the GPU, so their mean is exact; where the host runs ahead
    of the GPU, single steps are not. The time is known if mean, median and the steps afterwards agree.
    """
    medians = []
    for one in records:
        times = one.before_ns or one.after_ns
        if not times:
            return UnprofiledStep(None, "no step was measured without the profiler")
        median, mean = statistics.median(times), statistics.fmean(times)
        if abs(median - mean) > STEADY_SHARE * mean:
            return UnprofiledStep(
                None, f"the steps before the capture vary: median {_ms(median)}, mean {_ms(mean)}"
            )
        if one.before_ns and one.after_ns:
            later = statistics.median(one.after_ns)
            if abs(later - median) > STEADY_SHARE * median:
                return UnprofiledStep(
                    None, f"steps take {_ms(median)} before the capture and {_ms(later)} after it"
                )
        medians.append(median)
    if not medians:
        return UnprofiledStep(None, "no record was found")
    return UnprofiledStep(max(round(statistics.median(medians)), 1))


def compare_times(records: Iterable[CaptureRecord], lighter: str) -> str | None:
    """Say how much longer a step takes while it is captured; `None` if that is unknown.

    Args:
        records: those of all processes.
        lighter: the options that slow it less.
    """
    found = tuple(records)
    without = measure_unprofiled_step(found)
    during = [statistics.median(one.during_ns) for one in found if one.during_ns]
    if without.step_ns is None or not during:
        return None
    ratio = statistics.median(during) / without.step_ns
    line = (
        f"a step takes {_ms(statistics.median(during))} in the capture and {_ms(without.step_ns)} without it"
    )
    return f"{line}, {ratio:.2f} times as long; less with {lighter}" if ratio > 1 + SLOW_SHARE else line


def describe_versions(records: Iterable[CaptureRecord]) -> str:
    """Return the versions and the parallel sizes of a program, those that all its processes have."""
    found = tuple(records)
    versions = [
        f"{name} {found[0].versions[name]}"
        for name in _SHOWN_VERSIONS
        if name in found[0].versions and len({one.versions.get(name) for one in found}) == 1
    ]
    sizes = [f"{name} {size}" for name, size in find_sizes(found).items()]
    return ", ".join(versions) + (f"; parallel sizes {', '.join(sizes)}" if sizes else "")


def find_sizes(records: Iterable[CaptureRecord]) -> dict[str, int]:
    """Return the parallel sizes that all processes agree on."""
    found = tuple(records)
    return {
        name: size
        for name, size in (found[0].parallel.items() if found else ())
        if size > 0 and all(one.parallel.get(name) == size for one in found)
    }


def write_configuration(folder: Path, records: Iterable[CaptureRecord]) -> None:
    """Write the parallel sizes as settings, for the analysis of the reports in this folder.

    Raises:
        OSError: the file cannot be written.
    """
    sizes = {_SETTINGS[name]: size for name, size in find_sizes(records).items() if name in _SETTINGS}
    if sizes:
        lines = ["# Parallel sizes that the program had, recorded by wallscope capture."]
        lines += [f"{name}: {size}" for name, size in sizes.items()]
        (folder / CONFIGURATION).write_text("\n".join(lines) + "\n", encoding="utf-8")


def _ms(ns: float) -> str:
    from wallscope.units import duration  # noqa: PLC0415  # for the reason alone

    return duration(round(ns))


def _read_record(path: Path) -> CaptureRecord:
    """Return one record.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or a number is out of range.
        KeyError: it lacks a value.
        AttributeError: a value has another type.
        TypeError: same.
        CaptureError: it is too large, or of another version.
    """
    cure = "capture again"
    content: dict[str, Any] = json.loads(read_user_bytes(path, _MOST_BYTES, cure, CaptureError))
    if not isinstance(content, dict) or content.get("schema") != CAPTURE_RECORD_SCHEMA:
        raise CaptureError(f"{path} — is not a record of this version — {cure}")
    return CaptureRecord(
        run=_text(content["run"]),
        report=_text(content["report"]),
        rank=_count(content["rank"]),
        host=_text(content["host"]),
        phase=_text(content["phase"]),
        is_early=content["is_early"] is True,
        steps=_count(content["steps"]),
        captured_steps=_count(content["captured_steps"]),
        skip=_count(content["skip"]),
        source=_text(content["source"]),
        optimizers=tuple(_text(one["class"]) for one in content["optimizers"]),
        marks=_text(content["marks"]),
        skipped=tuple(map(_count, content["skipped"])),
        notes=tuple(map(_text, content["notes"])),
        errors=tuple(map(_text, content["errors"])),
        before_ns=tuple(map(_count, content["before_ns"])),
        during_ns=tuple(map(_count, content["during_ns"])),
        after_ns=tuple(map(_count, content["after_ns"])),
        durations_ns={_text(name): _count(value) for name, value in content["durations_ns"].items()},
        versions={_text(name): _text(value) for name, value in content["versions"].items()},
        parallel={_text(name): _count(value) for name, value in content["parallel"].items()},
        environment={_text(name): _text(value) for name, value in content["environment"].items()},
        written_ns=path.stat().st_mtime_ns,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError
    if not 0 <= value < _MOST_NS:
        raise ValueError
    return value

"""Peak rates of GPUs for dense matrices: of their data sheets, else computed from what the capture says.

Names are compared whole: a MIG slice or a variant that is not listed has not the peak of the listed GPU. Its
multiprocessors and clock give the peak if its architecture has one rate for a cycle. Of boards that share a
name, the multiprocessors show which one it is.
"""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from wallscope.model.capture import Gpu
from wallscope.model.diagnosis import Peak
from wallscope.model.enums import Precision
from wallscope.model.speed_of_light import GpuPeak, PrecisionRate
from wallscope.records import dataclass

_TERA, _GIGA, _MEGA = 1e12, 1e9, 1e6
_AS_FAST_AS = {Precision.FP16: Precision.BF16, Precision.MXFP8: Precision.FP8}


@dataclass(frozen=True, slots=True)
class _Listed:
    """Rates of a GPU by precision in TFLOP/s, of the data sheet; of boards with so many multiprocessors.

    `bandwidth` is that of the memory in GB/s, and `clock` the one of the sheet's rates in MHz. `measured` are
    the best rates that libraries reach.
    """

    rates: Mapping[str, float]
    sheet: str
    multiprocessors: int | None
    bandwidth: float
    clock: float | None
    measured: Mapping[str, float]

    def fits(self, gpu: Gpu) -> bool:
        """Return whether a GPU of this name is the board."""
        return self.multiprocessors in {None, gpu.sm_count}


def find_peak(gpu: Gpu, precision: Precision) -> Peak | None:
    """Return the peak of a GPU in one precision, `None` where it is not known.

    >>> h800 = Gpu(0, "NVIDIA H800", "sm_90", 132, None, None)
    >>> find_peak(h800, Precision.BF16).flops_per_s
    989400000000000.0
    >>> find_peak(Gpu(0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "sm_90", 16, None, None), Precision.BF16)
    """
    boards = _list_boards().get(gpu.name or "")
    if boards is None:
        return _compute_peak(gpu, precision)
    board = next((one for one in boards if one.fits(gpu)), None)
    rate = None if board is None else _find_rate(board.rates, precision)
    return None if board is None or rate is None else Peak(rate * _TERA, precision, board.sheet)


def find_bandwidth(gpu: Gpu) -> float | None:
    """Return the bytes per second of the memory of a GPU: as captured, else of its data sheet.

    >>> find_bandwidth(Gpu(0, "NVIDIA A30", "sm_80", 56, None, None))
    933000000000.0
    """
    if gpu.memory_bandwidth_bytes_per_s:
        return float(gpu.memory_bandwidth_bytes_per_s)
    boards = _list_boards().get(gpu.name or "", ())
    return next((one.bandwidth * _GIGA for one in boards if one.fits(gpu)), None)


def _list_measured(gpu: Gpu) -> tuple[PrecisionRate, ...]:
    """Return the best rates that libraries were measured to reach on a GPU, by precision."""
    boards = _list_boards().get(gpu.name or "", ())
    found = next((one.measured for one in boards if one.fits(gpu)), {})
    return tuple(
        PrecisionRate(one, rate * _TERA) for one in Precision if (rate := _find_rate(found, one)) is not None
    )


def _find_clock(gpu: Gpu) -> float | None:
    """Return the clock in Hz at which a GPU has its peak rates: of the data sheet, else as captured."""
    boards = _list_boards().get(gpu.name or "")
    if boards is None:
        return gpu.clock_hz
    return next((one.clock * _MEGA for one in boards if one.fits(gpu) and one.clock is not None), None)


def list_peaks(gpu: Gpu) -> GpuPeak | None:
    """Return the peaks of a GPU in all precisions whose peak is known, `None` if none is.

    >>> found = list_peaks(Gpu(0, "NVIDIA A30", "sm_80", 56, None, None))
    >>> [(rate.precision.value, rate.flops_per_s / 1e12) for rate in found.rates], found.is_derived
    ([('bf16', 165.0), ('fp16', 165.0), ('tf32', 82.0), ('fp32', 10.3)], False)
    """
    peaks = [peak for peak in (find_peak(gpu, one) for one in Precision) if peak is not None]
    if gpu.name is None or not peaks:
        return None
    return GpuPeak(
        gpu=gpu.name,
        rates=tuple(PrecisionRate(peak.precision, peak.flops_per_s) for peak in peaks),
        source=peaks[0].source,
        is_derived=gpu.name not in _list_boards(),
        clock_hz=_find_clock(gpu),
        measured=_list_measured(gpu),
    )


def _compute_peak(gpu: Gpu, precision: Precision) -> Peak | None:
    """Return the peak of a GPU without a data sheet here, from its multiprocessors and its clock."""
    cycle = _read_rates()["cycle"]
    if gpu.name is None or gpu.sm_count is None or gpu.clock_hz is None or "MIG" in gpu.name:
        return None
    if gpu.name.startswith(tuple(cycle["exceptions"])):
        return None
    is_consumer = any(word in gpu.name for word in cycle["consumer_words"])
    rates = cycle["rates"] | (cycle["consumer"] if is_consumer else {})
    rate = _find_rate(rates.get(gpu.architecture, {}), precision)
    if rate is None:
        return None
    source = (
        f"computed from {gpu.sm_count} multiprocessors at {gpu.clock_hz / 1e6:.0f} MHz, no data sheet known"
    )
    return Peak(float(rate * gpu.sm_count * gpu.clock_hz), precision, source)


def _find_rate(rates: Mapping[str, float], precision: Precision) -> float | None:
    return rates.get(precision, rates.get(_AS_FAST_AS.get(precision, precision)))


@cache
def _list_boards() -> Mapping[str, tuple[_Listed, ...]]:
    """Return the GPUs with a data sheet, by name."""
    found: dict[str, tuple[_Listed, ...]] = {}
    for table in _read_rates()["gpu"]:
        listed = _Listed(
            table["rates"],
            table["sheet"],
            table.get("multiprocessors"),
            table["bandwidth"],
            table.get("clock"),
            table.get("measured", {}),
        )
        found |= {name: (*found.get(name, ()), listed) for name in table["names"]}
    return found


@cache
def _read_rates() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("peaks.toml").read_text(encoding="utf-8"))

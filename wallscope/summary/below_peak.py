"""Why kernels that multiply are below the peak: by their grids and names."""

import re
from collections.abc import Mapping

import numpy as np

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Rows, as_integers, find_places, sum_by_group
from wallscope.model.capture import Capture, Gpu
from wallscope.model.enums import ComputeCategory
from wallscope.model.speed_of_light import BelowPeak
from wallscope.thresholds.causes import BELOW_PEAK_SHARE
from wallscope.thresholds.verdict import MATERIAL_SHARE

_FINE = r"(?i)fp8\w*128c|blockwise"
"""FP8 with scales for blocks, whose sums leave the tensor cores on Hopper."""
_FIRST_FLASH = r"fmha_(fwd|bwd)\w*loop"
"""The first FlashAttention, of 2022."""
_EARLIER = {
    "sm_80": r"\bvolta_|sm7[05]",
    "sm_90": r"\b(volta|ampere)_|sm(7[05]|8[069])|flash_(fwd|bwd)\w*_kernel",
    "sm_100": r"\b(volta|ampere)_|sm(7[05]|8[069]|90)|flash_(fwd|bwd)\w*_kernel",
}
"""Names of kernels for earlier architectures."""


def find_below_peak(
    work: TypicalWork,
    capture: Capture,
    gpu: Gpu | None,
    rows: Rows,
    sized: Mapping[BelowPeak, Mapping[ComputeCategory, int]],
) -> dict[ComputeCategory, dict[BelowPeak, int | None]]:
    """Return reasons why kernels are below the peak, with ns of a step where that is known.

    Args:
        work: the typical step of a rank.
        capture: with names and grids.
        gpu: of the rank.
        rows: of kernels that multiply, with known FLOPs.
        sized: ns that operators show of reasons, over all steps.
    """
    columns = work.columns
    category, inside_ns = columns.category[rows], columns.inside_ns[rows]
    all_ns = sum_by_group(category, inside_ns, len(CATEGORIES))
    found: dict[ComputeCategory, dict[BelowPeak, int | None]] = {
        ComputeCategory(CATEGORIES[one]): {} for one in np.flatnonzero(all_ns).tolist()
    }
    idle_ns = sum_by_group(category, _measure_unfilled(work, capture, gpu, rows), len(CATEGORIES))
    architecture = "" if gpu is None else gpu.architecture or ""
    earlier = "|".join(filter(None, (_FIRST_FLASH, _EARLIER.get(architecture))))
    patterns = {BelowPeak.OLD_KERNELS: re.compile(earlier)}
    if architecture == "sm_90":
        patterns[BelowPeak.FINE_ACCUMULATION] = re.compile(_FINE)
    names = np.unique(columns.name[rows])
    texts = capture.names["text"]
    for one, own in found.items():
        place = CATEGORIES.index(one)
        for reason, times_ns in sized.items():
            if times_ns.get(one, 0) >= MATERIAL_SHARE * all_ns[place]:
                own[reason] = work.mean(times_ns[one])
        if idle_ns[place] >= BELOW_PEAK_SHARE * all_ns[place]:
            own[BelowPeak.UNFILLED_GPU] = work.mean(int(idle_ns[place]))
    for reason, pattern in patterns.items():
        matching = [name for name in names.tolist() if pattern.search(texts[name])]
        is_so = np.isin(columns.name[rows], matching)
        own_ns = sum_by_group(category[is_so], inside_ns[is_so], len(CATEGORIES))
        for one, own in found.items():
            place = CATEGORIES.index(one)
            if own_ns[place] >= BELOW_PEAK_SHARE * all_ns[place]:
                own[reason] = None
    return found


def _measure_unfilled(work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows) -> Rows:
    """Return the ns of kernels by the share of multiprocessors that have no block of them."""
    if gpu is None or gpu.sm_count is None:
        return np.zeros(rows.size, np.int64)
    place = find_places(work.columns.op[rows].astype(np.int64), capture.kernels["op"].to_numpy())
    unknown = gpu.sm_count
    blocks = np.append(as_integers(capture.kernels["blocks"], unknown), unknown)[place]
    share = np.maximum(1 - blocks / gpu.sm_count, 0)
    return np.rint(work.columns.inside_ns[rows] * share).astype(np.int64)

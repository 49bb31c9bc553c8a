"""Why kernels that multiply are below the peak: by their grids and names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wallscope.attribution.totals import TypicalWork
from wallscope.columns import Flags, Rows, as_integers, find_places, sum_by_group
from wallscope.model.capture import Capture, Gpu
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


class KernelGroups(NamedTuple):
    """Kernels that multiply, in groups.

    Attributes:
        rows: of the kernels, in the typical work.
        group: the number of the group of each.
        sized: ns that operators show of reasons, over all steps, of each group.
    """

    rows: Rows
    group: Rows
    sized: Sequence[Mapping[BelowPeak, int]]


def find_below_peak(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, kernels: KernelGroups
) -> list[dict[BelowPeak, int | None]]:
    """Return reasons why kernels are below the peak, for each group, with ns of a step where that is known.

    Args:
        work: the typical step of a rank.
        capture: with names and launch shapes of kernels.
        gpu: of the rank.
        kernels: those of the rank that multiply.
    """
    rows, group, sized = kernels
    columns, count = work.columns, len(sized)
    inside_ns = columns.inside_ns[rows]

    def add(part_ns: Rows, where: Flags | None = None) -> list[int]:
        chosen = group if where is None else group[where]
        return [int(one) for one in sum_by_group(chosen, part_ns, count).tolist()]

    all_ns = add(inside_ns)
    parts = {reason: add(part_ns) for reason, part_ns in _measure_launches(work, capture, gpu, rows)}
    architecture = "" if gpu is None else gpu.architecture or ""
    earlier = "|".join(filter(None, (_FIRST_FLASH, _EARLIER.get(architecture))))
    patterns = {BelowPeak.OLD_KERNELS: re.compile(earlier)}
    if architecture == "sm_90":
        patterns[BelowPeak.FINE_ACCUMULATION] = re.compile(_FINE)
    names, texts = np.unique(columns.name[rows]), capture.names["text"]
    named = {}
    for reason, pattern in patterns.items():
        is_so = np.isin(columns.name[rows], [one for one in names.tolist() if pattern.search(texts[one])])
        named[reason] = add(inside_ns[is_so], is_so)
    found: list[dict[BelowPeak, int | None]] = []
    for place, times_ns in enumerate(sized):
        least_ns = BELOW_PEAK_SHARE * all_ns[place]
        own: dict[BelowPeak, int | None] = {
            reason: work.mean(part_ns)
            for reason, part_ns in times_ns.items()
            if part_ns and part_ns >= MATERIAL_SHARE * all_ns[place]
        }
        for reason, part in parts.items():
            if part[place] and part[place] >= least_ns:
                own[reason] = work.mean(part[place])
        for reason, part in named.items():
            if part[place] and part[place] >= least_ns:
                own[reason] = None
        found.append(own)
    return found


def _measure_launches(
    work: TypicalWork, capture: Capture, gpu: Gpu | None, rows: Rows
) -> Iterator[tuple[BelowPeak, Rows]]:
    """Yield the ns of kernels by the share of the GPU that their grids leave without a block.

    Grids below the number of multiprocessors leave some without any. In others, some multiprocessors have one
    block less than those with most, whatever else fits there: blocks share the arithmetic of one.
    """
    if gpu is None or gpu.sm_count is None or not rows.size:
        return
    place = find_places(work.columns.op[rows].astype(np.int64), capture.kernels["op"].to_numpy())
    blocks = np.append(as_integers(capture.kernels["blocks"], gpu.sm_count), gpu.sm_count)[place]
    each = blocks / gpu.sm_count
    idle_ns = np.rint(work.columns.inside_ns[rows] * (1 - each / np.ceil(each).clip(1))).astype(np.int64)
    yield BelowPeak.UNFILLED_GPU, np.where(each < 1, idle_ns, 0)
    yield BelowPeak.LAST_WAVE, np.where(each > 1, idle_ns, 0)

"""Encoder, projectors and decoder of a model with vision, by the ranges that name them.

Ranges are NVTX ranges, or those of modules. A part is known by its name alone, so that a decoder and an
encoder are both needed: vision models without a decoder have no such parts.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from wallscope.model.analysis import Analysis, RangeWork
from wallscope.records import dataclass

_INNER: Final = " / "
"""Between the names of a path of ranges."""


class VisionPart(StrEnum):
    """A part of a model that reads images and text."""

    ENCODER = "encoder"
    PROJECTOR = "projector"
    DECODER = "decoder"


_NAMES: Final = {
    VisionPart.PROJECTOR: re.compile(
        r"(?i)(?:vision|multi_?modal|mm|image|visual)_?(?:proj|connector)|projector|(?:patch|deepstack)_?merger"
        r"|(?:^|\W)merger(?:_list)?(?:\W|$)|resampler"
    ),
    VisionPart.ENCODER: re.compile(
        r"(?i)vision_?(?:model|tower|encoder|transformer|backbone)|image_?encoder|(?:^|[\W_])vit(?:[\W_]|$)"
        r"|(?:^|\W)visual(?:\W|$)"
    ),
    VisionPart.DECODER: re.compile(
        r"(?i)(?:language|text)_?model|(?:^|\W)(?:llm|decoder)(?:\W|$)|language_?decoder|GPTModel"
    ),
}
"""Names of parts, in the order in which they are tried: a projector may be named inside a tower."""


@dataclass(frozen=True, slots=True)
class VisionTimes:
    """Device time of the parts in the typical step of a rank.

    `encoder_backward_ns` is that of the encoder's backward pass alone, which the other times have in them;
    `None` if the capture does not link backward passes.
    """

    encoder_ns: int
    projector_ns: int
    decoder_ns: int
    step_ns: int
    encoder_backward_ns: int | None


def measure_vision(ranges: Sequence[RangeWork], step_ns: int) -> VisionTimes | None:
    """Return the times of the parts; `None` unless ranges name both an encoder and a decoder.

    >>> from wallscope.model.analysis import RangeWork
    >>> ranges = [
    ...     RangeWork(name, path, 1, 0, ns, ns, ns, ns)
    ...     for name, path, ns in [
    ...         ("visual", "step / visual", 30),
    ...         ("merger", "step / visual / merger", 5),
    ...         ("language_model", "step / language_model", 60),
    ...     ]
    ... ]
    >>> found = measure_vision(ranges, 100)
    >>> (found.encoder_ns, found.projector_ns, found.decoder_ns, found.encoder_backward_ns)
    (25, 5, 60, None)
    """
    named = {entry.path: (part, entry) for entry in ranges if (part := _name_part(entry.name)) is not None}
    times: dict[VisionPart, int] = {}
    backward: dict[VisionPart, int] = {}
    for path, (part, entry) in named.items():
        around = _find_around(path, named)
        if around is not None and part in {around, VisionPart.DECODER}:
            continue  # its time is in that of the part around it
        for whose, sign in ((part, 1), (around, -1)):
            if whose is not None:
                own_ns = entry.backward_gpu_ns or 0
                times[whose] = times.get(whose, 0) + sign * (entry.gpu_ns + own_ns)
                backward[whose] = backward.get(whose, 0) + sign * own_ns
    if not {VisionPart.ENCODER, VisionPart.DECODER} <= times.keys():
        return None
    is_linked = backward[VisionPart.DECODER] > 0
    encoder, projector, decoder = (
        max(times.get(part, 0), 0) for part in (VisionPart.ENCODER, VisionPart.PROJECTOR, VisionPart.DECODER)
    )
    return VisionTimes(
        encoder, projector, decoder, step_ns, max(backward[VisionPart.ENCODER], 0) if is_linked else None
    )


def _name_part(name: str) -> VisionPart | None:
    return next((part for part, pattern in _NAMES.items() if pattern.search(name)), None)


def _find_around(path: str, named: dict[str, tuple[VisionPart, RangeWork]]) -> VisionPart | None:
    """Return the part whose range is the innermost around a path."""
    around = [other for other in named if path.startswith(f"{other}{_INNER}")]
    return named[max(around, key=len)][0] if around else None


def list_vision_times(analysis: Analysis) -> tuple[VisionTimes | None, ...]:
    """Return the times of the parts for each rank of an answer."""
    return tuple(measure_vision(rank.ranges, rank.typical.step_ns) for rank in analysis.ranks)


def find_imbalance(times: Sequence[VisionTimes | None]) -> float | None:
    """Return by how much of the longest encoder time the shortest is shorter; `None` below two ranks.

    >>> find_imbalance([VisionTimes(8, 0, 1, 9, None), VisionTimes(6, 0, 1, 9, None), None])
    0.25
    """
    known = [one.encoder_ns for one in times if one is not None]
    return 1 - min(known) / max(known) if len(known) > 1 and max(known) else None

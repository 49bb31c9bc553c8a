"""What is known of the operations of a capture by which a rank tells its own apart."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import Rows, filled
from wallscope.arrays.lookup import at_places
from wallscope.model.capture import Capture
from wallscope.model.frames import CATEGORY
from wallscope.model.kinds import Collective
from wallscope.profile.kinds import Said, kinds_of, said
from wallscope.timeline.folding import folded
from wallscope.timeline.precision import precisions

HOST = "host"
OTHERS = "other operations"
_LONGEST_NAME = 240
_FIXED = ("", HOST, OTHERS, *Collective, *(str(name) for name in CATEGORY.categories))


@dataclass(frozen=True, slots=True)
class Described:
    """What is known of operations, of the whole capture.

    `precisions` are places in `Precision`, by kernel name; `range_of` is the range of each operation, -1
    without one, and `called` the name of each call, by number; `axes` follows `AXES`, `counted`
    `COLLECTIVES`; `sized` has `op`, `axis` and `participants`, where all are known.
    """

    said: Said
    precisions: Rows
    range_of: npt.NDArray[np.int32]
    called: npt.NDArray[np.uint32]
    axes: pl.DataFrame
    counted: pl.DataFrame
    sized: pl.DataFrame

    def kinds(self, operations: pl.DataFrame) -> tuple[Rows, Rows]:
        """The kinds of the operations of a rank (`CLASSIFIED`), and that of each (`kinds.kinds_of`)."""
        around = at_places(self.said.ranges, self.range_of[operations["op"].to_numpy()], self.said.fixed[""])
        return kinds_of(operations, around, self.said, self.precisions, self.axes)


def described(
    capture: Capture, projected: pl.DataFrame, written: pl.Series, axes: pl.DataFrame, counted: pl.DataFrame
) -> Described:
    """What is known of the operations of a capture.

    Args:
        capture: the capture.
        projected: `PROJECTION`.
        written: the path of each range, written out, by number.
        axes: `AXES`.
        counted: `COLLECTIVES`, as far as they are known.
    """
    names, calls = (
        texts.str.slice(0, _LONGEST_NAME)
        for texts in (folded(capture.names["text"]), capture.call_names["text"])
    )
    range_of = np.empty(len(projected), np.int32)
    range_of[projected["op"].to_numpy()] = projected["range"].to_numpy()
    return Described(
        said=said(names, calls, written, list(dict.fromkeys(_FIXED))),
        precisions=filled(precisions(capture.names)["precision"]),
        range_of=range_of,
        called=capture.calls["name"].to_numpy(),
        axes=axes,
        counted=counted,
        sized=axes["op", "axis"].join(counted["op", "participants"], on="op").drop_nulls(),
    )

"""Steps and kinds of operations of several captures as numbers: one for the capture and the number there."""

import numpy as np
import polars as pl

from wallscope.arrays.columns import Rows, filled

_BITS = 32


def codes(rows: pl.DataFrame, name: str) -> Rows:
    """A number for `input` and another column of each row, in order of both; -1 where that is null.

    >>> codes(pl.DataFrame({"input": [0, 1, 1], "step": [7, 2, None]}), "step").tolist()
    [7, 4294967298, -1]
    """
    of_input = rows["input"].to_numpy().astype(np.int64) << _BITS
    return of_input | filled(rows[name])  # all bits of -1 are set


def decoded(found: Rows, name: str) -> dict[str, Rows]:
    """The columns that numbers were made of, none of which is null.

    >>> {name: told.tolist() for name, told in decoded(np.array([7, 4294967298]), "step").items()}
    {'input': [0, 1], 'step': [7, 2]}
    """
    return {"input": found >> _BITS, name: found & ((1 << _BITS) - 1)}

"""Numbers of texts, remembered: each text is matched against patterns once in the life of a process.

Matching costs more than looking up, and the ranks of an export, and exports of one program,
have the same names.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

_MOST = 20_000


class TextMemo:
    """Numbers of texts, each computed once.

    Args:
        ask: a number for each of some distinct texts.
    """

    def __init__(self, ask: Callable[[pl.Series], npt.NDArray[np.int64]]) -> None:
        self._ask = ask
        self._known: dict[str, int] = {}

    def of(self, texts: Sequence[str]) -> npt.NDArray[np.int64]:
        """Return the number of each text."""
        known = self._known
        asked = set(texts)
        unknown = [text for text in asked if text not in known]
        if unknown:
            if len(known) + len(unknown) > _MOST:
                unknown, known = list(asked), {}
            found = self._ask(pl.Series(unknown, dtype=pl.String)).tolist()
            known = {**known, **dict(zip(unknown, found, strict=True))}
            self._known = known if len(known) <= _MOST else {}
        return np.fromiter((known[text] for text in texts), np.int64, len(texts))

"""Names normalized and matched once, and runs of kernels that repeat an earlier run.

Matching costs more than looking up, and the ranks of an export, and exports of one program,
have the same names.

`aten::mm, op_id = 12, sizes = [[2, 3]]` and `aten::mm, op_id = 13` are both `aten::mm`; `training_step_7` is
`training_step_#`, `layer_3f-layer_2b` is `layer_#f-layer_#b`. DLProf and PyProf write all arguments of a
function into a name, of which the function stays. Numbers that separate kinds (`conv2d`, `Backward0`, `fp8`,
`sm90`) stay, too.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.columns import Flags, Rows
from wallscope.kernels import row_numbers, views
from wallscope.model.schemas import RANGE_NAMES

_MOST = 20_000


class TextMemo:
    """Numbers of texts, each computed once; of very many, none is kept.

    Args:
        ask: a number for each of some texts.
    """

    def __init__(self, ask: Callable[[pl.Series], npt.NDArray[np.int64]]) -> None:
        self._ask = ask
        self._known: dict[str, int] = {}

    def of(self, texts: pl.Series) -> npt.NDArray[np.int64]:
        """Return the number of each text."""
        if len(texts) > _MOST:
            return self._ask(texts)
        wanted, known = texts.to_list(), self._known
        unknown = [text for text in dict.fromkeys(wanted) if text not in known]
        if unknown:
            if len(known) + len(unknown) > _MOST:
                unknown, known = list(dict.fromkeys(wanted)), {}
            found = self._ask(pl.Series(unknown, dtype=pl.String)).tolist()
            self._known = known = {**known, **dict(zip(unknown, found, strict=True))}
        return np.fromiter((known[text] for text in wanted), np.int64, len(wanted))


_COUNTED = (
    r"(?i)((?:^|[^a-z])(?:step|iter|iteration|layers?|micro_?batch|mb|batch|blocks?|stage|chunk|expert"
    r"|epoch|sample|rank|request|token|index|idx|id|no|num|pass|frame|worker|bucket|group)"
    r"[ _.:=#-]{0,2})\d+"
)
_RULES = (
    (r"^\{'mod': '([\w.]+)', 'op': '(\w+)', 'args': .*$", "${1}.${2}"),
    (r",\s*(op_id|seq|sizes|input_op_ids|stack|input_seq_ids)\s*=.*$", ""),
    (_COUNTED, "${1}#"),
    (r"([_ .:/#\[(=-])\d+(\b|[fb]\b)", "${1}#${2}"),
    (r"0x[0-9a-fA-F]+", "#"),
    (r"##+", "#"),
)


_LONG_NUMBER = r"(^|[^0-9A-Za-z])[0-9]{3,}([^0-9A-Za-z]|$)"


def bring_together(names: pl.DataFrame) -> pl.DataFrame:
    """Names (`NAMES`) with the first that each is like (`RANGE_NAMES`).

    Some profilers number each range (`aten::mm, op_id = 314359`), which makes as many names as ranges. Names
    are alike if they differ only in numbers of three digits and more that stand alone: no pattern asks for
    those.

    >>> from wallscope.model.schemas import NAMES
    >>> texts = ["aten::mm, op_id = 100", "aten::mm, op_id = 2000", "fp8_1024x512", "fp16_1024x512"]
    >>> names = pl.DataFrame({"name": range(4), "text": texts}, schema=NAMES)
    >>> bring_together(names)["like"].to_list()
    [0, 0, 2, 3]
    """
    shape = names["text"].str.replace_all(_LONG_NUMBER, "${1}000${2}")
    like = names.select(pl.col("name").min().over(shape.alias("shape")).alias("like")).to_series()
    return names.with_columns(like).cast(RANGE_NAMES)


def list_unlike(names: pl.DataFrame) -> pl.Series:
    """The texts of the first of all names that are alike (`RANGE_NAMES`)."""
    return names["text"].filter(names["like"] == names["name"])


def match_alike(names: pl.DataFrame, pattern: str) -> Flags:
    """Whether a pattern finds each name (`RANGE_NAMES`); names that are alike are asked once."""
    found: Flags = list_unlike(names).str.contains(pattern).to_numpy()[place_alike(names)]
    return found


def fold_names(names: pl.DataFrame) -> pl.Series:
    """Each name (`RANGE_NAMES`) normalized; names that are alike are normalized once."""
    return normalize_names(list_unlike(names))[place_alike(names)]


def place_alike(names: pl.DataFrame) -> Rows:
    """The place of each name among those of `list_unlike`."""
    like = names["like"].to_numpy()
    return np.searchsorted(np.flatnonzero(like == np.arange(like.size)), like)


def normalize_names(texts: pl.Series) -> pl.Series:
    """Each text with its running numbers replaced by `#`, of the same length and order.

    >>> texts = pl.Series(["aten::add, op_id = 314359", "training_step_12", "layer_3f-layer_10b"])
    >>> normalize_names(texts).to_list()
    ['aten::add', 'training_step_#', 'layer_#f-layer_#b']
    >>> normalize_names(pl.Series(["conv2d", "MulBackward0", "fp8_gemm", "step 3", "h.11.attn"])).to_list()
    ['conv2d', 'MulBackward0', 'fp8_gemm', 'step #', 'h.#.attn']
    """
    normalized = pl.col(texts.name)
    for pattern, replacement in _RULES:
        normalized = normalized.str.replace_all(pattern, replacement)
    return texts.to_frame().select(normalized).to_series()


def mark_changes(*columns: npt.NDArray[Any]) -> Flags:
    """Where a row differs from the one before it in any of the columns; the first row does.

    >>> mark_changes(np.array([1, 1, 2, 2]), np.array([0, 0, 0, 5])).tolist()
    [True, False, True, True]
    """
    found = np.zeros(columns[0].size, np.bool_)
    found[:1] = True
    for column in columns:
        found[1:] |= column[1:] != column[:-1]
    return found


def find_repeated_runs(token: Rows, is_model: Flags, is_asked: Flags, at_least: int) -> Flags:
    """Which asked positions lie in a run of `at_least` tokens that repeats an earlier run of models.

    Neither run leaves the interval of neighbors of its own kind. `at_least` is a power of two. A position is
    marked by any run around it, so longer runs are complete. Exact, in O(n log n).

    >>> token = np.array([1, 2, 3, 4, 9, 9, 2, 3, 4, 7])
    >>> is_model = np.arange(10) < 4
    >>> find_repeated_runs(token, is_model, np.arange(10) > 5, 2).astype(int).tolist()
    [0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    """
    found = np.zeros(token.size, np.bool_)
    count = token.size - at_least + 1
    if count <= 0 or not is_model.any() or not is_asked.any():
        return found
    kind = is_model.astype(np.int8) + 2 * is_asked.astype(np.int8)
    stretch = np.concatenate(([0], np.cumsum(kind[1:] != kind[:-1])))
    is_whole = stretch[:count] == stretch[at_least - 1 :]
    run = _numbered_runs(token, at_least)
    models = np.flatnonzero(is_whole & is_model[:count])
    asked = np.flatnonzero(is_whole & is_asked[:count])
    first = np.full(int(run.max()) + 1, token.size)
    np.minimum.at(first, run[models], models)
    edges = np.zeros(token.size + 1, np.int64)
    repeats = asked[first[run[asked]] < asked]
    np.add.at(edges, repeats, 1)
    np.add.at(edges, repeats + at_least, -1)
    return np.cumsum(edges)[:-1] > 0


def number_equal_rows(columns: Rows) -> Rows:
    """Return the number of each row of int64[column, row], by first rows; equal rows have the same.

    >>> number_equal_rows(np.array([[5, 5, 2, 5], [1, 2, 1, 1]])).tolist()
    [0, 1, 2, 0]
    """
    size = columns.shape[1]
    number, count = np.empty(size, np.uint32), np.zeros(1, np.int64)
    distinct, table = np.empty((size, len(columns)), np.int64), np.full(2 << size.bit_length(), -1, np.int32)
    row_numbers.number_rows(*views(columns, 0, distinct, count, table, number))
    return number.astype(np.int64)


def _numbered_runs(token: Rows, length: int) -> Rows:
    """A number for the run of that length that begins at each position; equal runs have equal numbers."""
    number, reach = number_equal_rows(token.reshape(1, -1)), 1
    while reach < length:
        number = number_equal_rows(np.array([number[:-reach], number[reach:]], np.int64))
        reach *= 2
    return number

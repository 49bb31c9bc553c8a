import numpy as np
import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from wallscope.trace import names
from wallscope.trace.names import TextMemo


def lengths(texts: pl.Series) -> np.ndarray:
    return texts.str.len_chars().to_numpy().astype(np.int64)


@given(st.lists(st.lists(st.text(max_size=4), max_size=6), max_size=6), st.integers(0, 8))
def test_whatever_was_asked_before_and_forgotten_the_answers_are_those_of_each_text(asked, most):
    kept = names._MOST
    names._MOST = most
    try:
        known = TextMemo(lengths)
        for texts in asked:
            assert known.of(pl.Series(texts, dtype=pl.String)).tolist() == [len(text) for text in texts]
    finally:
        names._MOST = kept


def test_a_text_is_asked_once():
    asked: list[str] = []

    def ask(texts: pl.Series) -> np.ndarray:
        asked.extend(texts.to_list())
        return lengths(texts)

    known = TextMemo(ask)
    known.of(pl.Series(["a", "bc", "a"]))
    known.of(pl.Series(["bc", "def"]))
    assert sorted(asked) == ["a", "bc", "def"]

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope.trace.names import find_repeated_runs


def dull(tokens: list[int], kinds: list[int], at_least: int) -> list[bool]:
    """Compare every asked run of that length with every model run before it."""
    found = [False] * len(tokens)
    for asked in range(len(tokens) - at_least + 1):
        if set(kinds[asked : asked + at_least]) != {2}:
            continue
        for model in range(asked):
            is_model = set(kinds[model : model + at_least]) == {1}
            if is_model and tokens[model : model + at_least] == tokens[asked : asked + at_least]:
                found[asked : asked + at_least] = [True] * at_least
    return found


@pytest.mark.parametrize("at_least", [1, 2, 4])
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=40))
def test_repeated_positions_equal_a_comparison_of_all_runs(at_least, drawn):
    tokens, kinds = [token for token, _ in drawn], [kind for _, kind in drawn]
    kind = np.array(kinds, np.int64)

    found = find_repeated_runs(np.array(tokens, np.int64), kind == 1, kind == 2, at_least)

    assert found.tolist() == dull(tokens, kinds, at_least)
    rare = 10**6 * np.array(tokens, np.int64)  # too large for a table
    assert find_repeated_runs(rare, kind == 1, kind == 2, at_least).tolist() == found.tolist()

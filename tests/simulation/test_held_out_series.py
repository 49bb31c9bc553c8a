"""Series written before any was run: what is recognized of them, and that nothing is invented."""

import pytest

from tests.conftest import run_part
from tests.simulation.held_out_series import FRESH, HELD_OUT, LATER
from tests.simulation.series import recognize_series

NOT_RECOGNIZED = {
    "attention of three kernels": "without ranges of PyTorch, no recommendation names it",
    "update in a range": "a fused update runs in base too, so none is recommended",
}
"""Series with a fix that is not recognized, and why."""


EVERY = {101: HELD_OUT, 201: LATER, 501: FRESH}
FIRST_SEED = {one.name: seed for seed, group in EVERY.items() for one in group}
"""The seeds with which each was run for the first time."""


@pytest.mark.parametrize("series", run_part((*HELD_OUT, *LATER, *FRESH), name=lambda series: series.name))
def test_a_fix_is_recognized_and_none_is_invented(series, tmp_path):
    before, fixed, after = recognize_series(series, tmp_path, FIRST_SEED[series.name])

    assert before == after == []
    if series.name in NOT_RECOGNIZED or not series.fixes:
        assert fixed == []
    else:
        assert len(fixed) == 1
        assert set(fixed) <= series.fixes

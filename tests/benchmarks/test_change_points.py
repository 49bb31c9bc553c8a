import numpy as np
import pytest

from benchmarks.change_points import find_limit, measure_largest


def test_the_largest_difference_of_means_is_that_of_all_places():
    times = np.random.default_rng(1).standard_normal((3, 9))
    for row, found in zip(times, measure_largest(times, is_known=True), strict=True):
        each = [abs(row[:at].mean() - row[at:].mean()) / np.sqrt(1 / at + 1 / (9 - at)) for at in range(1, 9)]
        assert found == pytest.approx(max(each))


def test_one_of_a_hundred_histories_without_a_change_reaches_the_limit():
    times = np.random.default_rng(2).standard_normal((20_000, 30))
    for is_known in (True, False):
        found = measure_largest(times, is_known=is_known) > find_limit(is_known=is_known)
        assert np.mean(found) == pytest.approx(0.01, abs=0.003)

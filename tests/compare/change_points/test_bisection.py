"""Which commit changed a time, by the recorded commits between a good and a bad one."""

import numpy as np
import pytest

from wallscope.compare.change_points import bisect_times
from wallscope.model.profile import Noise

KNOWN = Noise(0.01, 20.0)
GAP = np.nan


def drawn(random, count, at, recorded, size=1.05):
    times = 1e8 * np.where(np.arange(count) >= at, size, 1.0) * (1 + 0.01 * random.standard_normal(count))
    times[[place for place in range(count) if place not in recorded]] = GAP
    return times


@pytest.mark.parametrize("recorded", [range(24), range(0, 24, 3), (0, 5, 23)])
def test_the_commit_is_in_the_stated_range_as_often_as_stated(recorded):
    random, held = np.random.default_rng(2), []
    kept = {*recorded, 23}
    for _ in range(600):
        at = int(random.integers(1, 24))
        found = bisect_times(drawn(random, 24, at, kept), np.ones(24), KNOWN)
        held.append(found.first <= at <= found.last)

    assert np.mean(held) >= 0.94


@pytest.mark.parametrize("degrees", [1, 2, 4])
def test_noise_of_few_recorded_runs_leaves_a_wider_range(degrees):
    random, held = np.random.default_rng(5), []
    for _ in range(600):
        at = int(random.integers(1, 24))
        noise = Noise(0.01 * np.sqrt(random.chisquare(degrees) / degrees), degrees)
        found = bisect_times(drawn(random, 24, at, range(24), size=1.03), np.ones(24), noise)
        held.append(found.first <= at <= found.last)

    assert np.mean(held) >= 0.94


def test_recording_what_is_proposed_finds_the_commit_in_few_records():
    random, counts, hits = np.random.default_rng(3), [], []
    for _ in range(60):
        at = int(random.integers(1, 64))
        truth = drawn(random, 64, at, range(64), size=1.1)
        times = np.full(64, GAP)
        times[[0, 63]] = truth[[0, 63]]
        for _ in range(64):
            found = bisect_times(times, np.ones(64), KNOWN)
            if found.proposed is None:
                break
            times[found.proposed] = truth[found.proposed]
        counts.append(np.isfinite(times).sum() - 2)
        hits.append(found.last == at)

    assert np.mean(counts) <= 8
    assert np.mean(hits) >= 0.95


def test_commits_without_a_record_share_the_probability():
    found = bisect_times(np.array([1e8, GAP, GAP, 1.2e8, 1.2e8]), np.ones(5), KNOWN)

    assert found.shares == pytest.approx([0, 1 / 3, 1 / 3, 1 / 3, 0], abs=1e-6)
    assert (found.first, found.last) == (1, 3)
    assert found.proposed in {1, 2}


def test_neighbors_leave_one_commit():
    found = bisect_times(np.array([1e8, 1e8, 1.2e8]), np.ones(3), KNOWN)

    assert (found.first, found.last, found.proposed, found.is_certain) == (2, 2, None, True)


def test_like_ends_are_uncertain():
    assert not bisect_times(np.array([1e8, GAP, 1.02e8]), np.ones(3), KNOWN).is_certain
    assert bisect_times(np.array([1e8, GAP, 1.02e8]), np.full(3, 9.0), KNOWN).is_certain

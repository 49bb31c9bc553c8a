"""Changes from commit to commit: where, how sure, and drift."""

import numpy as np
import pytest

from benchmarks.change_points import HISTORIES, find_all, grade_claims, is_near
from tests.conftest import slow
from wallscope.compare.change_points import _gains, find_changes
from wallscope.model.enums import Grade

FOUND = {history.name: history for history in HISTORIES}


def explained(values, weights):
    """What a change behind each value explains of the squares, by the means of both parts."""

    def squares(part, weight):
        return (weight * (part - np.average(part, weights=weight)) ** 2).sum() if part.size else 0.0

    whole = squares(values, weights)
    return [
        whole - squares(values[:at], weights[:at]) - squares(values[at:], weights[at:])
        for at in range(1, values.size)
    ]


def test_gains_are_what_a_change_explains():
    random = np.random.default_rng(1)
    for _ in range(50):
        count = random.integers(2, 12)
        values, weights = random.random(count), random.integers(1, 4, count).astype(float)

        assert _gains(values[None], weights[None])[0] == pytest.approx(explained(values, weights))


def rate(name, is_so, count=150):
    return np.mean([is_so(course, places) for course, places in find_all(FOUND[name], count)])


@pytest.mark.parametrize("name", ["no change, noise 5 %", *slow("no change, noise 1 %")])
def test_no_change_is_seldom_taken_for_one(name):
    assert rate(name, lambda course, _: bool(course.changes) or course.drift is not None, 300) <= 0.03


def test_a_change_is_found_where_it_is():
    name = "+3 %, at least five commits from an end"

    assert rate(name, lambda course, _: bool(course.changes)) >= 0.96
    assert rate(name, is_near) >= 0.94


@pytest.mark.parametrize("histories", [30, *slow(120)])
def test_graded_changes_are_as_often_right_as_their_grade_says(histories):
    claims = grade_claims(histories)
    rights = {
        grade: [is_right for rows in claims.values() for one, is_right in rows.claims if one == grade]
        for grade in Grade
    }

    assert np.mean(rights[Grade.SURE]) >= 0.93
    assert np.mean(rights[Grade.LIKELY]) >= 0.75
    assert np.mean([rate for rows in claims.values() for rate in rows.is_sure_of_nothing]) <= 0.03


@pytest.mark.parametrize("size", [0.02, *slow(0.01, 0.04, 0.08)])
def test_no_change_is_said_only_where_one_as_large_would_have_been_named(size):
    random, missed = np.random.default_rng(8), []
    for _ in range(200):
        level = np.where(np.arange(12) >= 8, 1 + size, 1.0)
        found = find_changes(1e8 * level * (1 + 0.01 * random.standard_normal(12)), np.ones(12))
        is_stated = not found.changes and found.suspected is None and found.drift is None
        missed.append(is_stated and found.detectable[8] <= size)

    assert np.mean(missed) <= 0.1


def test_two_changes_are_two():
    assert rate("+4 % twice", lambda course, _: len(course.changes) == 2) >= 0.85


def test_slow_drift_is_drift():
    assert rate("+0.3 % a commit", lambda course, _: course.drift is not None) >= 0.93
    found = [course.drift for course, _ in find_all(FOUND["+0.3 % a commit"], 100) if course.drift]
    assert np.median([one.ratio for one in found]) == pytest.approx(0.003, abs=4e-4)


def test_the_same_times_have_the_same_changes():
    times = 1e8 * (1 + 0.01 * np.random.default_rng(4).standard_normal(24))
    times[11:] *= 1.1
    once, twice = (find_changes(times, np.ones(24)) for _ in range(2))

    (change,) = once.changes
    assert change == twice.changes[0]
    assert change.earliest <= change.at == 11 <= change.latest
    assert change.after / change.before == pytest.approx(1.1, abs=0.02)
    assert once.level[0] == pytest.approx(change.before)


def test_a_cause_that_is_new_is_a_change():
    times = np.concatenate([np.zeros(8), np.full(8, 2e6)])
    (change,) = find_changes(times, np.ones(16)).changes

    assert (change.at, change.before, change.after) == (8, pytest.approx(0, abs=1), pytest.approx(2e6))


@pytest.mark.parametrize("times", [np.zeros(9), np.full(9, 5.0), np.array([1.0, 9.0] * 2), np.empty(0)])
def test_nothing_is_found_where_there_is_nothing(times):
    found = find_changes(times, np.ones(times.size))

    assert (found.changes, found.drift, found.is_enough) == ((), None, times.any() and times.size >= 6)


def test_commits_of_many_runs_count_for_more():
    random = np.random.default_rng(8)
    hits = []
    for runs in (np.ones(12), np.full(12, 9.0)):
        found = 0
        for _ in range(100):
            times = 1e8 * (1 + 0.02 * random.standard_normal(12) / np.sqrt(runs))
            times[6:] *= 1.04
            found += bool(find_changes(times, runs).changes)
        hits.append(found)

    assert hits[0] < hits[1]

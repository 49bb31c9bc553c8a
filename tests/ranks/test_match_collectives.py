"""Shifts of two series that are tried together are told what each is told alone."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from wallscope.ranks.match_collectives import Series, pair_by_order, remove_drift
from wallscope.trace.collectives import measure_spread

GAPS_NS = st.sampled_from([0, 1, 900, 70_000, 30_000_000])


@st.composite
def series(draw, clock):
    """Ends in order, some at once; far enough apart for drift in some."""
    gaps = draw(st.lists(GAPS_NS, min_size=1, max_size=24))
    ends = np.cumsum(np.array(gaps, np.int64)) + draw(st.integers(0, 10**9))
    kinds = np.array(draw(st.lists(st.integers(0, 1), min_size=len(ends), max_size=len(ends))), np.int64)
    starts = ends - draw(st.sampled_from([1, 500, 200_000]))
    return Series(clock, np.arange(len(ends), dtype=np.int64), clock, starts, ends, kinds)


def dull_shift(one, other, farthest):
    """The best of all shifts, each looked at by itself."""
    sizes = len(one.rows), len(other.rows)
    most = min(max(sizes) - 1, abs(sizes[0] - sizes[1]) + farthest)
    told = {shift: varies(one, other, shift) for shift in range(-most, most + 1)}
    if sizes[0] == sizes[1] and told[0][0] <= 50_000:
        return 0
    least = min(spread for spread, _ in told.values())
    good = [shift for shift, (spread, _) in told.items() if spread <= 1.5 * least + 5_000]
    return min(good, key=lambda shift: (shift != 0, told[shift][1], abs(shift)))


def varies(one, other, shift):
    places = [place for place in range(len(one.rows)) if 0 <= place + shift < len(other.rows)]
    if not places or 2 * len(places) < min(len(one.rows), len(other.rows)):
        return np.inf, np.inf
    others = [place + shift for place in places]
    if np.mean(one.kinds[places] == other.kinds[others]) < 0.98:
        return np.inf, np.inf
    apart = other.end_ns[others] - one.end_ns[places]
    return measure_spread(remove_drift(one.end_ns[places], apart)), abs(np.median(apart))


@settings(max_examples=60, deadline=None)
@given(one=series(0), other=series(1))
def test_the_shift_is_the_best_of_all(one, other):
    laid = pair_by_order(one, other, is_named=True)
    shift = dull_shift(one, other, 256)

    places = [place for place in range(len(one.rows)) if 0 <= place + shift < len(other.rows)]
    alike = bool(places) and np.mean(one.kinds[places] == other.kinds[np.add(places, shift)]) >= 0.98
    assert (laid is not None) == alike
    if laid is not None:
        assert laid.places.tolist() == places
        assert (laid.others - laid.places == shift).all()


def test_long_series_are_laid_beside_each_other_by_a_sample():
    random = np.random.default_rng(3)
    ends = np.cumsum(random.integers(10_000, 900_000, 3_000))
    kinds = np.zeros(3_000, np.int64)
    one = Series(0, np.arange(2_900), 0, ends[:2_900] - 5_000, ends[:2_900], kinds[:2_900])
    late = (ends * (1 + 20e-6)).astype(np.int64)[77:] + 40_000_000
    other = Series(1, np.arange(2_923), 1, late - 5_000, late, kinds[77:])

    laid = pair_by_order(one, other, is_named=True)

    assert laid is not None
    assert (laid.others - laid.places == -77).all()
    assert laid.spread_ns < 1_000

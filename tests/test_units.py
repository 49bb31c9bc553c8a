"""Durations as text: each has a unit that fits its length, and reads back to the last digit that it shows."""

import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wallscope import units
from wallscope.files import read_report

SIZES_NS = {
    "ns": 1,
    "µs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "min": 60 * 10**9,
    "h": 3_600 * 10**9,
    "d": 86_400 * 10**9,
}
TIMES_NS = st.one_of(st.integers(-(10**20), 10**20), st.sampled_from([*SIZES_NS.values()])).flatmap(
    lambda about_ns: st.integers(about_ns - 10**3, about_ns + 10**3)
)


def parse(text: str) -> tuple[Fraction, str, int]:
    """The number, its unit and its decimals."""
    number, unit = text.split(" ")
    return Fraction(number.replace(",", "")), unit, len(number.partition(".")[2])


@given(TIMES_NS)
def test_a_duration_reads_back_to_the_last_digit_that_it_shows(time_ns):
    value, unit, decimals = parse(units.duration(time_ns))

    assert abs(value * SIZES_NS[unit] - time_ns) <= Fraction(SIZES_NS[unit], 2 * 10**decimals)


@given(TIMES_NS)
def test_a_duration_has_the_unit_that_fits_its_size(time_ns):
    """At least one of its unit, and less than one of the next: no 0.9 s, no 75 s, no 33,000 h."""
    value, unit, _ = parse(units.duration(time_ns))
    larger_ns = [size_ns for size_ns in SIZES_NS.values() if size_ns > SIZES_NS[unit]]

    assert abs(value) >= 1 or time_ns == 0
    assert not larger_ns or abs(value) * SIZES_NS[unit] < min(larger_ns)


@given(st.lists(TIMES_NS, min_size=2, max_size=2).map(sorted))
def test_a_longer_duration_never_reads_as_a_shorter_one(pair_ns):
    (low, low_unit, _), (high, high_unit, _) = (parse(units.duration(time_ns)) for time_ns in pair_ns)

    assert low * SIZES_NS[low_unit] <= high * SIZES_NS[high_unit]


@pytest.mark.parametrize(
    ("time_ns", "text"),
    [
        (59_400_000_000, "59.400 s"),
        (60_000_000_000, "1.00 min"),
        (5_400_000_000_000, "1.50 h"),
        (86_400_000_000_000, "1.0 d"),
        (1_987_764 * 60 * 10**9, "1,380.4 d"),
    ],
)
def test_long_durations_are_in_minutes_hours_and_days(time_ns, text):
    assert units.duration(time_ns) == text


def test_the_script_of_the_page_has_the_same_units():
    (listed,) = re.findall(r"UNITS = \[(\[.*\])\];", read_report("timeline.js"))
    found = re.findall(r'\[([\de]+), "(\S+)", (\d)\]', listed)

    for size, unit, decimals in found:
        assert float(size) == SIZES_NS[unit]
        assert parse(units.duration(SIZES_NS[unit]))[1:] == (unit, int(decimals))
    assert {unit for _, unit, _ in found} == SIZES_NS.keys() - {"ns"}

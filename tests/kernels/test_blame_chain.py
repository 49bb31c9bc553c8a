"""Both forms of the walk against the brute-force walk of tests/attribution, on random programs."""

from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution import brute
from tests.attribution.brute_programs import (
    jittered,
    possible,
    programmatic,
    senseless,
    stretched,
    unrecorded,
)
from tests.attribution.brute_trace import Call, Op, Trace, in_order
from tests.attribution.slices.test_chain import found
from wallscope.attribution import slices


@pytest.fixture(scope="module")
def walking(kernel_of):
    """Return a context in which the form under test walks, with room for so many links an operation."""
    kernels = kernel_of("blame_chain")
    names = ("Walk", "walk_gaps")
    own = {name: getattr(kernels, name) for name in names}
    return lambda room: patch.multiple(slices, _LINKS_OF_OPERATION=room, **own)


SHORT = st.one_of(possible(), programmatic(), jittered())


@given(trace=st.one_of(SHORT, stretched(SHORT), unrecorded()), room=st.integers(0, 4))
def test_links_equal_those_of_the_brute_force_walk_whatever_room_was_made(walking, trace, room):
    with walking(room):
        links = found(trace)

    assert brute.merged(links) == brute.merged(brute.links(trace))


@given(trace=st.one_of(senseless(), stretched(senseless())))
def test_links_are_in_order_and_do_not_overlap_whatever_the_rows_say(walking, trace):
    with walking(4):
        links = found(trace)

    assert all(link.start < link.end for link in links)
    assert all(link.end <= later.start for link, later in pairwise(links))


@pytest.mark.parametrize("steps", [0, 1, 2, 8])
def test_a_gap_that_takes_too_many_steps_is_unresolved_where_the_walk_stopped(walking, steps):
    ops = (
        Op(0, 0, 10, "compute"),
        *(Op(0, 10 * at, 10 * at + 10, "copy") for at in range(1, 6)),
        Op(0, 60, 70, "compute"),
    )
    with walking(4), patch.object(slices, "LONGEST_CHAIN_COUNT", steps):
        links = found(in_order(Trace(ops)))

    explained = min(steps + 1, 5)
    kinds = [*(["unresolved"] if explained < 5 else []), *["operation"] * explained]
    assert [link.kind for link in links] == kinds
    assert (links[0].start, links[-1].end) == (10, 60)


def test_operations_that_wait_for_each_other_in_a_circle_end_the_walk(walking):
    i32, i64, none = np.int32, np.int64, np.empty(0, np.int64)
    links = slices._allocate_links(4)
    with walking(4):
        walk = slices.Walk(
            (np.array([5, 5, 5]), np.array([5, 5, 9]), *(np.full(3, -1, i32) for _ in range(3))),
            (np.array([0, 1, 2, 3]), np.array([1, 0, 0], i32)),
            (
                none,
                none,
                none.astype(i32),
                none.astype(np.int8),
                *(none.astype(i32) for _ in range(4)),
                none.astype(np.uint8),
            ),
            (np.zeros(1, i64), none.astype(i32), none.astype(np.uint8), none),
            (np.zeros(1, i64), none, none, none.astype(i32)),
            (none, none.astype(i32)),
            tuple(range(7)),
            (2_000, 20_000, 50_000, slices.NO_SLACK),
            links.columns(),
            10**9,
        )
        row = (np.array([2]), np.array([5]), np.array([2], i32), np.array([-1], i32))
        used = slices.walk_gaps(walk, 1, *row)

    assert used == 1
    assert (links.start_ns[-1], links.end_ns[-1], links.kind[-1]) == (2, 5, 6)


def test_time_without_calls_is_found_in_both_forms(walking):
    trace = in_order(Trace((Op(0, 10, 20, "compute"), Op(1, 30, 40, "copy")), (Call(0, 1, 2, "other"),)))
    with walking(0):
        assert [link.kind for link in found(trace)] == ["unresolved", "operation"]

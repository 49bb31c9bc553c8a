"""Both forms of the sweep against one nanosecond at a time, and the law that slices tile the time."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.attribution import brute_slices
from tests.attribution.brute_programs import busy_hosts, jittered, possible, programmatic
from tests.attribution.brute_trace import evidence, operations, windows
from tests.attribution.test_slices import CUTS, edges_of, said
from tests.attribution.test_slices import slices as attributed_slices
from wallscope.attribution import slices
from wallscope.attribution import slices as under_test
from wallscope.errors import InternalError

RUNS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6), st.integers(-1, 2)), max_size=12)


@pytest.fixture(scope="module")
def kernels(kernel_of):
    return kernel_of("slicing")


@pytest.fixture(scope="module")
def sweeping(kernels):
    """Return a context in which the form under test sweeps."""
    own = {name: getattr(kernels, name) for name in ("find_owners", "cut_slices")}
    return lambda: patch.multiple(under_test, **own)


@given(rows=RUNS)
def test_of_the_lowest_tier_the_first_that_started_owns_each_nanosecond(kernels, rows):
    rows.sort(key=lambda row: row[0])
    start_ns = np.array([start for start, _, _ in rows], np.int64)
    end_ns = start_ns + np.array([length for _, length, _ in rows], np.int64)
    tier = np.array([of for _, _, of in rows], np.int8)
    room = 2 * len(rows)
    found = (np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int32))

    count = kernels.find_owners(start_ns, end_ns, tier, np.zeros(3, np.int64), *found)

    spans = list(zip(*(column[:count].tolist() for column in found), strict=True))
    assert all(start < end for start, end, _ in spans)
    assert all(end <= later for (_, end, _), (later, _, _) in pairwise(spans))
    owner_at = {at: row for start, end, row in spans for at in range(start, end)}
    for at in range(30):
        running = [row for row in range(len(rows)) if start_ns[row] <= at < end_ns[row] and tier[row] >= 0]
        assert owner_at.get(at) == min(running, key=lambda row: (tier[row], row), default=None)


def test_no_span_is_cut_where_its_owner_stays(kernels):
    times = (np.array([0, 2, 3]), np.array([9, 2, 5]))
    found = (np.empty(6, np.int64), np.empty(6, np.int64), np.empty(6, np.int32))

    count = kernels.find_owners(*times, np.array([1, 0, 2], np.int8), np.zeros(3, np.int64), *found)

    assert [column[:count].tolist() for column in found] == [[0], [9], [0]]


@given(trace=st.one_of(busy_hosts(possible()), busy_hosts(jittered()), programmatic()), cuts=CUTS)
def test_slices_equal_those_of_the_brute_force_way(sweeping, trace, cuts):
    edges = edges_of(trace, cuts)
    with sweeping():
        found = attributed_slices(trace, edges)

    assert said(found) == brute_slices.slices(trace, edges)


@given(trace=st.one_of(possible(), programmatic()), change=st.sampled_from([-1, 1]), data=st.data())
def test_links_that_do_not_tile_the_gaps_are_an_error(sweeping, trace, change, data):
    links = slices.blame_gaps(operations(trace), evidence(trace).constraints)
    if not links.gap.size:
        return
    end_ns = links.end_ns.copy()
    end_ns[data.draw(st.integers(0, end_ns.size - 1))] += change
    last_ns = max(op.end for op in trace.ops)
    if (end_ns[:-1] == links.end_ns[:-1]).all() and links.end_ns[-1] == last_ns:
        return  # the end of all time: nothing follows that it could overlap
    edges = [trace.ops[0].start, last_ns]

    with sweeping(), pytest.raises(InternalError, match="leave time out or count it twice"):
        under_test.slice_windows(
            operations(trace),
            replace(links, end_ns=end_ns),
            windows(edges),
            evidence(trace).recomputed,
            {},
        )


BROKEN = """
from unittest.mock import patch
import numpy as np
from tests.attribution.brute_trace import Op, Trace, slices
from wallscope.attribution import attribute, slices as gap_slices
empty = gap_slices._allocate_links(0)
with patch.object(attribute, "blame_gaps", lambda *_: empty):
    slices(Trace((Op(0, 0, 10, "compute"), Op(0, 20, 30, "compute"))), [0, 30])
"""


def test_the_law_holds_where_asserts_are_off():
    ran = subprocess.run([sys.executable, "-O", "-c", BROKEN], capture_output=True, text=True, check=False)

    assert "InternalError: the blame chains and the compute of a rank leave time out" in ran.stderr

"""Time goes from one cause to another as if each nanosecond were moved by itself."""

from collections import Counter
from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from tests.profile.random_profiles import OPERATIONS, profile_of
from wallscope.model.enums import Absent, DeviceState
from wallscope.model.profile import STEP_CAUSES, STEP_OWNED
from wallscope.profile.time_moves import MOVES, move_time

CAUSES = ("communication/ep/transfer", "communication/ep/unsplit", "host/launch")
STATES = ((DeviceState.COMPUTE, None), (DeviceState.IDLE, Absent.BLOCKING), (DeviceState.IDLE, None))
PROFILE = profile_of("a", [[1] * len(OPERATIONS)] * 2)

rows = st.tuples(
    st.integers(0, 1),  # step
    st.integers(0, 2),  # key
    st.sampled_from(CAUSES),
    st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 4)), min_size=1, max_size=3),
    st.integers(0, 6),  # that blocks at most
    st.lists(st.tuples(st.sampled_from(CAUSES), st.integers(1, 5)), max_size=3),  # that is wanted elsewhere
)


def made(schema, told):
    frame = pl.DataFrame(told, schema=schema, orient="row")
    return frame.group_by(frame.columns[:-1], maintain_order=True).agg(pl.last().sum())


@given(st.lists(rows, max_size=8, unique_by=lambda row: row[:3]))
def test_moves_take_the_first_nanoseconds(told):
    owned, moves, device, wanted = [], [], [], Counter()
    for step, key, cause, meanwhile, blocking_ns, elsewhere in told:
        own_ns = sum(ns for _, ns in meanwhile)
        owned.append((0, step, key, cause, own_ns, min(blocking_ns, own_ns)))
        device += [(0, step, cause, *state, ns) for state, ns in meanwhile]
        left_ns = own_ns
        for to, ns in elsewhere:
            taken_ns = min(ns, left_ns)
            left_ns -= taken_ns
            if taken_ns:
                moves.append((0, step, key, cause, to, taken_ns))
                wanted[step, key, cause, to] += taken_ns
    before = replace(
        PROFILE,
        owned=pl.DataFrame(owned, schema=STEP_OWNED, orient="row").sort("step", "key", "cause"),
        causes=made(STEP_CAUSES, device).sort("step", "cause", "state", "absent", nulls_last=True),
    )
    after = move_time(before, pl.DataFrame(moves, schema=MOVES, orient="row"))

    assert after.owned.rows() == dull_owned(before.owned, wanted)
    assert after.causes.rows() == dull_causes(before.causes, wanted)


def dull_owned(owned, wanted):
    """Each nanosecond of a row, those that block first, under the cause that takes it."""
    found, blocking = Counter(), Counter()
    for _, step, key, cause, own_ns, blocking_ns in owned.iter_rows():
        to = [name for name in CAUSES for _ in range(wanted[step, key, cause, name])]
        for place in range(own_ns):
            name = to[place] if place < len(to) else cause
            found[step, key, name] += 1
            blocking[step, key, name] += place < blocking_ns
    return [(0, *row, found[row], blocking[row]) for row in sorted(found)]


def dull_causes(causes, wanted):
    """The same of what the device did; moves of all kinds of operations take the rows in their order."""
    found, states = Counter(), list(DeviceState)
    for (step, cause), own in causes.group_by("step", "cause", maintain_order=True):
        device = [(state, absent) for *_, state, absent, ns in own.iter_rows() for _ in range(ns)]
        to = [name for name in CAUSES for _ in range(sum(wanted[step, key, cause, name] for key in range(3)))]
        for place, (state, absent) in enumerate(device):
            name = to[place] if place < len(to) else cause
            found[step, name, states.index(state), absent is None, absent] += 1
    return [
        (0, step, cause, states[state], absent, ns)
        for (step, cause, state, _, absent), ns in sorted(found.items(), key=lambda entry: entry[0][:4])
    ]

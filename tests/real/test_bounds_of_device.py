"""No bound promises a step shorter than the work that is left for the device, by the rows alone.

An upper bound for a cause of one wall leaves the work of the other engines: compute kernels, communication
kernels, copies. What each of them runs in a step, as a union of its rows, is a floor of the step.
"""

import json
from functools import cache

import numpy as np
import pytest

from tests.answered_once import write_json_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, TRACES, rank_of
from tests.test_traces import EXPORTS, WITHOUT_DEVICE_OPERATIONS, plain_rows

NAMES = [path.stem for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS]
REMOVED = {"memory": {"exposed_copy"}, "communication": {"exposed_communication"}}
"""The engine whose work the causes of a wall may remove."""
ROUNDING = 0.02
"""A replay may differ from the capture by so much, as a share of the step; otherwise there is no bound."""

pytestmark = NEEDS_TRACES


@cache
def answer(name):
    return json.loads(write_json_once(TRACES / f"{name}.sqlite"))


def united_ns(spans, begin, end):
    """Time inside a window in which any of the spans runs, by a sweep."""
    total, until = 0, begin
    for start, stop in sorted(spans):
        total += max(min(stop, end) - max(start, until), 0)
        until = max(until, min(stop, end))
    return total


@cache
def busy_ns(name):
    """Of each engine: how long it runs in the typical step and in the mean one, whichever is less."""
    rank = rank_of(answer(name))
    own = [
        (start, end, kind)
        for (process, device), start, end, kind in plain_rows(TRACES / f"{name}.sqlite")
        if device == rank["device"] and (process is None or process >> 24 & 0xFFFFFF == rank["pid"])
    ]
    steps = [step for step in rank["steps"] if step["steady"]]
    length = np.array([step["end_ns"] - step["start_ns"] for step in steps])
    low, high = np.percentile(length, [25, 75]) if len(steps) >= 8 else (length.min(), length.max())
    is_typical = (length >= low) & (length <= high)
    found = {}
    for engine in {kind for *_, kind in own}:
        spans = [(start, end) for start, end, kind in own if kind == engine]
        busy = np.array(
            [
                united_ns(
                    [span for span in spans if span[1] > step["start_ns"] and span[0] < step["end_ns"]],
                    step["start_ns"],
                    step["end_ns"],
                )
                for step in steps
            ]
        )
        found[engine] = min(busy.mean(), busy[is_typical].mean())
    return found


@pytest.mark.parametrize("name", run_part(NAMES, name=str, of=9))
def test_no_bound_is_below_the_work_that_is_left(name):
    found = answer(name)
    rank = rank_of(found)
    if not any(step["steady"] for step in rank["steps"]):
        assert not found["opportunities"]
        return
    told = [(one["cause"], one["wall"], one["step_ceiling_ns"]) for one in found["opportunities"]]
    step_ns = max(rank["typical"]["step_ns"], rank["mean_step_ns"])
    told += [
        (fix["id"], fix["wall"], step_ns - fix["recoverable_ns"])
        for fix in found["fixes"]
        if fix["recoverable_ns"] is not None and fix["wall"] in {"host", *REMOVED}
    ]
    for what, wall, ceiling_ns in told:
        left = [ns for engine, ns in busy_ns(name).items() if engine not in REMOVED.get(wall, ())]
        assert ceiling_ns >= max(left, default=0) - ROUNDING * step_ns, what

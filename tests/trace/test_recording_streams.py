"""Exports without records of events: on which stream was each made?"""

import numpy as np
import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.program import (
    NULL_STREAM,
    Collective,
    Copy,
    HostThread,
    Launch,
    Program,
    Record,
    SyncEvent,
    WaitEvent,
    Work,
    stepped,
)
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from tests.trace.waiting import awaited, producers
from wallscope.nsys import read_capture
from wallscope.trace.dependencies import resolve_dependencies
from wallscope.trace.events import StreamBy
from wallscope.trace.streams import UNRESOLVED

EXCHANGE, COPIES = 20, 30
STEPS = 7


def behind_a_copy(number, *, copied_ns=5_000):
    """An all-to-all behind compute, given after a copy on a third stream."""
    return (
        Launch(GEMM, 300_000 + 10_000 * number),
        Copy("device-to-host", 1 << 20, copied_ns, COPIES),
        Record("given"),
        WaitEvent(EXCHANGE, "given"),
        Collective("all-to-all", "ep", 200_000, EXCHANGE),
        Record("done", EXCHANGE),
        WaitEvent(NULL_STREAM, "done"),
        Launch(GEMM, 100_000),
    )


def behind_the_last(number):
    """The same without the copy, and a long copy that merely runs beside."""
    given = behind_a_copy(number)
    return (Copy("device-to-host", 1 << 30, 150_000 + 40_000 * number, COPIES), given[0], *given[2:])


def waits_of(program, folder, *, has_events):
    write_run(run(program), folder / f"{has_events}.sqlite", has_events=has_events)
    return resolve_dependencies(read_capture(folder / f"{has_events}.sqlite", lambda _: None))


def program(one, steps=STEPS):
    return Program(((HostThread("python", stepped(steps, one)),),))


def streams_by(waits):
    return set(waits.waits.records["stream_by"])


def all_producers(waits):
    return [producers(waits, op) for op in range(len(waits.start_ns))]


def test_the_stream_that_explains_when_the_waiting_ended_counts(tmp_path):
    known = waits_of(program(behind_a_copy), tmp_path, has_events=True)
    inferred = waits_of(program(behind_a_copy), tmp_path, has_events=False)

    # the first is told apart, for its thread had used fewer streams; it is issued when all is through
    assert all_producers(inferred)[4:] == all_producers(known)[4:]
    assert streams_by(known) == {StreamBy.STATED}
    assert streams_by(inferred) == {StreamBy.HAND_OVER, StreamBy.LAST_OPERATION}
    assert inferred.waits_resolved == inferred.waits_seen


def test_what_merely_runs_beside_does_not_count(tmp_path):
    known = waits_of(program(behind_the_last), tmp_path, has_events=True)
    inferred = waits_of(program(behind_the_last), tmp_path, has_events=False)

    assert all_producers(inferred) == all_producers(known)
    assert streams_by(inferred) == {StreamBy.LAST_OPERATION}


def test_a_wait_that_ends_when_no_record_explains_it_is_told_by_the_operation_before(tmp_path):
    """Two are too few to tell another stream; the copy is through long before the all-to-all begins."""
    known = waits_of(program(behind_a_copy, steps=3), tmp_path, has_events=True)
    inferred = waits_of(program(behind_a_copy, steps=3), tmp_path, has_events=False)
    doubtful = np.flatnonzero(inferred.inferred_producer >= 0)

    assert len(doubtful) == 2
    assert all(inferred.inferred_producer[op] in producers(known, op) for op in doubtful.tolist())
    assert not any(UNRESOLVED in producers(inferred, op) for op in doubtful.tolist())
    assert inferred.waits_seen - inferred.waits_resolved == 2


def test_a_wait_that_ends_before_what_it_is_taken_for_is_unresolved(tmp_path):
    inferred = waits_of(
        program(lambda number: behind_a_copy(number, copied_ns=900_000), steps=2), tmp_path, has_events=False
    )
    assert inferred.waits_seen - inferred.waits_resolved == 2


def test_a_thread_that_waits_for_the_same_kind_of_record_is_told_too(tmp_path):
    def one(number):
        return (*behind_a_copy(number)[:3], SyncEvent("given"), Work(20_000), Launch(GEMM, 50_000))

    known = waits_of(program(one), tmp_path, has_events=True)
    inferred = waits_of(program(one), tmp_path, has_events=False)

    assert awaited(inferred) == awaited(known)
    assert all(tail and UNRESOLVED not in tail for tail in awaited(inferred).values())


@pytest.mark.parametrize("seed", [52, 70, 76, 134])
def test_what_bound_an_operation_of_a_random_program_is_found_or_unresolved(seed, tmp_path):
    """The latest producer, which alone is blamed; 134 tempts to take what runs beside."""
    known = waits_of(random_program(seed), tmp_path, has_events=True)
    inferred = waits_of(random_program(seed), tmp_path, has_events=False)
    wrong = [
        op
        for op in range(len(known.start_ns))
        if UNRESOLVED not in producers(inferred, op)
        and producers(known, op)
        and binding_ns(known, op) - binding_ns(inferred, op) > 0
        and known.start_ns[op] - binding_ns(inferred, op) > 20_000
    ]
    assert wrong == []


def binding_ns(waits, op):
    """When the last constraint of an operation was met."""
    done_ns = [waits.end_ns[producer] for producer in producers(waits, op) if producer >= 0]
    return max([waits.calls.end_ns[waits.call[op]], *done_ns])

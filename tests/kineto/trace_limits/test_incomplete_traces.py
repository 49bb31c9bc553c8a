"""A trace that ends early: idle time may be work that is missing, so nothing is claimed from it."""

import pytest

from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

RUN = run(random_program(2))
OF_HOST = ("host/framework", "host/synchronisation", "host/launch-latency")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A trace and its first two thirds."""
    folder = tmp_path_factory.mktemp("traces")
    whole, cut = write_torch_run(RUN, folder / "whole.json"), folder / "cut.json"
    content = whole.read_bytes()
    cut.write_bytes(content[: len(content) * 2 // 3])
    return whole, cut


def shares(path):
    (rank,) = analyze(path, Options(), lambda _: None).ranks
    return {entry.cause: entry.share for entry in rank.causes}


def test_a_host_without_recorded_calls_is_no_cause_of_idle_time(traces):
    whole, cut = map(shares, traces)
    assert any(cause.startswith(OF_HOST) for cause in whole)
    assert not any(cause.startswith(OF_HOST) for cause in cut)
    assert cut["unattributed/unresolved"] > whole.get("unattributed/unresolved", 0)


def test_calls_that_were_recorded_keep_their_time(traces):
    _, cut = map(shares, traces)
    assert any(cause.startswith(("host/launch-call", "host/other-call")) for cause in cut)


def test_a_trace_that_ends_early_is_not_replayed(traces, wallscope):
    _, cut = traces
    ran = wallscope("whatif", cut, "--scale", "compute=0.5", "--accept-error", "1")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "is incomplete: a replay would take missing work for idle time — copy the file again" in ran.err


@pytest.mark.parametrize("order", [1, -1], ids=["head is incomplete", "base is incomplete"])
def test_a_trace_that_ends_early_is_not_compared(traces, wallscope, order):
    ran = wallscope("diff", *traces[::order])
    ends = ["complete", "ends early"][::order]
    assert "NOT COMPARABLE: the sides differ in capture." in ran.out
    assert f"capture: {ends[0]} and {ends[1]}" in ran.out
    assert "Any time may lack work that is not in the file" in " ".join(ran.out.split())

"""What wallscope or a profiler wrote is no configuration: its settings are not those of a run."""

import json

import pytest

from fixtures.simulation.plans import random_plan
from fixtures.simulation.random_programs import planned_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run

OUTPUTS = {
    "answer": ("analyze", "--json"),
    "screen": ("analyze",),
    "all sections": ("analyze", "--full"),
    "page in Markdown": ("analyze", "--markdown"),
    "data": ("analyze", "--brief"),
    "explanation": ("explain", "ep-overlap"),
    "kernels": ("kernels", "--json"),
}


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    played = run(planned_program(random_plan(3)))
    write_run(played, folder / "run.sqlite")
    return folder / "run.sqlite", write_torch_run(played, folder / "trace.json")


@pytest.mark.parametrize("suffix", [".txt", ".yaml", ".json", ".sh", ".log"])
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_output_of_wallscope_is_refused(output, suffix, captured, called, tmp_path):
    command, *options = OUTPUTS[output]
    written = tmp_path / f"out{suffix}"
    named = [] if command == "explain" else [captured[0]]
    into = [written] if options and options[-1] in {"--json", "--markdown"} else []
    ran = called(command, *named, *options, *into)
    if not into:
        written.write_text(ran.out, encoding="utf-8")

    checked = called("check-config", written)
    asked = called("analyze", captured[0], "--no-cache", "--config", written)
    for refused in (checked, asked):
        assert (refused.code, refused.out) == (2, "")
        assert refused.err.startswith(f"wallscope: {written} — ")
        assert refused.err.count("\n") == 1


@pytest.mark.parametrize("suffix", [".txt", ".yaml", ".json", ".sh", ".log"])
@pytest.mark.parametrize("is_list", [False, True], ids=["trace", "list of events"])
def test_a_trace_is_refused(is_list, suffix, captured, called, tmp_path):
    content = json.loads(captured[1].read_text(encoding="utf-8"))
    events = content["traceEvents"][:50]
    written = tmp_path / f"trace{suffix}"
    written.write_text(json.dumps(events if is_list else content | {"traceEvents": events}), encoding="utf-8")

    refused = called("check-config", written)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith(f"wallscope: {written} — ")
    assert refused.err.count("\n") == 1

"""The section of the page on the ranks of a job."""

from dataclasses import replace

import pytest

from fixtures.simulation.program import NULL_STREAM, HostThread, Program, Record, WaitEvent, stepped
from fixtures.simulation.run import run
from fixtures.simulation.story import COMMUNICATION, STEPS, all_to_all, behind_compute, gemm
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.pipeline import analyze_capture, build_report
from wallscope.render.html import lay_out
from wallscope.views.page_analysis import write_analysis_page
from wallscope.views.sections.job import build_job, build_ranks


def thread(computed_us):
    def one(_):
        met = all_to_all(100, participants=(0, 1))
        through = (Record("done", COMMUNICATION), WaitEvent(NULL_STREAM, "done"))
        return gemm(computed_us), *behind_compute(met), *through, gemm(100)

    return (HostThread("python", stepped(STEPS, one)),)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("job") / "run.sqlite"
    write_run(run(Program((thread(200), thread(300)))), path)
    return build_report(analyze_capture(path, Options(), lambda _: None), lambda _: None)


def test_the_section_names_the_late_rank_and_shows_who_waits(report):
    section = build_job(report)
    late, waits = (lay_out(block)["rows"] for block in section.blocks if block.kind == "grid")
    heat, met = (block for block in section.blocks if block.kind == "figure")

    assert section.answer.startswith("Device 1 is late in every step: the same kernels all take ")
    assert [entry["cell"].value for entry in late[0][:4]] == [
        "device 1",
        "0.10",
        "0.40",
        "same kernels, slower",
    ]
    assert [row[3]["cell"].value for row in waits] == ["0.10", "0.0"]
    (trace,) = heat.traces
    assert (len(trace["z"]), len(trace["z"][0])) == (2, STEPS)
    assert [(one["name"], set(one["y"])) for one in met.traces[1:]] == [
        ("waits for peers", {"device 0"}),
        ("bytes move", {"device 0", "device 1"}),
    ]
    assert all(waiting > late for waiting, late in zip(trace["z"][0][1:-1], trace["z"][1][1:-1], strict=True))


def test_the_page_has_it(report):
    written = write_analysis_page(report)

    assert "Ranks and waits" in written
    assert "Steps and details show 1 of 2 ranks: " in written
    assert (
        '<p class="note">Mean of 2 ranks; waiting for a late unit is attributed to what delays that unit.</p>'
        in written
    )


def test_the_row_of_a_rank_opens_its_own_causes(report):
    (table,) = build_ranks(report.analysis).blocks
    cells = [row[0]["cell"] for row in lay_out(table)["rows"]]

    for rank, cell in zip(report.analysis.ranks, cells, strict=True):
        assert [part[0] for part in cell.parts] == [
            one.wall for one in sorted(rank.causes, key=lambda one: -one.typical_ns) if one.typical_ns
        ]
    assert cells[0].parts != cells[1].parts
    assert write_analysis_page(report).count('<details class="parts">') == 2


def test_all_that_holds_the_job_up_is_named_before_the_map(report):
    job = report.analysis.job
    (late,) = job.stragglers
    other = replace(late, name="node node-7", saved_ns=late.saved_ns // 2, replayed_step_ns=300_000)
    both = replace(report.analysis, job=replace(job, stragglers=(late, other)))
    told = (
        "If device 1, then node node-7 kept up with the others, the step time would go from"
        " 503.0 µs → 403.0 µs → 300.0 µs."
    )

    assert (
        told in write_analysis_page(replace(report, analysis=both)).partition('<details class="tables">')[0]
    )
    assert "kept up with the others, the step time would" not in write_analysis_page(report)

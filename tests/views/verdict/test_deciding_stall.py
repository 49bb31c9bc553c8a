"""Few slow steps that decide the wall: the screen and the page say so wherever they show the typical step."""

from html import unescape

import pytest

from tests.conftest import TRACES
from wallscope.model.capture import Options
from wallscope.model.enums import Wall
from wallscope.pipeline import analyze_capture, build_report
from wallscope.render.texts import shorten_names
from wallscope.views.cards import list_losses
from wallscope.views.page_analysis import write_analysis_page
from wallscope.views.verdict import choose_basis, find_deciding_stall, list_explanation

SLOW = TRACES / "nersc_sc21_8workers.sqlite"
pytestmark = pytest.mark.skipif(not SLOW.exists(), reason="the capture is not here")


@pytest.fixture(scope="module")
def report():
    return build_report(analyze_capture(SLOW, Options(), lambda _: None), lambda _: None)


def test_the_verdict_states_the_cost_of_slow_steps_and_the_loss_without_them(report):
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    basis = choose_basis(analysis, rank)
    stall = find_deciding_stall(rank, basis, "host")
    said = " ".join(list_explanation(analysis, rank, basis))

    assert find_deciding_stall(rank, basis, "memory") is None
    assert f"{100 * stall.share:.1f} % of the total time of all steps" in said
    share = rank.typical.walls.memory / rank.typical.step_ns
    assert said.endswith(f"step, the largest loss is memory time: {100 * share:.1f} %.")


def test_the_largest_losses_are_those_of_the_mean_step(report):
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    basis = choose_basis(analysis, rank)
    steady_ns = [step.walls for step in rank.steps if step.steady]
    first = list_losses(rank, (), basis)[0]

    assert first.wall is Wall.HOST
    assert float(first.time.removesuffix(" ms")) <= sum(one.host for one in steady_ns) / len(steady_ns) / 1e6


def test_the_page_opens_at_a_slow_step_and_says_what_excludes_it(report):
    page = unescape(write_analysis_page(report))

    assert '<option value="0">step 15, the slowest' in page
    assert page.count("The typical step leaves out the 4 slow steps, which decide the dominant wall.") == 7


def test_alike_names_are_told_apart_whatever_differs():
    names = [f"void a::kernel<traits<{kind}, {size}>>(int)" for kind in ("f", "d") for size in (64, 128)]
    shorts = shorten_names([*names, "void g<int>(int)"])

    assert len(set(shorts.values())) == 5
    assert shorts["void g<int>(int)"] == "g"
    assert list(shorten_names(("void x::put<1>(int)", "put(F)", "put")).values()) == ["put x", "put F", "put"]

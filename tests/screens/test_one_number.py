"""One number for one thing: a wall has one share on the first screen, on the page and in brief."""

import io
import json
import re
from html import unescape

import pytest
from rich.console import Console

from tests.answered_once import analyze_once, write_page_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from tests.test_traces import EXPORTS, WITHOUT_DEVICE_OPERATIONS
from wallscope.model.enums import Wall
from wallscope.render.data import write_json
from wallscope.units import percent
from wallscope.views.analysis import render_analysis, write_analysis_card, write_analysis_markdown
from wallscope.views.brief import brief_analysis

ANSWERED = [EXAMPLE, *(path for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS)]
ON_SCREEN = re.compile(
    r"^\s*(Compute|Communication|Memory|Host overhead|Unattributed) .*?([<>]?[\d.]+ %)", re.MULTILINE
)
ON_PAGE = re.compile(
    r'aria-hidden="true"></span>(\w+)(?: <span class="flag"[^<]*</span>)?</dt><dd><b>([<>]?[^<]+)</b>'
)
IN_CARD = re.compile(r"</span>(\w+)</td><td><?[^<]*</td><td>([<>]?[^<]+)</td>")
IN_VERDICT = re.compile(r"(\w+)(?: time)? (?:is the largest loss:|takes) ([<>]?[\d.]+ %) of the")
DISPLAYED = {"Host overhead": "host"}


def shares_on_screen(analysis):
    page = io.StringIO()
    console = Console(file=page, width=100, markup=False, highlight=False, emoji=False)
    console.print(render_analysis(analysis, "run.sqlite"))
    return {DISPLAYED.get(name, name.lower()): share for name, share in ON_SCREEN.findall(page.getvalue())}


def shares_in_brief(analysis):
    """Shares of the walls; of added-up times the shares that they are."""
    numbers = brief_analysis(analysis, ("run.sqlite",), 3).numbers
    found = {place.split("/")[3]: value for place, value in numbers.items() if place.endswith("share")}
    if found:
        return {wall: percent(share) for wall, share in found.items()}
    times = {place.split("/")[-1]: value for place, value in numbers.items() if "walls/" in place}
    whole_ns = next((value for place, value in numbers.items() if place.endswith("step_ns")), 0)
    return {
        wall: percent(time_ns / max(whole_ns or sum(times.values()), 1)) for wall, time_ns in times.items()
    }


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_a_wall_has_one_share(path):
    analysis = analyze_once(path)
    shown, brief = shares_on_screen(analysis), shares_in_brief(analysis)
    page = dict(ON_PAGE.findall(unescape(write_page_once(path))))
    card = dict(IN_CARD.findall(unescape(write_analysis_card(analysis))))

    assert shown
    without_time = dict.fromkeys({str(wall) for wall in Wall} - page.keys(), percent(0))
    assert page.keys() <= {str(wall) for wall in Wall}
    page |= without_time
    assert shown == {wall: page[wall] for wall in shown}
    assert card == {wall: page[wall] for wall in card}
    assert shown.keys() <= card.keys()
    assert brief.items() <= page.items()
    assert len(brief) >= len(Wall) - 1


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_the_verdict_states_the_share_of_the_screen(path):
    """That of a whole capture precedes the one of its steps; a job has its own."""
    analysis = analyze_once(path)
    shown = shares_on_screen(analysis)
    if analysis.job is not None and analysis.job.collectives.matched:
        pytest.skip("the screen is about the mean of the ranks")
    stated = IN_VERDICT.findall(analysis.diagnosis.verdict.partition(" In the ")[0])
    for wall, share in stated:
        if wall.lower() in shown:
            assert shown[wall.lower()] == share
            assert share in write_analysis_markdown(analysis)


@pytest.mark.parametrize("path", run_part(ANSWERED, {EXAMPLE.stem}, of=9))
def test_mean_and_median_shares_are_those_of_the_deciding_steps(path):
    """Worked out again from the steps of the answer."""
    document = json.loads(write_json(analyze_once(path)))
    shares, rank = document["diagnosis"]["walls"], document["ranks"][document["diagnosis"]["rank_index"]]
    steady = [step["walls"] for step in rank["steps"] if step["steady"]]
    if shares is None or not steady:
        pytest.skip("no steady step decides")
    whole_ns = sum(sum(walls.values()) for walls in steady)
    for wall, found in shares.items():
        assert found["mean_share"] == pytest.approx(sum(walls[wall] for walls in steady) / whole_ns)

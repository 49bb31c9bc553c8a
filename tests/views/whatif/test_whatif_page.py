"""The page of what-if answers: its numbers are those of the answers, and names in it are nothing but text."""

import io
import re
from dataclasses import replace
from html import unescape

import pytest
from rich.console import Console

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from tests.views.browsing import Opened, needs_axe, needs_chromium
from tests.views.comparison.test_comparison_page import charts, ms, rows, signed_ms
from tests.views.test_page_analysis import HOSTILE, elements
from wallscope import units
from wallscope.advice.evidence import describe_questions
from wallscope.model.capture import Options
from wallscope.model.enums import Wall
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if
from wallscope.views.brief import brief_whatif
from wallscope.views.whatif import render_whatif, write_whatif_page

STORY = "late host beside a long all-to-all"
QUESTIONS = (Question("scale", "communication", 0.0), Question("scale", "think", 0.5), Question("graph", "*"))
SWEEP = tuple(Question("scale", "communication", share) for share in (1.5, 0.5))


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports") / "run.sqlite"
    program = next(story.program for story in stories() if story.name == STORY)
    write_run(run(program), path, has_events=True)
    return ask_what_if(path, Options(), Asked(QUESTIONS, SWEEP), lambda _: None)


@pytest.fixture(scope="module")
def hostile(found):
    """The same where all names come from somebody who means harm."""
    renamed = {"name": f"{HOSTILE} %{{x}}"}
    path = replace(
        found.path,
        ranges=tuple(replace(one, **renamed) for one in found.path.ranges),
        operations=tuple(replace(one, **renamed) for one in found.path.operations),
        segments=tuple(replace(one, path=HOSTILE, **renamed) for one in found.path.segments),
        slack=tuple(replace(one, **renamed) for one in found.path.slack),
    )
    answers = (replace(found.answers[0], questions=(Question("graph", HOSTILE),), notes=(HOSTILE,)),)
    inputs = (replace(found.inputs[0], name=HOSTILE),)
    return replace(found, inputs=inputs, path=path, answers=answers)


def test_the_first_screen_says_what_it_takes_now_and_with_what_wins_most(found):
    text = unescape(write_whatif_page(found))
    cards = text.partition('<ol class="recs">')[2].partition("</ol>")[0]
    told = re.findall(
        r"<h3>(.*?)</h3>.*?>([\d.]+x)</span>.*?>next wall: (\w+)</span><strong>(.*?)</strong>",
        cards,
        re.DOTALL,
    )
    best = sorted(found.answers, key=lambda answer: -answer.won_ns)

    heading = re.sub(r"<.*?>", "", text.partition("<h1>")[2].partition("</h1>")[0])
    before, after = units.duration(found.step_ns), units.duration(best[0].step_ns)
    assert heading == (
        f"{found.wall.capitalize()}-bound: the typical {before} step could drop to {after}"
        f" (up to {best[0].speedup:.2f}x); the next wall is {best[0].next_wall}."
    )
    assert f'<p class="lead">{units.capitalize(describe_questions(best[0].questions))}. ' in text.replace(
        "\N{NO-BREAK SPACE}", " "
    )
    assert told == [
        (
            units.capitalize(describe_questions(answer.questions)),
            f"{answer.speedup:.2f}x",
            str(answer.next_wall),
            units.join_ends(before, units.duration(answer.step_ns), " → "),
        )
        for answer in best
    ]


@pytest.mark.parametrize(
    ("caption", "name"), [("with each change", "answers"), ("at each strength", "sweep")]
)
def test_tables_and_figures_hold_each_answer(found, caption, name):
    text, answers = write_whatif_page(found), getattr(found, name)
    chart = charts(text)["changes" if name == "answers" else "sweep"]

    assert [(row[1], row[2], row[4]) for row in rows(text, f"The typical {found.unit} {caption}")] == [
        (
            ms(answer.step_ns),
            signed_ms(-answer.won_ns),
            str(answer.next_wall),
        )
        for answer in answers
    ]
    for place, wall in enumerate(Wall):
        drawn = [answer.walls.parts()[place] / 1e6 for answer in answers]
        assert chart["traces"][place]["name"] == str(wall)
        assert chart["traces"][place]["x"] == [found.walls.parts()[place] / 1e6, *drawn]


def test_without_an_answer_it_is_said(found):
    text = write_whatif_page(replace(found, answers=(), sweep=()))

    assert text.count("None of the usual changes shortens the step by 0.1 % or more.") == 2
    assert 'id="sweep"' not in text


def test_no_medium_names_a_change_that_gains_nothing(found):
    answers = tuple(replace(one, step_ns=found.step_ns, won_ns=0, speedup=1.0) for one in found.answers)
    vain = replace(found, answers=answers)
    page = unescape(write_whatif_page(vain))

    assert found.best is not None
    assert vain.best is None
    assert "None of the requested changes shortens it." in brief_whatif(vain, "run.sqlite", 3).verdict
    assert f"None of the requested changes shortens the {found.unit}." in page
    assert "could drop to" in write_whatif_page(found)
    assert "could drop to" not in page


def test_what_is_unknown_of_the_replay_is_said_as_unknown(found):
    check = replace(found.check, error_median=None, error_p90=None, unresolved_wait_share=None)
    shown = dict(rows(write_whatif_page(replace(found, check=check, overlap_tax=None)), "What was replayed"))

    assert sum(value == "unknown" for value in shown.values()) == 4


def test_hostile_names_stay_text(hostile, found):
    text, plain = write_whatif_page(hostile), write_whatif_page(found)

    assert {tag for tag, _ in elements(text)} <= {tag for tag, _ in elements(plain)}
    assert not any(name.startswith("on") for _, attributes in elements(text) for name in attributes)
    assert not set("\x1b\u202e\u2028\r") & set(text)
    assert text == write_whatif_page(hostile)
    assert "default-src 'none'" in unescape(text)


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_complains_of_nothing_fetches_nothing_and_shows_all(
    browser, hostile, tmp_path, width, scheme
):
    file = tmp_path / "whatif.html"
    file.write_text(write_whatif_page(hostile), encoding="utf-8")
    opened = Opened(browser, file, width, scheme)
    opened.unfold()
    is_whole = opened.is_quiet_and_whole(file)
    drawn = opened.tab.locator(".plot canvas[data-marks]").count()
    opened.close()

    assert is_whole
    assert drawn >= 3


@needs_axe
@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_stands_in_the_way_of_a_screen_reader(browser, found, tmp_path, width, scheme):
    file = tmp_path / "whatif.html"
    file.write_text(write_whatif_page(found), encoding="utf-8")
    opened = Opened(browser, file, width, scheme, is_open_to_scripts=True)
    opened.unfold()
    violations = opened.violations()
    opened.close()

    assert violations == []


def test_a_sweep_alone_says_nothing_of_other_changes(found):
    alone = replace(found, answers=())

    assert 'id="changes"' not in write_whatif_page(alone)
    shown = io.StringIO()
    Console(file=shown, width=80).print(render_whatif(alone))
    assert "usual changes" not in shown.getvalue()
    assert "Sweep" in shown.getvalue()

"""The block of fixes on the first screen."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from wallscope.model.advice import Fix, Precondition, Setting
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.render.terminal import render_section
from wallscope.views.cards import build_cards, build_recommendations
from wallscope.views.sections.walls import number_fixes
from wallscope.views.verdict import TimeBasis


def fix(name, **told):
    usual = Fix(
        id=name,
        title=f"Do {name}",
        wall=Wall.HOST,
        causes=("host/lock",),
        why="",
        settings=(),
        preconditions=(),
        blocked=False,
        recoverable_ns=None,
        speedup_ceiling=None,
        expected_gain=None,
        caveats=(),
        verify="",
        source="",
    )
    return replace(usual, **told)


STATUSES = ("met", "met", "unknown")


def shown(*found, columns=80):
    page = io.StringIO()
    console = Console(file=page, width=columns, markup=False, highlight=False, emoji=False)
    cards = build_cards(number_fixes(found), 1_000, TimeBasis("typical", Walls(0, 0, 0, 1_000, 0), ""))
    console.print(render_section(build_recommendations(cards, (), "Recommendations")))
    return [line.strip() for line in page.getvalue().split("\n")[1:] if line.strip()]


def test_a_fix_tells_ceiling_settings_preconditions_and_the_next_wall():
    settings = (
        Setting("megatron-bridge", "model.a", "1"),
        Setting("megatron-lm", "--a", "1"),
        Setting("environment", "A", "1"),
    )
    held = tuple(Precondition(name, "", status) for name, status in zip("ABC", STATUSES, strict=True))
    told = fix("a", settings=settings, preconditions=held, speedup_ceiling=1.25, next_wall="compute")

    lines = [" ".join(line.split()) for line in shown(told)]

    assert lines == [
        "1 Do a up to 1.25x",
        "model.a=1",
        "A=1",
        "next wall: compute",
        "Conditions: 2 met, 1 to check. Check first:",
    ]


def test_a_blocked_fix_tells_what_unblocks_it():
    blocked = Precondition("P", "stages are interleaved", "unmet", "set virtual stages")

    assert shown(fix("a", preconditions=(blocked,), blocked=True)) == [
        "1 Do a",
        "Blocked: stages are interleaved → set virtual stages",
        "Conditions: 1 unmet",
    ]


@pytest.mark.parametrize(("worth_ns", "is_told"), [(100, True), (99, False), (None, False)])
def test_a_blocked_fix_behind_the_first_screen_is_told_where_it_would_win_as_much(worth_ns, is_told):
    unmet = (Precondition("P", "stages are interleaved", "unmet", "set virtual stages"),)
    hidden = fix("best", blocked=True, preconditions=unmet, recoverable_ns=worth_ns)
    lines = shown(*[fix(str(place), recoverable_ns=100) for place in range(5)], hidden)

    assert ("- Held back: Do best" in lines) is is_told
    assert ("blocked: stages are interleaved → set virtual stages" in lines) is is_told


def test_settings_beyond_four_are_counted():
    settings = tuple(Setting("pytorch", f"line{place}", "") for place in range(6))

    assert shown(fix("a", settings=settings))[1:] == ["line0", "line1", "line2", "line3", "2 more settings"]


@pytest.mark.parametrize(
    ("causes", "expected"),
    [
        pytest.param(["a"] * 7, ["0", "1", "2", "3", "4"], id="one cause fills the screen"),
        pytest.param(["a"] * 4 + ["b"] * 3, ["0", "1", "2", "4", "5"], id="two of each first"),
        pytest.param(["a", "b"], ["0", "1"], id="few"),
    ],
)
def test_five_fixes_come_first_two_of_a_cause_before_a_third(causes, expected):
    found = [fix(str(place), causes=(cause,)) for place, cause in enumerate(causes)]

    lines = shown(*found)
    titles = [line.split("Do ")[1].split()[0] for line in lines if "Do " in line]

    assert titles[:5] == expected
    assert titles[5:] == [str(place) for place in range(len(causes)) if str(place) not in expected]
    assert (lines[-1] == "Why and how: wallscope explain 0") is (len(causes) > 5)

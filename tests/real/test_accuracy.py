"""Captures that others made, judged as an expert judges them; docs/accuracy.md lists what was found."""

import pytest

from tests.real.answers import NEEDS_TRACES, ROOT, TRACES, answer, rank_of
from tests.real.expectations import CEILINGS, CHANGES, EXPECTED
from wallscope.api import diff

PAGE = ROOT / "docs" / "accuracy.md"

pytestmark = NEEDS_TRACES


def share_of(rank, beginning):
    return sum(cause["share"] for cause in rank["causes"] if cause["cause"].startswith(beginning))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_wall_is_the_right_one(name):
    assert answer(name)["diagnosis"]["dominant_wall"] in EXPECTED[name].walls


@pytest.mark.parametrize("name", [name for name, one in EXPECTED.items() if one.steps])
def test_the_steps_are_found(name):
    found, expected = answer(name), EXPECTED[name]

    assert expected.steps[0] <= len(rank_of(found)["steps"]) <= expected.steps[1]
    assert expected.anchor in {None, found["anchor"]["name"]}


@pytest.mark.parametrize(
    ("name", "beginning", "least", "most"),
    [(name, *share) for name, one in EXPECTED.items() for share in one.shares],
)
def test_causes_own_what_the_rows_say(name, beginning, least, most):
    assert least <= share_of(rank_of(answer(name)), beginning) <= most


@pytest.mark.parametrize("name", [name for name, one in EXPECTED.items() if one.step_ms])
def test_the_mean_step_is_the_measured_one(name):
    least, most = EXPECTED[name].step_ms

    assert least <= rank_of(answer(name))["mean_step_ns"] / 1e6 <= most


@pytest.mark.parametrize(
    ("name", "words"), [(name, word) for name, one in EXPECTED.items() for word in one.says]
)
def test_the_verdict_says_what_matters(name, words):
    assert words in answer(name)["diagnosis"]["verdict"]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1])
def test_a_change_shows_with_sign_size_and_cause(change):
    base, head, what, name, change_ms, share = change
    found = diff(*(TRACES / f"{side}.sqlite" for side in (base, head))).comparison
    rows = found.deltas.walls if what == "wall" else found.deltas.causes
    (row,) = [row for row in rows if str(getattr(row, what)) == name]

    assert row.delta_ns / 1e6 == pytest.approx(change_ms, rel=share)
    assert found.comparable
    assert found.verdict != "regression"


@pytest.mark.parametrize(("name", "cause", "next_ms"), CEILINGS)
def test_the_upper_bound_is_near_the_step_of_the_next_version(name, cause, next_ms):
    (told,) = [one for one in answer(name)["opportunities"] if one["cause"] == cause]

    assert told["step_ceiling_ns"] / 1e6 == pytest.approx(next_ms, rel=0.15)


def write_page():
    rows = []
    for name, expected in EXPECTED.items():
        found = answer(name)
        rank, told = rank_of(found), found["diagnosis"]["dominant_wall"]
        causes = ", ".join(
            f"{cause['cause']} {cause['share']:.1%}"
            for cause in rank["causes"][:3]
            if cause["share"] >= 0.001
        )
        counted = f"{len(rank['steps'])} of {found['anchor']['name'] or found['anchor']['kind']}"
        steps = counted if expected.steps else "whole capture"
        right = " or ".join(expected.walls)
        rows.append(f"| `{name}` | {right} | {told} | {steps} | {causes} | {expected.evidence} |")
    return (
        "# Accuracy on captures that others made\n\n"
        "Public captures and those of tutorials, none made for wallscope. What is right was worked out from\n"
        "the rows by an expert; what was found is what `wallscope analyze` answers. `make test-real`\n"
        "compares the two, and this page, where the captures are there.\n\n"
        "| capture | right | found | steps | largest causes | evidence |\n|---|---|---|---|---|---|\n"
        + "\n".join(rows)
        + "\n"
    )


def test_the_page_lists_what_is_found(request):
    if request.config.getoption("--golden"):
        PAGE.write_text(write_page(), encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == write_page()

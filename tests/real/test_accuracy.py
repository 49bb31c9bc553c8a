"""Captures that others made, judged as an expert judges them; docs/accuracy.md lists what was found."""

import pytest

from tests.answered_once import compare_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, ROOT, TRACES, answer, rank_of
from tests.real.expectations import CEILINGS, CHANGES, EXPECTED
from tests.real.test_interventions import INTERVENTIONS

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


@pytest.mark.parametrize("change", run_part(CHANGES, name=lambda change: change[1]))
def test_a_change_shows_with_sign_size_and_cause(change):
    base, head, what, name, change_ms, share = change
    found = compare_once(*(TRACES / f"{side}.sqlite" for side in (base, head)))
    rows = found.deltas.walls if what == "wall" else found.deltas.causes
    (row,) = [row for row in rows if str(getattr(row, what)) == name]

    assert row.delta_ns / 1e6 == pytest.approx(change_ms, rel=share)
    assert found.comparable
    assert found.verdict != "regression"


@pytest.mark.parametrize(("name", "cause", "next_ms"), CEILINGS)
def test_the_upper_bound_is_near_the_step_of_the_next_version(name, cause, next_ms):
    (told,) = [one for one in answer(name)["opportunities"] if one["cause"] == cause]

    assert told["step_ceiling_ns"] / 1e6 == pytest.approx(next_ms, rel=0.15)


def list_captures():
    yield (
        "| capture | right wall | wall found | steps | largest causes of the typical step"
        " | evidence in the rows of the export |\n|---|---|---|---|---|---|"
    )
    for name, expected in EXPECTED.items():
        found = answer(name)
        rank, told = rank_of(found), found["diagnosis"]["dominant_wall"]
        causes = ", ".join(
            f"{cause['cause']} {cause['share']:.1%}"
            for cause in rank["causes"][:3]
            if cause["share"] >= 0.001
        )
        marked, kind = found["anchor"]["name"], found["anchor"]["kind"].replace("-", " ")
        counted = f"{len(rank['steps'])}, {f'range `{marked}`' if marked else kind}"
        steps = counted if expected.steps else "whole capture"
        right = " or ".join(expected.walls)
        yield f"| `{name}` | {right} | {told} | {steps} | {causes} | {expected.evidence} |"


def list_interventions():
    yield (
        "| capture | right wall | wall found | change of the authors (place) | predicted gain | measured gain"
        " | predicted step | next capture | comparison | change of the cause: found | measured |"
    )
    yield "|---|---|---|---|---:|---:|---:|---:|---|---:|---:|"
    for one in INTERVENTIONS:
        found = answer(one.name)
        made = next(fix for fix in found["fixes"] if fix["id"] in one.made)
        cells = [
            f"`{one.name}`",
            " or ".join(one.walls),
            found["diagnosis"]["dominant_wall"],
            f"`{made['id']}` ({found['fixes'].index(made) + 1})",
            *win_of(one, made),
            *bound_of(one, found),
            *change_of(one),
        ]
        yield f"| {' | '.join(cells)} |"


def win_of(one, made):
    return ("", "") if one.won_ms is None else (in_ms(made["recoverable_ns"] / 1e6), in_ms(one.won_ms))


def bound_of(one, found):
    if one.bound is None:
        return "", ""
    cause, next_ms = one.bound
    (bound,) = [entry for entry in found["opportunities"] if entry["cause"] == cause]
    return in_ms(bound["step_ceiling_ns"] / 1e6), in_ms(next_ms)


def change_of(one):
    if one.next_name is None:
        return "", "", ""
    what, name, change_ms, _ = one.changed
    found = compare_once(*(TRACES / f"{side}.sqlite" for side in (one.name, one.next_name)))
    rows = found.deltas.walls if what == "wall" else found.deltas.causes
    (row,) = [row for row in rows if str(getattr(row, what)) == name]
    return str(found.verdict), in_ms(row.delta_ns / 1e6), in_ms(change_ms)


def in_ms(value_ms):
    return f"{value_ms:.3g} ms" if abs(value_ms) < 10 else f"{value_ms:.1f} ms"


@pytest.mark.parametrize(
    ("name", "lines"), [("captures", list_captures), ("interventions", list_interventions)]
)
def test_the_page_lists_what_is_found(name, lines, request):
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    tail = rest.partition(end)[2]
    written = head + begin + "\n".join(lines()) + "\n" + end + tail
    if request.config.getoption("--golden"):
        PAGE.write_text(written, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == written

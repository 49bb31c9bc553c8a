"""Histories say how certain a change is, also by the comparison behind an applied recommendation."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.views.test_applied_fixes import APPLIED
from wallscope.model.ledger import AppliedEntry
from wallscope.views.history import list_times

BASE, HEAD = "a" * 40, "b" * 40
MS = 1_000_000


def record(commit: str, step_ns: int, at: int):
    return SimpleNamespace(
        testbed=Testbed(),
        commit=commit,
        recorded_utc_ns=at,
        metric_ns=lambda _: step_ns,
        representative=SimpleNamespace(steps=20),
        origin=None,
        is_reference=True,
    )


class Testbed:
    """One machine."""

    __test__ = False
    machine = "H100"

    def __str__(self) -> str:
        return "H100"


def grade_of_head(metric: str, **changed) -> str | None:
    """The grade of a step that falls to 80 ms, with a recommendation that was applied."""
    applied = replace(APPLIED, **changed)
    entry = AppliedEntry("H100", BASE, HEAD, 2, "improvement", applied)
    before = [record(f"{at:040}", (100 + at % 2) * MS, at) for at in range(4)]
    records = [*before, record(BASE, 100 * MS, 4), record(HEAD, 80 * MS, 5)]
    return list_times(records, metric, [entry])["changed_grade"][-1]


SHOWN = {"measured_ns": 20 * MS, "low_ns": 15 * MS, "high_ns": 25 * MS}


@pytest.mark.parametrize(
    ("metric", "changed", "grade"),
    [
        ("step", SHOWN, "likely"),
        ("host", SHOWN, "possible"),
        ("step", {**SHOWN, "low_ns": -MS}, "possible"),
        ("step", {"measured_ns": -20 * MS, "low_ns": -25 * MS, "high_ns": -15 * MS}, "possible"),
    ],
)
def test_a_change_that_its_comparison_shows_is_likely(metric, changed, grade):
    assert grade_of_head(metric, **changed) == grade

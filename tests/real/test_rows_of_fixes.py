"""Laws over captures of others: recommendations name rows that are there, large walls have next actions."""

import tomllib
from pathlib import Path

import pytest

from tests.answered_once import analyze_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, ROOT, TRACES
from tests.real.row_families import FAMILY, list_walls_without_action, read_rows
from wallscope.errors import WallscopeError

CAPTURES = sorted(
    path
    for pattern in ("*.sqlite", "kineto/*.json.gz", "minimal/*/*.sqlite", "minimal/marks/*.json.gz")
    for path in TRACES.glob(pattern)
)


def _analyze(path):
    try:
        return analyze_once(path)
    except WallscopeError as error:
        pytest.skip(f"nothing to analyze: {error}")


def test_every_rule_says_which_rows_it_changes():
    files = (ROOT / "wallscope" / "advice" / "rules").glob("*.toml")
    rules = {fix["id"] for path in files for fix in tomllib.loads(path.read_text("utf-8"))["fix"]}

    assert set(FAMILY) == rules


@NEEDS_TRACES
@pytest.mark.parametrize("path", run_part(CAPTURES))
def test_a_recommendation_has_rows_in_its_capture(path: Path):
    found, rows = _analyze(path), read_rows(path)
    without = {fix.id for fix in found.fixes or () if not rows.count(FAMILY[fix.id])}

    assert without == set()


@NEEDS_TRACES
@pytest.mark.parametrize("path", run_part(CAPTURES))
def test_a_large_wall_has_an_action(path: Path):
    found = _analyze(path)
    if any(one.code == "no-kernels" for one in found.capture.findings):
        assert any(one.cure for one in found.capture.findings)
        return
    assert list_walls_without_action(found) == []

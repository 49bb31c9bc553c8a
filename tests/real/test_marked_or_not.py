"""The wall of a program does not depend on how its steps are marked: once, each, twice, or not at all."""

import re
import shutil
import sqlite3
from contextlib import closing

import pytest

from tests.answered_once import analyze_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, TRACES
from wallscope.model.capture import Options
from wallscope.pipeline import analyze

RANGES = "NVTX_EVENTS"
MARKED = (
    "cs336_tianshi_result",
    "nersc_sc21_8workers",
    "nersc_sc21_baseline",
    "nersc_sc21_dali",
    "nersc_sc21_dali_amp",
    "nersc_sc22_4gpu_base",
    "nersc_sc22_4gpu_nobcast",
    "nersc_sc23_dali",
    "nersc_sc23_dali_bf16",
    "nersc_sc23_dali_bf16_fused_jit",
)
"""The exports of others whose steps have marks."""

pytestmark = NEEDS_TRACES


def list_marks(connection, name):
    """The rows of the marks of the steps, in order of time; `#` in their folded name stands for a number."""
    pattern = re.compile(r"\d+".join(map(re.escape, name.split("#"))))
    texts = "COALESCE(text, (SELECT value FROM StringIds WHERE id = textId))"
    rows = connection.execute(f"SELECT rowid, {texts} FROM {RANGES} WHERE end NOT NULL ORDER BY start")
    return [row for row, text in rows if text and pattern.fullmatch(text)]


def remove_all_but(connection, kept):
    connection.execute(f"DELETE FROM {RANGES} WHERE rowid NOT IN ({','.join(map(str, kept))})")


def keep_one(connection, marks):
    remove_all_but(connection, [marks[len(marks) // 2]])


def mark_twice(connection, marks):
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({RANGES})")]
    listed = ", ".join(f'"{column}"' for column in columns)
    connection.execute(
        f"INSERT INTO {RANGES} ({listed}) SELECT {listed} FROM {RANGES}"
        f" WHERE rowid IN ({','.join(map(str, marks))})"
    )


CHANGES = {
    "no range at all": lambda connection, _: remove_all_but(connection, []),
    "the marks alone": remove_all_but,
    "one mark": keep_one,
    "each mark twice": mark_twice,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", run_part(MARKED, ("cs336_tianshi_result",), name=str, of=9))
def test_marks_never_change_the_wall(name, change, tmp_path):
    known = analyze_once(TRACES / f"{name}.sqlite")
    path = tmp_path / "changed.sqlite"
    shutil.copy(TRACES / f"{name}.sqlite", path)
    with closing(sqlite3.connect(path)) as connection, connection:
        marks = list_marks(connection, known.anchor.name)
        assert len(marks) == known.anchor.steps
        CHANGES[change](connection, marks)
    found = analyze(path, Options(), lambda _: None)

    assert found.diagnosis.dominant_wall in {known.diagnosis.dominant_wall, None, "unknown"}
    if change in {"the marks alone", "each mark twice"}:
        assert found.diagnosis.dominant_wall == known.diagnosis.dominant_wall

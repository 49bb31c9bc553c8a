"""Captures that others made, with rows taken away or numbered anew.

With less evidence the wall stays, becomes unknown, or is less sure: never another wall with high confidence.
With other numbers for the same things the answer is the same.
"""

import shutil
import sqlite3
from functools import cache
from pathlib import Path

import pytest

from tests.real.answers import TRACES
from tests.real.changed_exports import LESS, SAME
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.preparation import prepare
from wallscope.summary.findings import describe_anchor
from wallscope.summary.rank import summarize_ranks
from wallscope.summary.verdict import diagnose

CAPTURES = (
    "clue_r3",
    "nersc_sc21_8workers",
    "nsysai_mfu_after",
    "llama3_real",
    "mpi_v100_4rank_managed",
    "cs336_athrun",
    "cs336_tianshi_result",
    "nersc_sc21_dali_amp",
    "nersc_sc22_4gpu_base",
    "newboyleo_a100",
    "pipit_saxpy_mpi",
)
"""Of each wall, of several programs, with one and several threads, processes and devices."""
QUICK = 3
"""Each change is tried with one of the first captures in `make test`, and with all in `make test-all`."""

pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="no captures of others here: ../shared/traces is absent"
)


def judge(path: Path) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    """The wall, the confidence and the walls of the typical step of each rank."""
    prepared = prepare(path, Options(), lambda _: None)
    anchor = describe_anchor(prepared.trace)
    found = []
    for account in summarize_ranks(prepared):
        diagnosis = diagnose(account, anchor)
        walls = account.rank.typical.walls.parts()
        found.append((diagnosis.dominant_wall, diagnosis.confidence.level, tuple(walls)))
    return tuple(found)


@cache
def judge_whole(name: str) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
    return judge(TRACES / f"{name}.sqlite")


def change_export(name: str, change: str, folder: Path) -> Path:
    """The path of a changed copy; skipped where the export does not have what the change is about."""
    path = folder / "run.sqlite"
    shutil.copyfile(TRACES / f"{name}.sqlite", path)
    connection = sqlite3.connect(path)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    is_changed = (LESS | SAME)[change](connection)
    connection.commit()
    connection.close()
    if not is_changed:
        pytest.skip("the capture has nothing of this")
    return path


def change_each(changes):
    return [
        pytest.param(
            name, change, id=f"{name}-{change}", marks=() if turn % QUICK == place else pytest.mark.slow
        )
        for turn, change in enumerate(changes)
        for place, name in enumerate(CAPTURES)
    ]


@pytest.mark.parametrize(("name", "change"), change_each(LESS))
def test_less_evidence_gives_no_other_wall_with_high_confidence(name, change, tmp_path):
    try:
        found = judge(change_export(name, change, tmp_path))
    except NothingToAnalyzeError:
        return
    known = judge_whole(name)

    assert len(found) == len(known)
    for (wall, _, _), (other, level, _) in zip(known, found, strict=True):
        assert other in {wall, "unknown"} or level != "high"


@pytest.mark.parametrize(("name", "change"), change_each(SAME))
def test_other_numbers_for_the_same_things_give_the_same_answer(name, change, tmp_path):
    assert judge(change_export(name, change, tmp_path)) == judge_whole(name)

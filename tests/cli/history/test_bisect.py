"""What `wallscope bisect` says of recorded commits."""

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.cli.test_history import commit_of, record_commits, times
from tests.store.test_records import run
from wallscope.store import Store


def shown(ran):
    return " ".join(ran.out.split())


def git(*arguments):
    ran = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return ran.stdout.strip()


@pytest.fixture
def slower(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return record_commits(tmp_path / "store", times() * np.where(np.arange(30) >= 17, 1.1, 1))


def test_the_commit_that_changed_a_time_is_named(slower, called):
    ran = called(
        "bisect", f"{commit_of(3)}..{commit_of(29)}", "step", "--store", slower, "--json", "rows.json"
    )

    assert ran.code == 0
    assert f"First commit with the change: {commit_of(17)[:12]} (95 % certain)" in shown(ran)
    rows = json.loads(Path("rows.json").read_text(encoding="utf-8"))
    assert [row["commit"] for row in rows] == [commit_of(number) for number in range(3, 30)]
    assert max(rows, key=lambda row: row["share"])["commit"] == commit_of(17)


def test_like_commits_are_not_bisected(slower, called):
    ran = called("bisect", f"{commit_of(3)}..{commit_of(12)}", "step", "--store", slower)

    assert "Both commits may be alike." in shown(ran)


def test_commits_without_a_record_are_named(tmp_path, monkeypatch, called):
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    commits = []
    for number in range(9):
        git("commit", "-q", "--allow-empty", "-m", f"change {number}")
        commits.append(git("rev-parse", "HEAD"))
    store = Store(tmp_path / "store")
    for number, time_ns in ((0, 100_000_000), (1, 100_400_000), (7, 130_000_000), (8, 130_300_000)):
        entry, profiles = run(commits[number], typical_ns=time_ns, recorded_ns=number + 1)
        store.add(entry, profiles)
    ran = called("bisect", "HEAD~8..HEAD", "step", "--store", "store", "--csv", "rows.csv")

    said = shown(ran)
    assert f"The change is in {commits[1][:12]}..{commits[7][:12]} (95 % certain): 6 commits." in said
    assert f"5 of them have no record. Record {commits[4][:12]} next" in said
    assert "run noise assumed" in said
    assert len(Path("rows.csv").read_text(encoding="utf-8").splitlines()) == 10


@pytest.mark.parametrize(
    ("commits", "said"),
    [
        (commit_of(3), "names no range"),
        (f"{commit_of(3)}..{commit_of(3)}", "name two commits"),
        (f"{commit_of(9)}..{commit_of(3)}", "write the older commit first"),
        (f"{commit_of(3)}..dddd", "holds no record of commit dddd"),
    ],
)
def test_bad_ranges_are_refused(slower, called, commits, said):
    ran = called("bisect", commits, "step", "--store", slower)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err

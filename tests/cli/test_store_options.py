import json
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

BASE, HEAD = "a" * 40, "b" * 40


@pytest.fixture
def recorded(answers, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, commit in (("base", BASE), ("head", HEAD)):
        ran = called(
            "record", answers / f"{name}.json", "--commit", commit, "--store", "store", "--label", "model=moe"
        )
        assert ran.code == 0
        assert ran.out.startswith(
            f"{commit[:12]} · NVIDIA H100, 16 ranks, train_step, model=moe, configuration="
        )
    return called


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(("aaaa", "bbbb"), id="two commits"),
        pytest.param((f"{BASE}..{HEAD}",), id="range"),
    ],
)
def test_commits_are_compared_from_their_records(recorded, ends):
    ran = recorded("diff", *ends, "--store", "store", "--fail-on", "step>3%")

    assert ran.code == 1
    assert "SLOWER: the typical step rose from 100.2 to 109.8 ms" in ran.out
    assert ran.err.startswith("wallscope: gate step>3% failed")


def test_history_lists_a_time_by_commit(recorded, tmp_path):
    ran = recorded("history", "step", "--store", "store", "--json", "history.json")

    lines = [line.split() for line in ran.out.splitlines()]
    assert [line[0] for line in lines if line and line[0][:3] in {"aaa", "bbb"}] == ["a" * 12, "b" * 12]
    assert "+9.5 %" in ran.out
    rows = json.loads((tmp_path / "history.json").read_text())
    assert [row["median_ns"] for row in rows] == sorted(row["median_ns"] for row in rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("diff", "aaaa..cccc"), "no record of commit cccc", id="unknown commit"),
        pytest.param(("diff", "aaaa"), "is one side", id="one side"),
        pytest.param(
            ("diff", "aaaa", "bbbb", "--label", "model=other"), "share no testbed", id="other testbed"
        ),
        pytest.param(
            ("diff", "aaaa", "bbbb", "--label", "configuration=0"),
            "share no testbed",
            id="other configuration",
        ),
        pytest.param(
            ("record", "x.json", "--commit", BASE, "--label", "configuration=1"),
            "the runs define it",
            id="configuration as a label",
        ),
        pytest.param(("history", "speed"), "is not a metric", id="no metric"),
        pytest.param(("history", "step", "--label", "a=b"), "has no such record", id="no record"),
        pytest.param(("record", "none.json", "--commit", BASE), "cannot be read", id="no run"),
        pytest.param(("record", "x.json", "--commit", BASE, "--label", "x"), "is not a label", id="no label"),
    ],
)
def test_bad_usage_of_a_store_is_one_line_and_exit_2(recorded, arguments, said):
    ran = recorded(*arguments, "--store", "store")

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert said in ran.err


def test_ranges_name_commits_as_git_does(answers, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    commits = []
    subprocess.run([*git, "init", "-q"], check=True)
    for name in ("base", "head"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", name], check=True)
        ran = called("record", answers / f"{name}.json", "--commit", "HEAD", "--store", "store")
        commits.append(ran.out.split()[0])
    subprocess.run([*git, "branch", "topic"], check=True)
    subprocess.run([*git, "reset", "-q", "--hard", "HEAD~1"], check=True)

    ran = called("diff", "main...topic", "--store", "store", "--json", "-")
    found = json.loads(ran.out)
    assert [found[side]["commit"][:12] for side in ("base", "head")] == commits


def record(called, answers, name, commit):
    ran = called("record", answers / f"{name}.json", "--commit", commit, "--store", "store")
    return re.search(r"configuration=(\w+)", ran.out)[1]


def test_what_was_tuned_is_compared_where_nothing_else_is_there_and_listed(
    answers, called, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    plain = record(called, answers, "base", BASE)
    tuned = record(called, answers, "tuned", HEAD)
    ran = called("diff", "aaaa", "bbbb", "--store", "store")

    said = ran.out.replace("\n", " ")
    assert plain != tuned
    assert "SLOWER" in said
    assert re.search(rf"Configured differently: .*{plain} → .*{tuned}", said)
    assert "CUDA graphs: none → node" in said
    assert "micro_batch_size: 1 → 2" in said


def test_of_several_testbeds_the_one_that_both_commits_have_is_taken_and_named(
    answers, called, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    plain = record(called, answers, "base", BASE)
    record(called, answers, "tuned", HEAD)
    assert record(called, answers, "head", HEAD) == plain
    ran = called("diff", "aaaa", "bbbb", "--store", "store")
    assert re.search(rf"Both on .*configuration={plain}", ran.out.replace("\n", " "))

    record(called, answers, "tuned", BASE)
    several = called("diff", "aaaa", "bbbb", "--store", "store")
    assert (several.code, "share several testbeds" in several.err) == (2, True)
    chosen = called("diff", "aaaa", "bbbb", "--store", "store", "--label", f"configuration={plain[:4]}")
    assert f"configuration={plain}" in chosen.out.replace("\n", " ")


@pytest.fixture
def users_folder(tmp_path, monkeypatch):
    """A folder of the user in the current one, with a file that is older than an hour."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    os.utime(folder / "thesis.tex", (0, 0))
    return folder


def refused(ran, said):
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert said in ran.err


@pytest.mark.parametrize("linked", ["objects", "objects/aa", "records", f"records/{BASE}"])
def test_a_link_in_a_store_costs_nobody_a_file(answers, called, tmp_path, users_folder, linked):
    (tmp_path / ".wallscope" / linked).parent.mkdir(parents=True)
    (tmp_path / ".wallscope" / linked).symlink_to(users_folder)
    ran = called("record", answers / "base.json", "--commit", BASE, "--keep", "5")

    refused(ran, f".wallscope/{linked} — is a link")
    assert (users_folder / "thesis.tex").read_text() == "years of work"
    assert len(list(users_folder.iterdir())) == 1


def test_a_repository_is_no_store(answers, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git = ("git", "-c", "user.name=x", "-c", "user.email=x@example.org")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    for path in (tmp_path / ".git").rglob("*"):
        os.utime(path, (0, 0))
    ran = called("record", answers / "base.json", "--commit", BASE, "--keep", "5", "--store", ".git")

    refused(ran, "is not a wallscope store")
    subprocess.run([*git, "fsck", "--strict"], check=True)
    assert not {"records", "wallscope-store.json"} & {path.name for path in (tmp_path / ".git").iterdir()}


def test_a_store_that_nobody_named_is_no_link(answers, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / ".wallscope").symlink_to("elsewhere")
    ran = called("record", answers / "base.json", "--commit", BASE)

    refused(ran, ".wallscope — is a link — name the folder that is meant with --store")
    named = called("record", answers / "base.json", "--commit", BASE, "--store", ".wallscope")
    assert (named.code, (tmp_path / "elsewhere" / "records").is_dir()) == (0, True)


IN_A_PULL_REQUEST = [
    pytest.param({"GITHUB_EVENT_NAME": "pull_request"}, (), id="GitHub"),
    pytest.param({"GITHUB_EVENT_NAME": "pull_request_target"}, (), id="GitHub, with secrets"),
    pytest.param({"CI_PIPELINE_SOURCE": "merge_request_event"}, (), id="GitLab"),
    pytest.param({"CI_PIPELINE_SOURCE": "external_pull_request_event"}, (), id="GitLab for GitHub"),
    pytest.param({}, ("--pull-request",), id="said"),
]


@pytest.mark.parametrize(("environment", "options"), IN_A_PULL_REQUEST)
def test_a_run_of_a_pull_request_is_compared_and_no_base(
    recorded, answers, monkeypatch, environment, options
):
    third = "c" * 40
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stored = ("--store", "store", "--label", "model=moe")
    ran = recorded("record", answers / "base.json", "--commit", third, *options, "--keep", "1", *stored)
    assert (ran.code, "0 older runs forgotten" in ran.out) == (0, True)

    refused(recorded("diff", third, HEAD, *stored), "only pull requests recorded")
    assert recorded("diff", BASE, third, *stored).code == 0


def test_a_run_in_a_pull_request_can_be_said_to_be_none(recorded, answers, monkeypatch):
    monkeypatch.setenv("GITHUB_EVENT_NAME", "pull_request")
    third = "c" * 40
    recorded("record", answers / "base.json", "--commit", third, "--no-pull-request", "--store", "store")

    listed = recorded("history", "step", "--store", "store", "--csv", "-").out
    assert "pull-request" not in listed


def test_history_takes_changes_from_what_no_pull_request_recorded(recorded, answers, tmp_path):
    stored = ("--store", "store", "--label", "model=moe")
    recorded("record", answers / "tuned.json", "--commit", HEAD, "--pull-request", *stored)
    recorded("record", answers / "head.json", "--commit", "c" * 40, "--pull-request", *stored)
    recorded("record", answers / "head.json", "--commit", "d" * 40, *stored)
    ran = recorded("history", "step", "--store", "store", "--json", "history.json")

    rows = json.loads((tmp_path / "history.json").read_text())
    alike = [row for row in rows if row["testbed"] == rows[-1]["testbed"]]
    assert [(row["commit"][0], row["origin"], row["change"]) for row in alike if row["commit"] != BASE][
        1:
    ] == [
        ("c", "pull-request", 0.0),
        ("d", None, 0.0),
    ]
    assert re.search(r"c{12}.*pull-request", ran.out)


def test_a_base_recorded_long_before_is_noted(recorded, answers, monkeypatch):
    def notes(head):
        ran = recorded("diff", f"{BASE}..{head}", "--store", "store", "--json", "-")
        return [row["base"] for row in json.loads(ran.out)["mismatches"] if row["what"] == "age of the base"]

    assert notes(HEAD) == []
    later_ns = time.time_ns() + 30 * 86_400 * 10**9
    module = sys.modules["wallscope.cli.history"]
    monkeypatch.setattr(module, "time", SimpleNamespace(time_ns=lambda: later_ns))
    head = answers / "head.json"
    recorded("record", head, "--commit", "c" * 40, "--store", "store", "--label", "model=moe")
    assert notes("c" * 40) == ["30 days and 1 recorded commit older: choose a newer base"]

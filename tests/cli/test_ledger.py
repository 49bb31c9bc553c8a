"""What `wallscope ledger` says of recorded commits and their recommendations."""

import csv
import io
import json
import shutil
from pathlib import Path

import jsonschema
import pytest

from fixtures.simulation.names import GEMM
from fixtures.simulation.noise import add_noise
from fixtures.simulation.program import HostThread, Launch, Program, SyncDevice, Why, Work, stepped
from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from tests.cli.test_history import record_commits, times
from wallscope.cli.history import record
from wallscope.files import read_report
from wallscope.store import Store

MS = 1_000_000


def write_commit(path, loading_ms, seed):
    step = [
        Launch(GEMM, 4 * MS),
        SyncDevice(),
        Work(round(loading_ms * MS), Why.DATA_LOADING),
        Launch(GEMM, 4 * MS),
    ]
    program = Program(((HostThread("main", stepped(14, lambda _: step)),),))
    write_run(run(add_noise(program, seed)), path)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Five commits: the second brings the loader from 8 to 1 ms, the fourth back, the fifth down again."""
    folder = tmp_path_factory.mktemp("ledger")
    for number, loading_ms in enumerate((8, 1, 1, 8, 1)):
        write_commit(folder / f"{number}.sqlite", loading_ms, number + 1)
        record([str(folder / f"{number}.sqlite")], commit=f"{number}" * 8, store=str(folder / "store"))
    return folder / "store"


def read_json(called, *arguments):
    return json.loads(called("ledger", *arguments, "--json", "-").out)


def test_applied_recommendations_are_listed_with_bound_and_gain(store, called):
    found = read_json(called, store)
    jsonschema.validate(found, json.loads(read_report("ledger.schema.json")))

    assert [(one["base"][:1], one["head"][:1], one["applied"]["id"]) for one in found["entries"]] == [
        ("0", "1", "data-workers"),
        ("3", "4", "data-workers"),
    ]
    assert (found["pairs"], found["without_fixes"]) == (4, 0)
    for entry in found["entries"]:
        one = entry["applied"]
        assert entry["verdict"] == "improvement"
        assert one["measured_ns"] == pytest.approx(7 * MS, rel=0.1)
        assert one["bound_ns"] >= one["measured_ns"]
        assert one["share"] == pytest.approx(one["measured_ns"] / one["bound_ns"])


def test_the_calibration_is_that_of_the_cases(store, called):
    found = read_json(called, store)
    shares = sorted(one["applied"]["share"] for one in found["entries"])

    assert found["calibration"] == [
        {
            "id": "data-workers",
            "cases": 2,
            "low": shares[0],
            "median": pytest.approx(sum(shares) / 2),
            "high": shares[1],
            "perhaps_chance": 0,
        }
    ]


def test_the_terminal_and_the_table_say_the_same(store, called):
    found = read_json(called, store)
    shown = " ".join(called("ledger", store).out.split())
    rows = list(csv.DictReader(io.StringIO(called("ledger", store, "--csv", "-").out)))

    assert "4 pairs of neighboring commits compared" in shown
    assert "00000000 → 11111111 data-workers:" in shown
    assert "in 2 cases (median" in shown
    assert [int(row["measured_ns"]) for row in rows] == [
        one["applied"]["measured_ns"] for one in found["entries"]
    ]


def test_the_history_lists_the_same_recommendations(store, called):
    entries = read_json(called, store)["entries"]
    rows = json.loads(called("history", "step", "--store", store, "--json", "-").out)
    shown, listed = (
        " ".join(called(*arguments).out.split())
        for arguments in (("history", "step", "--store", store), ("ledger", store))
    )

    assert {row["commit"][0]: row["applied"] for row in rows} == {
        "0": None,
        "1": "data-workers",
        "2": None,
        "3": None,
        "4": "data-workers",
    }
    for entry in entries:
        line = f"{entry['base'][:12]} → {entry['head'][:12]} {entry['applied']['id']}: "
        assert shown.partition(line)[2][:60] == listed.partition(line)[2][:60] != ""
    assert shown.count("Applied recommendations") == 1


def test_the_history_without_profiles_says_that_recommendations_are_not_listed(store, called, tmp_path):
    copied = tmp_path / "store"
    shutil.copytree(store, copied)
    shutil.rmtree(copied / "objects")
    ran = called("history", "step", "--store", copied)

    assert (ran.code, ran.err.count("\n")) == (0, 1)
    assert "applied recommendations are not listed" in ran.err
    assert "Applied recommendations" not in ran.out


def test_only_the_newest_commits_are_compared(store, called):
    assert read_json(called, store, "--commits", "2")["pairs"] == 1


def test_records_without_recommendations_are_counted(tmp_path, called):
    older = record_commits(tmp_path / "store", times(5))
    found = read_json(called, older)

    assert (found["entries"], found["pairs"], found["without_fixes"]) == ([], 0, 4)
    assert "No recommendation is recognized as applied." in called("ledger", older).out


def test_a_record_keeps_recommendations_with_bounds_and_assumptions(store):
    (entry,) = Store(store).records("0" * 8)
    first = entry.fixes[0]

    assert first.id == "data-workers"
    assert 0 < first.bound_ns < first.whole_ns
    assert first.assumption


def test_the_calibration_stands_on_the_cards(store, called):
    run = store.parent / "0.sqlite"
    answer = json.loads(called("analyze", run, "--ledger", store, "--json", "-").out)
    (fix,) = [one for one in answer["fixes"] if one["id"] == "data-workers"]

    assert fix["experience"] == read_json(called, store)["calibration"][0]
    assert {one["id"] for one in answer["fixes"] if one["experience"]} == {"data-workers"}
    for medium in ((), ("--markdown", "-"), ("--html", "-"), ("--full",)):
        shown = " ".join(called("analyze", run, "--ledger", store, *medium, columns=300).out.split())
        assert "in these records, it reached" in shown
    assert "in these records, it reached" not in called("analyze", run, columns=300).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("none",), "none — has no such record"),
        (("--label", "x"), "is not a label"),
        (("none", "--commits", "1"), "--commits"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments, said, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = called("ledger", *arguments)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err
    assert not Path("none").exists()

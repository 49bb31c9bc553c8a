"""Runs of pull requests are recorded and compared, and change nothing for others."""

import json
from dataclasses import asdict, replace

import pytest

from tests.store.test_records import BED, opened, run
from wallscope.errors import StoreError
from wallscope.model.profile import PULL_REQUEST
from wallscope.store import Store, run_noise


@pytest.fixture(params=["folder", "object store"])
def store(request, tmp_path):
    return opened(request.param, tmp_path / "store")


def add(store, commit, number=0, *, origin=None, **values):
    record, profiles = run(commit, number, **values)
    store.add(replace(record, origin=origin), profiles)


def test_a_commit_that_pull_requests_alone_recorded_is_no_base(store):
    add(store, "abcd", origin=PULL_REQUEST)

    assert store.commit("abcd") == "abcd"
    with pytest.raises(
        StoreError, match=r"only pull requests recorded commit abcd.* cannot be a base"
    ) as failed:
        store.base("abcd")
    assert "\n" not in str(failed.value)


def test_a_commit_that_was_recorded_elsewhere_too_is_a_base_of_these_runs(store):
    add(store, "abcd", origin=PULL_REQUEST, typical_ns=1)
    add(store, "abcd")

    assert store.base("ab") == "abcd"
    assert [record.representative.typical_ns for record in store.records("abcd") if record.is_reference] == [
        100
    ]


def test_a_pull_request_cannot_make_a_base_ambiguous(store):
    add(store, "abcd" * 10)
    add(store, "abcd", 1, origin=PULL_REQUEST)

    assert store.base("abcdabcd") == "abcd" * 10


def test_a_base_that_nobody_recorded_is_named_as_ever(store):
    add(store, "abcd")

    with pytest.raises(StoreError, match="holds no record of commit beef"):
        store.base("beef")


def test_runs_of_pull_requests_are_no_noise():
    def at(commit, *times_ns, origin=None):
        return [replace(run(commit, typical_ns=time_ns)[0], origin=origin) for time_ns in times_ns]

    trusted = [*at("aaaa", 100, 102), *at("bbbb", 200, 204)]
    forged = [*at("aaaa", 1, 10_000, origin=PULL_REQUEST), *at("cccc", 1, 10_000, origin=PULL_REQUEST)]

    assert run_noise([*trusted, *forged], BED) == run_noise(trusted, BED)
    assert run_noise(forged, BED) is None


def test_retention_counts_the_commits_of_pull_requests_apart(store):
    for number in range(4):
        add(store, f"000{number}", recorded_ns=number)
        add(store, f"100{number}", recorded_ns=10 + number, origin=PULL_REQUEST)

    assert store.retain(BED, 1, origin=PULL_REQUEST) == 3
    assert store.commits() == ("0000", "0001", "0002", "0003", "1003")
    assert store.retain(BED, 2) == 2
    assert store.commits() == ("0002", "0003", "1003")


def test_a_record_of_an_earlier_version_is_a_base_and_its_bytes_stay(tmp_path):
    store = Store(tmp_path / "store")
    add(store, "abcd")
    (path,) = (tmp_path / "store" / "records" / "abcd").iterdir()

    told = json.loads(path.read_text())
    assert "origin" not in told
    assert set(asdict(run("abcd")[0])) - set(told) == {"origin", "fixes"}
    assert store.base("abcd") == "abcd"


def test_an_origin_of_a_later_version_is_no_base(store):
    add(store, "abcd", origin="merge-train")

    with pytest.raises(StoreError, match="cannot be a base"):
        store.base("abcd")

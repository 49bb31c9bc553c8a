import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest

from tests.compare.test_compare import steps
from tests.profile.random_profiles import profile_of
from wallscope.cli.store_options import load_sides
from wallscope.errors import StoreError
from wallscope.model import profile as nouns
from wallscope.model.profile import RECORD_SCHEMA, Record, RecordedRank
from wallscope.profile.codec import pack_profile, unpack_profile
from wallscope.store import Store, object_name, records

ROOT = Path(__file__).resolve().parents[2]
BED = nouns.Testbed("NVIDIA H100", 16, 1, "step", "train_step", {"model": "moe"})
PROFILES = [pack_profile(profile_of(f"capture {number}", steps(3, seed=number))) for number in range(4)]


def run(commit, number=0, recorded_ns=1, typical_ns=100, testbed=BED):
    stored = PROFILES[number]
    rank = RecordedRank(3, 0, object_name(stored), typical_ns, 3, {"compute/gemm": typical_ns})
    return Record(RECORD_SCHEMA, commit, testbed, recorded_ns, (rank,), 0), {object_name(stored): stored}


def opened(kind, folder):
    """A store of each kind of place."""
    if kind == "folder":
        return Store(folder)
    if kind == "file URL":
        return Store(f"file://{folder}")
    pytest.importorskip("fsspec", reason="stores behind URLs need the extra remote")
    from wallscope.store.storage import Remote

    if kind == "object store":
        return Store(f"memory://{folder}")
    store = Store(folder)
    store.storage = Remote(f"file://{folder}")
    return store


@pytest.fixture(params=["folder", "file URL", "object store", "piece by piece"])
def store(request, tmp_path):
    return opened(request.param, tmp_path / f"store-{uuid4().hex}")


@pytest.fixture
def later(monkeypatch):
    """Two hours from now, as retention sees it."""
    monkeypatch.setattr(records, "time", SimpleNamespace(time=lambda: time.time() + 7_200))


def objects(store):
    return [name for name in store.storage.names("objects") if ".aside-" not in name]


def test_what_is_kept_is_found_by_commit_and_its_beginning(store):
    record, profiles = run("abcdef0123")
    store.add(record, profiles)

    assert store.commit("abcd") == store.commit("abcdef0123") == "abcdef0123"
    assert store.records("abcdef0123") == (record,)
    assert unpack_profile(store.profile(record.representative.object), "x").steps.height == 3


def test_a_run_recorded_twice_is_there_once(store):
    for at_ns in (1, 2):
        store.add(*run("abcd", recorded_ns=at_ns))
    store.add(*run("abcd", number=1))

    assert len(store.records("abcd")) == 2


@pytest.mark.parametrize("wanted", ["beef", "ab"])
def test_a_commit_that_is_unknown_or_ambiguous_is_one_line(store, wanted):
    store.add(*run("abcd00"))
    store.add(*run("abcd11"))

    with pytest.raises(
        StoreError, match=r"holds no record of commit beef|2 recorded commits begin"
    ) as failed:
        store.commit(wanted)
    assert "\n" not in str(failed.value)


def test_writers_at_once_lose_nothing(store):
    jobs = [run(f"{number % 5:04x}", number % 4, typical_ns=number) for number in range(60)]
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda job: store.add(*job), jobs))

    assert {(entry.commit, entry.representative.typical_ns) for entry in store.all_records()} == {
        (job.commit, job.representative.typical_ns) for job, _ in jobs
    }
    for entry in store.all_records():
        store.profile(entry.representative.object)


WRITER = """
import sys
from pathlib import Path
from tests.store.test_records import opened, run
store = opened(sys.argv[1], Path(sys.argv[2]))
for number in range(100_000):
    store.add(*run(f"{number % 7:04x}", number % 4, typical_ns=number))
    print(number, flush=True)
"""


@pytest.mark.parametrize("kind", ["folder", "piece by piece"])
def test_a_writer_killed_in_the_middle_loses_nothing_that_was_written(kind, tmp_path):
    store = opened(kind, tmp_path / "store")
    command = [sys.executable, "-c", WRITER, kind, str(tmp_path / "store")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        said = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().splitlines() if line]

    kept = {entry.representative.typical_ns for entry in store.all_records()}
    assert kept >= set(said)
    for entry in store.all_records():
        store.profile(entry.representative.object)
    store.add(*run("ffff", typical_ns=7))
    assert store.records("ffff")


@pytest.mark.usefixtures("later")
def test_what_a_killed_writer_left_aside_is_no_record_and_is_swept(store):
    store.add(*run("abcd"))
    leftovers = {"records/abcd/.aside-x", "objects/aa/.aside-y"}
    for name in leftovers:
        store.storage.write(name, b"{")

    assert len(store.records("abcd")) == 1
    store.retain(BED, 5)
    assert not leftovers & {*store.storage.names("records"), *store.storage.names("objects")}
    store.profile(store.records("abcd")[0].representative.object)


def test_an_object_deleted_while_a_record_of_it_is_written_is_put_back(store, monkeypatch):
    """Retention decides before the record stands, and deletes after the writer put its object."""
    record, profiles = run("abcd")
    write = store.storage.write

    def interrupted(name, content):
        write(name, content)
        if name.startswith("records/"):
            for gone in objects(store):
                store.storage.delete(gone)

    monkeypatch.setattr(store.storage, "write", interrupted)
    store.add(record, profiles)
    assert store.profile(record.representative.object) == profiles[record.representative.object]


@pytest.mark.usefixtures("later")
def test_an_object_that_gets_a_record_while_it_is_deleted_is_put_back(store, monkeypatch):
    record, profiles = run("abcd")
    store.keep(profiles[record.representative.object])
    delete = store.storage.delete

    def interrupted(name):
        path = f"records/abcd/{'0' * 32}.json"
        store.storage.write(path, json.dumps(asdict(record)).encode())
        delete(name)

    monkeypatch.setattr(store.storage, "delete", interrupted)
    store.retain(BED, 5)
    assert store.profile(record.representative.object) == profiles[record.representative.object]


def damaged_record(store, content):
    store.add(*run("abcd"))
    (name,) = store.storage.names("records/abcd")
    store.storage.write(name, content.encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("{", "is damaged", id="cut short"),
        pytest.param("[]", "names no schema, so it is not wallscope.record/1", id="no record"),
        pytest.param('{"schema": "wallscope.record/2"}', "is wallscope.record/2", id="other version"),
        pytest.param('{"schema": "wallscope.record/1"}', "is damaged", id="keys missing"),
    ],
)
def test_a_damaged_record_is_one_line(store, content, said):
    damaged_record(store, content)

    with pytest.raises(StoreError, match=said) as failed:
        store.records("abcd")
    assert "\n" not in str(failed.value)
    store.add(*run("abcd"))
    assert store.records("abcd")[0] == run("abcd")[0]


def test_a_damaged_object_is_one_line_and_mended_by_recording_again(store):
    record, profiles = run("abcd")
    store.add(record, profiles)
    (name,) = objects(store)
    store.storage.write(name, store.storage.read(name).replace(b"a", b"b", 1))

    with pytest.raises(StoreError, match="is damaged"):
        store.profile(record.representative.object)
    store.add(record, profiles)
    assert store.profile(record.representative.object) == profiles[record.representative.object]


def test_a_missing_object_is_one_line(store):
    with pytest.raises(StoreError, match="cannot be read"):
        store.profile("0" * 64)


@pytest.mark.parametrize("kind", ["folder", "piece by piece"])
def test_a_store_that_cannot_be_written_is_one_line(kind, tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreError, match="cannot be written") as failed:
        opened(kind, tmp_path / "file").add(*run("abcd"))
    assert "\n" not in str(failed.value)


def test_a_read_only_store_is_read_and_refuses_to_be_written(store, monkeypatch):
    store.add(*run("abcd"))

    def refused(*_, **__):
        raise PermissionError(13, "the folder is locked")

    if hasattr(store.storage, "system"):
        for name in ("pipe_file", "rm_file"):
            monkeypatch.setattr(store.storage.system, name, refused)
    else:
        for name in ("replace", "unlink"):
            monkeypatch.setattr(os, name, refused)
    assert len(store.all_records()) == 1
    with pytest.raises(StoreError, match=r"cannot be written: .*the folder is locked"):
        store.add(*run("ffff"))
    with pytest.raises(StoreError, match=r"cannot be deleted: .*the folder is locked"):
        store.retain(BED, 0)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        pytest.param("nosuch://bucket/x", "cannot be opened", id="unknown protocol"),
        pytest.param("memory::nosuch://x", "cannot be opened", id="chain of unknown protocols"),
    ],
)
def test_a_url_that_no_plugin_opens_is_one_line(url, said):
    pytest.importorskip("fsspec", reason="stores behind URLs need the extra remote")

    with pytest.raises(StoreError, match=said) as failed:
        Store(url)
    assert "\n" not in str(failed.value)


def test_a_url_without_fsspec_names_the_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec.core", None)

    with pytest.raises(StoreError, match=r"pip install .*fsspec>="):
        Store("memory://x")


@pytest.mark.parametrize("commit", ["../x", "main", "", "ABCD", "a" * 65])
def test_what_is_no_commit_id_names_no_folder(store, commit):
    with pytest.raises(StoreError, match="is not a commit id"):
        store.add(*run(commit))


@pytest.mark.usefixtures("later")
def test_retention_keeps_the_newest_commits_of_a_testbed_and_all_of_others(store):
    other = replace(BED, gpu="NVIDIA A100")
    for number in range(4):
        store.add(*run(f"000{number}", number, recorded_ns=number))
    store.add(*run("0000", 0, recorded_ns=0, testbed=other))

    assert store.retain(BED, 2) == 2
    kept = {(entry.commit, entry.testbed.gpu) for entry in store.all_records()}
    assert kept == {("0002", "NVIDIA H100"), ("0003", "NVIDIA H100"), ("0000", "NVIDIA A100")}
    assert len(objects(store)) == 3
    for entry in store.all_records():
        store.profile(entry.representative.object)


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("recorded_ns", [0, 5, 2**61])
def test_a_run_that_is_just_recorded_is_kept_whatever_the_clock_said(store, recorded_ns):
    for number in range(4):
        store.add(*run(f"000{number}", number, recorded_ns=10 + number))
    store.add(*run("abcd", 0, recorded_ns=recorded_ns))

    assert store.retain(BED, 2, recorded="abcd") == 3
    assert store.commits() == ("0003", "abcd")
    assert store.retain(BED, 2, recorded="of another testbed") == 0


@pytest.mark.parametrize("jump_s", [-(10**9), -7_200, 7_200, 10**9])
def test_a_clock_that_jumps_costs_no_profile_of_a_record(store, monkeypatch, jump_s):
    store.add(*run("abcd"))
    now_s = time.time()
    monkeypatch.setattr("wallscope.store.records.time.time", lambda: now_s + jump_s)
    store.add(*run("ef01", 1))
    store.retain(BED, 5, recorded="ef01")

    assert store.commits() == ("abcd", "ef01")
    for entry in store.all_records():
        store.profile(entry.representative.object)


def test_objects_of_a_writer_at_work_outlive_retention(store):
    name = store.keep(PROFILES[0])
    store.retain(BED, 1)

    assert store.profile(name) == PROFILES[0]


def test_records_are_plain_json(store):
    store.add(*run("abcd"))
    (name,) = store.storage.names("records/abcd")

    assert json.loads(store.storage.read(name))["testbed"]["labels"] == {"model": "moe"}


def test_a_record_larger_than_any_is_left_out_without_being_read(store):
    store.add(*run("abcd"))
    store.storage.write(f"{records.RECORDS}/abcd/{'0' * 32}.json", b" " * 2_000)
    whole = store.all_records()
    store.storage.names(records.RECORDS)
    sizes = {len(content) for content in store.storage.read_each(store._paths(), 1 << 20).values()}
    limit = min(sizes)

    found = store.storage.read_each(store._paths(), limit)
    assert [type(one) for one in found.values()].count(StoreError) == 1
    assert len(whole) == 1


def test_an_object_that_many_ranks_name_is_read_once(tmp_path, monkeypatch):
    store = Store(tmp_path)
    record, profiles = run("abcd")
    many = replace(record, ranks=tuple(replace(record.ranks[0], rank=rank) for rank in range(2_000)))
    store.add(many, profiles)
    store.add(replace(many, commit="bcde"), profiles)
    read = []
    monkeypatch.setattr(Store, "profile", lambda _, name: read.append(name) or PROFILES[0])

    sides = load_sides(store, "abcd", "bcde", {})
    assert [len(side.runs[0]) for side in sides] == [2_000, 2_000]
    assert len(read) == 2

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.compare.test_comparing import steps
from tests.profile.random_profiles import profile_of
from wallscope.errors import StoreError
from wallscope.model import record as nouns
from wallscope.model.record import RECORD_SCHEMA, Record, RecordedRank
from wallscope.profile import packed, unpacked
from wallscope.store import Store, run_noise
from wallscope.store.folder import object_name

ROOT = Path(__file__).resolve().parents[2]
BED = nouns.Testbed("NVIDIA H100", 16, 1, "step", "train_step", {"model": "moe"})
PROFILES = [packed(profile_of(f"capture {number}", steps(3, seed=number))) for number in range(4)]


def run(commit, number=0, recorded_ns=1, typical_ns=100, testbed=BED):
    stored = PROFILES[number]
    rank = RecordedRank(3, 0, object_name(stored), typical_ns, 3, {"compute/gemm": typical_ns})
    return Record(RECORD_SCHEMA, commit, testbed, recorded_ns, (rank,), 0), {object_name(stored): stored}


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


def test_what_is_kept_is_found_by_commit_and_its_beginning(store):
    record, profiles = run("abcdef0123")
    store.add(record, profiles)

    assert store.commit("abcd") == store.commit("abcdef0123") == "abcdef0123"
    assert store.records("abcdef0123") == (record,)
    assert unpacked(store.profile(record.speaking.object), "x").steps.height == 3


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
        list(pool.map(lambda job: Store(store.folder).add(*job), jobs))

    assert {(entry.commit, entry.speaking.typical_ns) for entry in store.all_records()} == {
        (job.commit, job.speaking.typical_ns) for job, _ in jobs
    }
    for entry in store.all_records():
        store.profile(entry.speaking.object)


WRITER = """
import sys
from pathlib import Path
from tests.store.test_store import run
from wallscope.store import Store
store = Store(Path(sys.argv[1]))
for number in range(100_000):
    store.add(*run(f"{number % 7:04x}", number % 4, typical_ns=number))
    print(number, flush=True)
"""


def test_a_writer_killed_in_the_middle_loses_nothing_that_was_written(store):
    command = [sys.executable, "-c", WRITER, str(store.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
        said = [int(writer.stdout.readline()) for _ in range(20)]
        os.kill(writer.pid, signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().splitlines() if line]

    kept = {entry.speaking.typical_ns for entry in store.all_records()}
    assert kept >= set(said)
    for entry in store.all_records():
        store.profile(entry.speaking.object)
    store.add(*run("ffff", typical_ns=7))
    assert store.records("ffff")


def test_what_a_killed_writer_left_aside_is_no_record_and_is_swept(store):
    store.add(*run("abcd"))
    leftovers = [store.folder / "records" / "abcd" / ".aside-x", store.folder / "objects" / "aa" / ".aside-y"]
    for path in leftovers:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{")
        os.utime(path, (1, 1))

    assert len(store.records("abcd")) == 1
    store.retain(BED, 5)
    assert not any(path.exists() for path in leftovers)


def damaged_record(store, content):
    store.add(*run("abcd"))
    (path,) = (store.folder / "records" / "abcd").glob("*.json")
    path.write_text(content)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param("{", "is damaged", id="cut short"),
        pytest.param("[]", "is None, not wallscope.record/1", id="no record"),
        pytest.param('{"schema": "wallscope.record/2"}', "is wallscope.record/2", id="other version"),
        pytest.param('{"schema": "wallscope.record/1"}', "is damaged", id="keys missing"),
    ],
)
def test_a_damaged_record_is_one_line(store, content, said):
    damaged_record(store, content)

    with pytest.raises(StoreError, match=said) as failed:
        store.records("abcd")
    assert "\n" not in str(failed.value)


def test_a_damaged_object_is_one_line_and_mended_by_recording_again(store):
    record, profiles = run("abcd")
    store.add(record, profiles)
    (path,) = (store.folder / "objects").glob("*/*")
    path.write_bytes(path.read_bytes().replace(b"a", b"b", 1))

    with pytest.raises(StoreError, match="is damaged"):
        store.profile(record.speaking.object)
    store.add(record, profiles)
    assert store.profile(record.speaking.object) == profiles[record.speaking.object]


def test_a_missing_object_is_one_line(store):
    with pytest.raises(StoreError, match="cannot be read"):
        store.profile("0" * 64)


def test_a_store_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(StoreError, match="cannot be written"):
        Store(tmp_path / "file").add(*run("abcd"))


@pytest.mark.parametrize("commit", ["../x", "main", "", "ABCD", "a" * 65])
def test_what_is_no_commit_id_names_no_folder(store, commit):
    with pytest.raises(StoreError, match="is no commit id"):
        store.add(*run(commit))


def test_retention_keeps_the_newest_commits_of_a_testbed_and_all_of_others(store):
    other = replace(BED, gpu="NVIDIA A100")
    for number in range(4):
        store.add(*run(f"000{number}", number, recorded_ns=number))
    store.add(*run("0000", 0, recorded_ns=0, testbed=other))
    for path in (store.folder / "objects").glob("*/*"):
        os.utime(path, (1, 1))

    assert store.retain(BED, 2) == 2
    kept = {(entry.commit, entry.testbed.gpu) for entry in store.all_records()}
    assert kept == {("0002", "NVIDIA H100"), ("0003", "NVIDIA H100"), ("0000", "NVIDIA A100")}
    assert len(list((store.folder / "objects").glob("*/*"))) == 3
    for entry in store.all_records():
        store.profile(entry.speaking.object)


def test_objects_of_a_writer_at_work_outlive_retention(store):
    name = store.keep(PROFILES[0])
    store.retain(BED, 1)

    assert store.profile(name) == PROFILES[0]


def test_the_noise_of_a_testbed_is_that_inside_its_commits():
    def at(commit, *times_ns, testbed=BED):
        return [run(commit, typical_ns=time_ns, testbed=testbed)[0] for time_ns in times_ns]

    like = [*at("aaaa", 100, 102), *at("bbbb", 200, 204)]
    other = replace(BED, gpu="other")
    deviation, freedom = run_noise([*like, *at("cccc", 1, 99, testbed=other)], BED)

    assert freedom == 2
    assert deviation == pytest.approx(0.014, abs=0.0005)
    assert run_noise(at("aaaa", 100, 102), BED) is None


def test_records_are_plain_json(store):
    store.add(*run("abcd"))
    (path,) = (store.folder / "records" / "abcd").glob("*.json")

    assert json.loads(path.read_text())["testbed"]["labels"] == {"model": "moe"}

"""Exports analysed on a Dask cluster: the same bytes whatever happens to workers, and what is said else."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from tests.jobs.dying import dies_always_later, dies_once_later, takes_long
from tests.jobs.simulated import RANKS
from wallscope.cache_folder import Cache, EntryKind
from wallscope.errors import OptionError
from wallscope.jobs import run
from wallscope.jobs.inputs import find_exports
from wallscope.jobs.merge import run_job
from wallscope.jobs.run import analyze_on_cluster
from wallscope.model.capture import Options
from wallscope.render.data import write_json


def silent(_):
    pass


@pytest.fixture(scope="module")
def address():
    """A cluster of two processes; an export counts as a killer when a worker died of it."""
    distributed = pytest.importorskip("distributed", reason="no Dask here: pip install distributed")
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=2, dashboard_address=":0", silence_logs="CRITICAL"
        ) as running,
    ):
        yield running.scheduler_address


@pytest.fixture(scope="module")
def exports(job_folder):
    return find_exports([job_folder])


@pytest.fixture(scope="module")
def expected(exports):
    """What processes of this machine give."""
    return write_json(run_job(exports, Options(), silent, jobs=2).analysis)


@pytest.mark.slow
def test_a_cluster_gives_the_same_bytes(address, exports, expected):
    assert write_json(run_job(exports, Options(), silent, dask=address).analysis) == expected


@pytest.mark.slow
def test_what_cannot_be_analysed_is_said_in_the_same_words(address, job_folder, tmp_path, monkeypatch):
    shutil.copytree(job_folder, tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "run_rank3.sqlite", 9_000)
    monkeypatch.chdir(tmp_path)
    exports = find_exports([Path("cut")])
    one, other = (
        run_job(exports, Options(), silent, dask=dask, keep_going=True).analysis for dask in (None, address)
    )

    assert write_json(one) == write_json(other)


@pytest.mark.slow
def test_so_it_does_when_a_worker_is_killed_at_work(address, exports, expected):
    distributed = pytest.importorskip("distributed")
    with distributed.Client(address, set_as_default=False) as client:
        pids = client.run(os.getpid)
        killed = []

        def kill_one_at_work(_said):
            at_work = [worker for worker, tasks in client.processing().items() if tasks]
            if at_work and not killed:
                killed.append(pids[at_work[0]])
                os.kill(killed[0], signal.SIGKILL)

        found = run_job(exports, Options(), kill_one_at_work, dask=address).analysis

    assert killed
    assert write_json(found) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "said"),
    [(dies_once_later, "b"), (dies_always_later, "its workers were killed, time and again")],
    ids=["once", "always"],
)
def test_an_export_that_kills_its_workers_takes_nothing_with_it(address, tmp_path, one, said):
    paths = [tmp_path / name for name in "abcd"]
    found = [
        str(outcome) for _, outcome in sorted(analyze_on_cluster(address, paths, Options(), silent, one))
    ]

    assert [found[place] for place in (0, 2, 3)] == ["a", "c", "d"]
    assert said in found[1]


@pytest.mark.slow
def test_a_job_that_was_interrupted_goes_on_where_it_was(address, exports, expected, tmp_path):
    cache = Cache(tmp_path / "kept")

    def interrupt(said):
        if said.startswith("2 of"):
            raise KeyboardInterrupt

    def kept():
        return {entry.name: entry.stat().st_ino for entry in (cache.folder / EntryKind.ANSWERS).iterdir()}

    with pytest.raises(KeyboardInterrupt):
        run_job(exports, Options(), interrupt, dask=address, cache=cache)
    before = kept()
    found = run_job(exports, Options(), silent, dask=address, cache=cache).analysis

    assert len(before) >= 2
    assert before.items() <= kept().items()
    assert len(kept()) == RANKS
    assert write_json(found) == expected


@pytest.mark.slow
def test_a_cluster_that_stays_without_workers_is_given_up(exports, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="no Dask here: pip install distributed")
    monkeypatch.setattr(run, "_WORKERLESS_S", 1)
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0", silence_logs="CRITICAL") as empty,
        pytest.raises(OptionError, match=r"has had no worker for 1.000 s — start some, and run it again"),
    ):
        run_job(exports, Options(), silent, dask=empty.scheduler_address)


@pytest.mark.slow
def test_so_is_one_whose_last_worker_leaves(monkeypatch, tmp_path):
    distributed = pytest.importorskip("distributed", reason="no Dask here: pip install distributed")
    monkeypatch.setattr(run, "_WORKERLESS_S", 1)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
    ) as last:

        def leave(said):
            if said.startswith("1 of"):
                last.scale(0)

        paths = [tmp_path / str(n) for n in range(9)]
        coming = analyze_on_cluster(last.scheduler_address, paths, Options(), leave, takes_long)
        with pytest.raises(OptionError, match="has had no worker"):
            list(coming)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("nowhere", "is not an address of a scheduler — write tcp://HOST:PORT"),
        ("http://127.0.0.1:80", "is not an address of a scheduler"),
        ("tcp://127.0.0.1:1", "cannot be reached: .* — start the scheduler"),
        ("tcp://127.0.0.1:x", "is not an address of a scheduler"),
        ("odd.json", "is not an address of a scheduler"),
        ("scheduler.json", "cannot be reached: .* — start the scheduler"),
    ],
)
def test_an_address_without_a_cluster_is_said_in_a_line(exports, tmp_path, monkeypatch, named, said):
    pytest.importorskip("distributed", reason="no Dask here: pip install distributed")
    (tmp_path / "odd.json").write_text("[]")
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://127.0.0.1:1"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match=said) as told:
        run_job(exports, Options(), silent, dask=named)
    assert "\n" not in str(told.value)

import pytest

from fixtures.export import ExportWriter
from wallscope.errors import InputError
from wallscope.model.capture import Options
from wallscope.nsys import load
from wallscope.pipeline import analyze

GIB = 1 << 30
MEMINFO = "MemTotal: 8388608 kB\nMemAvailable: 2097152 kB\nSwapFree: 1048576 kB\nHugePages_Free: 0\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, [], id="nothing told"),
        pytest.param({"proc/meminfo": MEMINFO}, [3 * GIB], id="machine"),
        pytest.param(
            {
                "sys/fs/cgroup/memory.max": f"{4 * GIB}\n",
                "sys/fs/cgroup/memory.current": f"{3 * GIB}\n",
                "sys/fs/cgroup/memory.stat": f"anon 5\ninactive_file {GIB}\nactive_file 7\n",
            },
            [2 * GIB + 7],
            id="control group",
        ),
        pytest.param(
            {"sys/fs/cgroup/memory.max": "max\n", "sys/fs/cgroup/memory.current": "1\n"},
            [],
            id="control group without a limit",
        ),
        pytest.param(
            {
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{GIB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
                "sys/fs/cgroup/memory/memory.stat": "cache 9\ntotal_inactive_file 400\n",
            },
            [GIB - 600],
            id="control group of the first version",
        ),
    ],
)
def test_each_limit_leaves_its_room(files, expected, tmp_path):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert list(load.list_free_bytes(tmp_path)) == expected


def test_what_cannot_fit_is_refused_before_it_is_read(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        for number in range(10):
            writer.kernel("k", 1_000 * number, 1_000 * number + 500)
    monkeypatch.setattr(load, "list_free_bytes", lambda _: iter((2_000, GIB)))

    with pytest.raises(InputError, match=r"needs at least .* of memory, .* are left — raise the limit"):
        analyze(path, Options(), lambda _: None)

    monkeypatch.setattr(load, "list_free_bytes", lambda _: iter((6_000,)))
    assert analyze(path, Options(), lambda _: None).ranks


def test_rows_of_the_host_count_too(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        writer.kernel("k", 1_000, 1_500)
        switch = {"start": 5, "cpu": 1, "isSchedIn": 1, "globalTid": 7}
        writer.rows("SCHED_EVENTS", {name: [value] * 100 for name, value in switch.items()})
    monkeypatch.setattr(load, "list_free_bytes", lambda _: iter((13_000,)))

    with pytest.raises(InputError, match="needs at least"):
        analyze(path, Options(), lambda _: None)

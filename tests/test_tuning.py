import ctypes
import gc
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wallscope.process_tuning import tune_process

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_what_the_user_asks_of_the_allocator_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "dirty_decay_ms:7")
    tune_process()
    assert os.environ["_RJEM_MALLOC_CONF"] == "dirty_decay_ms:7"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lists the threads of a process")
def test_numpy_begins_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    told = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    program = f"from wallscope.process_tuning import tune_process; tune_process(); {told}"
    command = [sys.executable, "-c", program]

    assert int(subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout) == 1


@pytest.mark.slow
def test_freed_memory_is_kept_and_cycles_are_sought_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_RJEM_MALLOC_CONF", raising=False)
    gc.set_threshold(700, 10, 10)
    tune_process()
    assert "dirty_decay_ms:500" in os.environ["_RJEM_MALLOC_CONF"]
    assert gc.get_threshold()[0] > 50_000


SCRIPT = """
import os
from pathlib import Path
import numpy as np
from wallscope import process_tuning

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

process_tuning.tune_process()
process_tuning._MOST_KEPT_BYTES = process_tuning._SMALL_BYTES = {most_kept}
held = [np.ones(1 << 20) for _ in range(40)]  # of 8 MiB each
full = resident_mib()
held.clear()
kept = resident_mib()
process_tuning.release_memory()
print(full - kept, full - resident_mib())
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="only glibc from 2.33 on tells how much memory it keeps",
)
@pytest.mark.parametrize(("most_kept", "goes_back"), [(0, True), (1 << 40, False)], ids=["much", "little"])
def test_freed_memory_goes_back_where_it_is_much(most_kept: int, goes_back: bool) -> None:  # noqa: FBT001
    command = [sys.executable, "-c", SCRIPT.format(most_kept=most_kept)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    freed_mib, given_back_mib = map(int, told.split())

    assert freed_mib < 100
    assert (given_back_mib > 200) == goes_back

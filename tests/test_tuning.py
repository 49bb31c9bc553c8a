import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from wallscope import tuning
from wallscope.tuning import tune

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_what_the_user_asks_of_the_allocator_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_RJEM_MALLOC_CONF", "dirty_decay_ms:7")
    tune()
    assert os.environ["_RJEM_MALLOC_CONF"] == "dirty_decay_ms:7"


def test_freed_memory_is_kept_and_cycles_are_sought_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("_RJEM_MALLOC_CONF", raising=False)
    gc.set_threshold(700, 10, 10)
    tune()
    assert "dirty_decay_ms:2000" in os.environ["_RJEM_MALLOC_CONF"]
    assert gc.get_threshold()[0] > 50_000


def resident_mib() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE") // MIB


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallinfo2"),
    reason="only glibc from 2.33 on tells how much memory it keeps",
)
@pytest.mark.parametrize(("most_kept", "goes_back"), [(0, True), (1 << 40, False)], ids=["much", "little"])
def test_freed_memory_goes_back_where_it_is_much(
    monkeypatch: pytest.MonkeyPatch, *, most_kept: int, goes_back: bool
) -> None:
    monkeypatch.setattr(tuning, "_MOST_KEPT_BYTES", most_kept)
    monkeypatch.setattr(tuning, "_SMALL_BYTES", most_kept)
    tune()
    held = [np.ones(MIB) for _ in range(40)]  # of 8 MiB each
    full_mib = resident_mib()
    held.clear()
    kept_mib = resident_mib()
    tuning.give_back()

    assert kept_mib > full_mib - 100
    assert (resident_mib() < full_mib - 200) == goes_back

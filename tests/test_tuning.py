import gc
import os
from collections.abc import Iterator

import pytest

from wallscope.tuning import tune


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
    assert "dirty_decay_ms:5000" in os.environ["_RJEM_MALLOC_CONF"]
    assert gc.get_threshold()[0] > 50_000

import threading

import polars as pl
import pytest

from wallscope import process_tuning


@pytest.fixture(autouse=True)
def _four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: 4)


def test_what_is_found_stands_in_the_order_of_the_items() -> None:
    last_is_done = threading.Event()

    def halved(item: int) -> int:
        if item == 0:
            assert last_is_done.wait(10), "the last item never began while the first was held up"
        if item == 6:
            last_is_done.set()
        return item // 2

    assert process_tuning.run_side_by_side(halved, [0, 2, 4, 6]) == (0, 1, 2, 3)


def test_the_first_error_in_order_is_raised() -> None:
    def failing(item: int) -> int:
        if item:
            message = f"item {item}"
            raise ValueError(message)
        return item

    with pytest.raises(ValueError, match="item 1"):
        process_tuning.run_side_by_side(failing, [0, 1, 2])


@pytest.mark.parametrize("items", [[], [5]])
def test_few_items_need_no_thread(items: list[int]) -> None:
    found = process_tuning.run_side_by_side(lambda item: (item, threading.current_thread()), items)
    assert found == tuple((item, threading.main_thread()) for item in items)


@pytest.mark.parametrize("processors", [1, 4])
def test_both_are_done(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: processors)
    assert process_tuning.run_both(lambda: 1, lambda: "a") == (1, "a")


def test_what_the_second_raises_is_raised() -> None:
    def failing() -> int:
        raise ValueError("second")

    with pytest.raises(ValueError, match="second"):
        process_tuning.run_both(lambda: 1, failing)


@pytest.mark.parametrize("processors", [1, 4])
def test_what_is_asked_for_beside_each_other_is_made_once(
    monkeypatch: pytest.MonkeyPatch, processors: int
) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: processors)
    made = []

    def make() -> int:
        made.append(1)
        return 7

    once = process_tuning.Once(make)
    assert process_tuning.run_side_by_side(lambda item: item + once(), [1, 2, 3], ahead=[once]) == (8, 9, 10)
    assert made == [1]


def test_what_is_ahead_is_begun_before_anybody_asks() -> None:
    is_begun = threading.Event()
    once = process_tuning.Once(is_begun.set)

    def asking(_: int) -> None:
        assert is_begun.wait(10), "nobody began it"

    process_tuning.run_side_by_side(asking, [0, 1], ahead=[once])


@pytest.mark.parametrize("processors", [1, 4])
def test_whoever_asks_is_told_what_broke(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(pl, "thread_pool_size", lambda: processors)

    def failing() -> int:
        raise ValueError("broken")

    once = process_tuning.Once(failing)
    with pytest.raises(ValueError, match="broken"):
        process_tuning.run_side_by_side(lambda _: once(), [0, 1], ahead=[once])

"""Run independent work in parallel on the processors that polars may use.

Threads are used, not processes: all ranks share hundreds of megabytes of input, and polars, numpy and zlib
release the GIL.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Generic, TypeVar

import polars as pl

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Other = TypeVar("_Other")
_MOST_THREADS = 4
"""More would wait for Python's lock most of the time, and each holds tables of its own."""


def run_side_by_side(
    work: Callable[[_Item], _Found], items: Iterable[_Item], ahead: Iterable["Once[Any]"] = ()
) -> tuple[_Found, ...]:
    """What the work makes of each item, in their order; as if done one after the other.

    What all of it asks for at some time may be begun ahead of it.

    Raises:
        Exception: what the work raised first, in the order of the items.
    """
    waiting = tuple(items)
    threads = min(_MOST_THREADS, pl.thread_pool_size(), len(waiting))
    if threads <= 1:
        return tuple(work(item) for item in waiting)
    with ThreadPoolExecutor(threads) as pool:
        for once in ahead:
            pool.submit(once)
        return tuple(pool.map(work, waiting))


class Once(Generic[_Found]):
    """What is made when it is first asked for; who asks meanwhile waits for it."""

    def __init__(self, make: Callable[[], _Found]) -> None:
        self._make, self._lock = make, Lock()
        self._made: list[_Found] = []

    def __call__(self) -> _Found:
        """Return the result; computed on first use."""
        with self._lock:
            if not self._made:
                self._made.append(self._make())
            return self._made[0]


def run_both(first: Callable[[], _Found], second: Callable[[], _Other]) -> tuple[_Found, _Other]:
    """What two pieces of work make that need nothing of each other."""
    if pl.thread_pool_size() == 1:
        return first(), second()
    with ThreadPoolExecutor(1) as pool:
        second_result = pool.submit(second)
        return first(), second_result.result()

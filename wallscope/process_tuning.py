"""How the process uses memory and processors: an analysis makes large tables, uses them once and ends.

Memory that is returned to the system after each table comes back page by page, which took a seventh of the
time. It is therefore kept up to a limit. Python's garbage collector visits millions of objects that all
live to the end. OpenBLAS is not used, but its threads spin after numpy loads.

Independent work runs in parallel on the processors that polars may use. Threads are used, not processes:
all ranks share hundreds of megabytes of input, and polars, numpy and zlib release the GIL.
"""

import gc
import os
import sys
from collections.abc import Callable, Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # malloc.h of glibc
_LARGEST_TABLE_BYTES = 1 << 30
_PAD_BYTES = 64 << 20
_OF_ARENA = (
    "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
)  # fmt: skip
_POLARS = "_RJEM_MALLOC_CONF"
POLARS_THREADS = "POLARS_MAX_THREADS"
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_CYCLES_AFTER = 400_000
_MOST_KEPT_BYTES, _SMALL_BYTES = 128 << 20, 512 << 20
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")
_Other = TypeVar("_Other")
_MOST_THREADS = 4
"""More would wait for Python's lock most of the time, and each holds tables of its own."""


def tune_process() -> None:
    """Keep freed memory for the next table, run the garbage collector rarely, start no unused threads.

    Polars and numpy use it if they load later.
    """
    os.environ.setdefault(_POLARS, "dirty_decay_ms:500,narenas:1")
    os.environ.setdefault(_BLAS_THREADS, "1")
    collect_rarely()
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  # keeps --help fast

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _LARGEST_TABLE_BYTES)
            mallopt(_TRIM_THRESHOLD, _LARGEST_TABLE_BYTES)
            mallopt(_TOP_PAD, _PAD_BYTES)
            mallopt(_ARENA_MAX, 1)


def collect_rarely() -> None:
    """Seek cycles after so many new objects that most commands end before."""
    gc.set_threshold(_CYCLES_AFTER, 50, 100)


def release_memory() -> None:
    """Give memory that is kept for later back to the system where it is much, and all is large."""
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415

    class Arena(ctypes.Structure):
        """`struct mallinfo2`, malloc.h of glibc 2.33 and later."""

        _fields_ = tuple((name, ctypes.c_size_t) for name in _OF_ARENA)

    libc = ctypes.CDLL(None)
    read_arena = getattr(libc, "mallinfo2", None)
    if read_arena is None:
        return
    read_arena.restype = Arena
    arena = read_arena()
    if arena.fordblks > _MOST_KEPT_BYTES and arena.arena > _SMALL_BYTES:
        libc.malloc_trim(0)


def end_process() -> None:
    """Seek no cycles when Python ends, as it does twice over all that is left: the system takes back all."""
    gc.freeze()


def run_side_by_side(
    work: Callable[[_Item], _Found], items: Iterable[_Item], ahead: Iterable["Once[Any]"] = ()
) -> tuple[_Found, ...]:
    """What the work makes of each item, in their order; as if done one after the other.

    What all of it asks for at some time may be begun ahead of it.

    Raises:
        Exception: what the work raised first, in the order of the items.
    """
    waiting = tuple(items)
    threads = _make_threads(min(_MOST_THREADS, len(waiting)))
    if threads is None:
        return tuple(work(item) for item in waiting)
    with threads as pool:
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

    def forget(self) -> None:
        """Drop the result; it is computed again when it is needed."""
        with self._lock:
            self._made.clear()


def run_both(first: Callable[[], _Found], second: Callable[[], _Other]) -> tuple[_Found, _Other]:
    """What two pieces of work make that need nothing of each other."""
    threads = _make_threads(2)
    if threads is None:
        return first(), second()
    with threads as pool:
        second_result = pool.submit(second)
        return first(), second_result.result()


def _make_threads(most: int) -> "ThreadPoolExecutor | None":
    """Return so many threads as there are processors for, at the most; `None` if one is enough."""
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415  # keeps --help fast

    import polars as pl  # noqa: PLC0415  # has to load after the process is tuned

    count = min(most, pl.thread_pool_size())
    return ThreadPoolExecutor(count) if count > 1 else None

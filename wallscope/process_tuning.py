"""How the process manages memory and threads: an analysis makes large tables, uses them once and ends.

Memory that is returned to the system after each table comes back page by page, which took a seventh of the
time. It is therefore kept up to a limit. Python's garbage collector visits millions of objects that all live
to the end. OpenBLAS is not used, but its threads spin after numpy loads.
"""

import gc
import os
import sys

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8  # malloc.h of glibc
_LARGEST_TABLE_BYTES = 1 << 30
_PAD_BYTES = 64 << 20
_OF_ARENA = [
    "arena",
    "ordblks",
    "smblks",
    "hblks",
    "hblkhd",
    "usmblks",
    "fsmblks",
    "uordblks",
    "fordblks",
    "keepcost",
]
_POLARS = "_RJEM_MALLOC_CONF"
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_CYCLES_AFTER = 100_000
_MOST_KEPT_BYTES, _SMALL_BYTES = 128 << 20, 512 << 20


def tune_process() -> None:
    """Keep freed memory for the next table, run the garbage collector rarely, start no unused threads.

    Polars and numpy use it if they load later.
    """
    os.environ.setdefault(_POLARS, "dirty_decay_ms:2000,narenas:2")
    os.environ.setdefault(_BLAS_THREADS, "1")
    gc.set_threshold(_CYCLES_AFTER, 50, 100)
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415  # keeps --help fast

        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, _LARGEST_TABLE_BYTES)
            mallopt(_TRIM_THRESHOLD, _LARGEST_TABLE_BYTES)
            mallopt(_TOP_PAD, _PAD_BYTES)
            mallopt(_ARENA_MAX, 1)


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

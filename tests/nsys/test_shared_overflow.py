"""Records that share the pages of one long text take no more than the file could hold."""

import resource
import sqlite3
import subprocess
import sys

import pytest

from fixtures.export import ExportWriter
from tests.conftest import ROOT, slow

PAGE_BYTES, PER_PAGE = 4_096, 4_092
SMALL, ROWS, PAGES_MORE = 16_500, 600, 240


def varint(number):
    """Three bytes, as SQLite spells numbers from 2^14 to 2^21."""
    return bytes([128 | number >> 14, 128 | number >> 7 & 127, number & 127])


def share(path):
    """Let all long texts but the first be read from the pages of the longest one."""
    long = SMALL + PER_PAGE * PAGES_MORE
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO StringIds VALUES (100000, ?)", ("L" * long,))
        rows = [(200_000 + row, "S" * SMALL) for row in range(ROWS)]
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", rows)
    connection.close()
    raw = bytearray(path.read_bytes())
    first = raw.index(varint(13 + 2 * long) + b"L") + 3
    while raw[first] == ord("L"):
        first += 1
    head = int.from_bytes(raw[first : first + 4], "big")
    changed, at = 0, 0
    small = varint(13 + 2 * SMALL)
    while (at := raw.find(small, at + 1)) > 0:
        end = at + len(small)
        text = raw.find(b"S", end)
        if not 0 <= text - end <= 8:
            continue
        sizes = [SMALL + text - at + more for more in (1, 2, 3)]
        starts = [raw.rfind(varint(size), at - 16, at) for size in sizes]
        start, size = max(zip(starts, sizes, strict=True))
        if start < 0:
            continue
        raw[start : start + 3] = varint(size + PER_PAGE * PAGES_MORE)
        raw[at:end] = varint(13 + 2 * (SMALL + PER_PAGE * PAGES_MORE))
        while raw[text] == ord("S"):
            text += 1
        raw[text : text + 4] = head.to_bytes(4, "big")
        changed += 1
    path.write_bytes(raw)
    with sqlite3.connect(path) as connection:
        ((longest,),) = connection.execute("SELECT MAX(LENGTH(value)) FROM StringIds WHERE id >= 200000")
    connection.close()
    assert longest == long  # SQLite follows the shared pages
    return changed


@pytest.mark.parametrize("reader", ["pages", *slow("sqlite")])
def test_shared_pages_are_refused_before_they_fill_memory(tmp_path, reader):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        for row in range(ROWS):
            start = row * 1_000
            number = writer.call("cudaLaunchKernel", start, start + 100)
            name = {"demangledName": 200_000 + row, "shortName": 200_000 + row}
            writer.kernel("gemm", start + 200, start + 900, correlation=number, **name)
    assert share(path) > ROWS // 2
    assert path.stat().st_size < 16 << 20

    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    ran = subprocess.run(
        [sys.executable, "-m", "wallscope", "analyze", path, "--reader", reader],
        cwd=ROOT,
        capture_output=True,
        text=True,
        preexec_fn=limit,
        check=False,
    )
    assert ran.returncode == 2, ran.stdout[-300:] + ran.stderr[-500:]
    assert "its texts are longer than the file" in ran.stderr

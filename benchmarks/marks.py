"""Tables between marks in a document, and what they were measured on."""

import os
import platform
import sys
from pathlib import Path

_END = "<!-- end -->\n"


def surroundings(path: Path, runs: str) -> str:
    """The file, the machine and its load, and how it was run: figures mean nothing without."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"Export of {path.stat().st_size / 1e6:,.0f} MB, in the page cache; {os.cpu_count()} cores"
        f" ({platform.machine()}), {memory_gib:.0f} GiB; Python {platform.python_version()}; load average"
        f" {os.getloadavg()[0]:.1f} at the end. {runs}"
    )


def describe_rounds(rounds: int) -> str:
    """How processes were measured that run in turn."""
    return f"Each row was measured in {rounds} new processes; the order of the rows was random."


def put(document: Path | None, name: str, text: str) -> None:
    """Write a text between the marks of a name in a document, or on standard output.

    Raises:
        ValueError: the document has no such marks.
    """
    if document is None:
        sys.stdout.write(text)
        return
    mark = f"<!-- bench: {name} -->\n"
    before, begin, rest = document.read_text(encoding="utf-8").partition(mark)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{document} has no marks for {name}")
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")

"""An export of many gigabytes, and the bulk export inside of it: time and memory of whole commands.

python -m benchmarks.huge BULK.sqlite HUGE.sqlite --into docs/robustness.md
"""

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.commands import Way, measured
from benchmarks.marks import put, surroundings

_NAME = "huge"
_WALLSCOPE = (sys.executable, "-m", "wallscope")


def rows(bulk: Path, huge: Path, folder: Path) -> list[str]:
    """Each command on each file, as lines of a table."""
    page = ("--json", str(folder / "run.json"), "--html", str(folder / "run.html"))
    commands = {"info": (), "analyze --no-cache --json --html": ("--no-cache", *page)}
    lines = ["| command | size of the export | elapsed s | CPU s | peak MiB |", "|---|---:|---:|---:|---:|"]
    for name, options in commands.items():
        for path in (bulk, huge):
            ran = measured(Way((*_WALLSCOPE, name.split()[0], str(path), *options)))
            size = f"{path.stat().st_size / 1e9:.1f} GB"
            lines.append(f"| `{name}` | {size} | {ran.wall_s:.0f} | {ran.cpu_s:.0f} | {ran.pss_mib:,.0f} |")
    return lines


def main() -> None:
    """Write the table into a page, or print it."""
    parser = argparse.ArgumentParser(description="Time and memory of commands on a huge export.")
    parser.add_argument("bulk", type=Path)
    parser.add_argument("huge", type=Path)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lines = rows(options.bulk, options.huge, Path(folder))
    put(
        options.into,
        _NAME,
        "\n".join([*lines, "", surroundings(options.huge, "One new process per row."), ""]),
    )


if __name__ == "__main__":
    main()

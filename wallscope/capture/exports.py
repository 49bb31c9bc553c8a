"""Exports the reports of nsys next to them, so that every number can be checked with SQL."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

from wallscope.capture.plan import CapturePlan
from wallscope.model.capture import Profiler

_FLAGS = ("--type=sqlite", "--include-blobs=true", "--force-overwrite=true")


def export_reports(plan: CapturePlan, reports: Sequence[Path]) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Return what can be analyzed, and a line about each report that nsys cannot export.

    Traces of PyTorch need no export.
    """
    if plan.profiler is Profiler.TORCH or plan.nsys is None:
        return tuple(reports), ()
    taken, _ = plan.nsys.sort_flags(_FLAGS, "export")
    made: list[Path] = []
    failures: list[str] = []
    for report in reports:
        export = report.with_suffix(".sqlite")
        if not (export.is_file() and export.stat().st_mtime_ns >= report.stat().st_mtime_ns):
            ran = subprocess.run(  # noqa: S603  # no shell; nsys belongs to the user
                [plan.nsys.path, "export", *taken, f"--output={export}", str(report)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
            )
            if ran.returncode or not export.is_file():
                said = " ".join(ran.stderr.decode("utf-8", "replace").split())[-300:]
                failures.append(f"{report} — nsys cannot export it: {said or ran.returncode}")
                continue
        made.append(export)
    return tuple(made), tuple(failures)

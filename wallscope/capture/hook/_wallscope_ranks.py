"""Replaces the process of a rank by nsys, which runs the same command again: a report for each rank."""

from __future__ import annotations

import json
import os
import sys


def replace_process() -> None:
    """Run this process again under nsys. Its children are not replaced."""
    start = json.loads(os.environ.pop("WALLSCOPE_PER_RANK"))
    rank = os.environ["RANK"]
    os.environ["WALLSCOPE_REPORT"] = "rank-" + rank
    if "WALLSCOPE_SESSION" in os.environ:
        os.environ["WALLSCOPE_SESSION"] += "-rank-" + rank
    command = [part.replace("{RANK}", rank) for part in start]
    os.execv(command[0], [*command, sys.executable, *_read_arguments()[1:]])


def _read_arguments() -> list[str]:
    known = getattr(sys, "orig_argv", None)  # Python 3.10 and later
    if known is not None:
        return list(known)
    with open("/proc/self/cmdline", "rb") as file:
        return [os.fsdecode(part) for part in file.read().split(b"\0")[:-1]]

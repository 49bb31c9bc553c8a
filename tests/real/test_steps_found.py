"""Steps of all captures that others made: what marks them, and how much they cover, by the rows alone."""

import json
from functools import cache

import pytest

from tests.answered_once import write_json_once
from tests.conftest import run_part
from tests.real.answers import NEEDS_TRACES, ROOT, TRACES, rank_of
from tests.test_traces import EXPORTS, WITHOUT_DEVICE_OPERATIONS, plain_rows
from wallscope.thresholds.verdict import HIGH_CONFIDENCE_COVERED_SHARE

PAGE = ROOT / "docs" / "accuracy.md"
NAMES = [path.stem for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS]

pytestmark = NEEDS_TRACES


@cache
def answer(name):
    return json.loads(write_json_once(TRACES / f"{name}.sqlite"))


@cache
def covered(name):
    """The shares of kernel time, and of the time from first to last operation, inside the steady steps."""
    rank = rank_of(answer(name))
    path = TRACES / f"{name}.sqlite"
    own = [
        (start, end, kind)
        for (process, device), start, end, kind in plain_rows(path)
        if device == rank["device"] and (process is None or process >> 24 & 0xFFFFFF == rank["pid"])
    ]
    steady = [(step["start_ns"], step["end_ns"]) for step in rank["steps"] if step["steady"]]
    kernels = [(start, end) for start, end, kind in own if kind != "exposed_copy"]
    inside = sum(
        max(min(end, until) - max(start, begin), 0)
        for start, end in kernels
        for begin, until in joined(steady)
    )
    first, last = min(start for start, _, _ in own), max(end for _, end, _ in own)
    whole = (min(first, rank["steps"][0]["start_ns"]), max(last, rank["steps"][-1]["end_ns"]))
    run = sum(end - start for start, end in kernels)
    span = sum(until - begin for begin, until in steady) / (whole[1] - whole[0])
    return (inside / run if run else None), span


def joined(steps):
    """Adjacent steps as one."""
    found = []
    for begin, end in steps:
        if found and found[-1][1] == begin:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


@pytest.mark.parametrize("name", run_part(NAMES, name=str, of=9))
def test_the_stated_coverage_is_right(name):
    found = answer(name)
    stated, kind = found["scope"]["covered_share"], found["anchor"]["kind"]
    has_steps = kind != "whole-trace" and any(step["steady"] for step in rank_of(found)["steps"])

    if not has_steps or found["anchor"]["is_marked"]:
        assert stated is None
        return
    assert stated == pytest.approx(covered(name)[1], abs=1e-6)
    if stated < HIGH_CONFIDENCE_COVERED_SHARE:
        assert found["diagnosis"]["confidence"]["level"] != "high"


def list_steps():
    yield "| capture | steps | steady | found by | kernel time in steady steps | time in steady steps |"
    yield "|---|---:|---:|---|---:|---:|"
    for name in NAMES:
        found = answer(name)
        rank, anchor = rank_of(found), found["anchor"]
        if anchor["kind"] == "whole-trace":
            yield f"| `{name}` | none | | | | |"
            continue
        by = f"range `{anchor['name']}`" if anchor["name"] else anchor["kind"].replace("-", " ")
        steady = sum(step["steady"] for step in rank["steps"])
        kernels, span = covered(name)
        work = "" if kernels is None else f"{kernels:.1%}"
        yield f"| `{name}` | {len(rank['steps'])} | {steady} | {by} | {work} | {span:.1%} |"


def test_the_page_lists_the_steps(request):
    begin, end = "<!-- steps -->\n", "<!-- end of steps -->"
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    written = head + begin + "\n".join(list_steps()) + "\n" + end + rest.partition(end)[2]
    if request.config.getoption("--golden"):
        PAGE.write_text(written, encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == written

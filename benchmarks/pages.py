"""First paint, interaction times and size of pages in headless Chromium.

    python -m benchmarks.pages run.html

The first paint counts from the begin of the navigation. It is the median of some visits, next to that of an
empty page on the same machine. So is the CPU time of the main thread until then, which depends less on what
else runs. An interaction counts from the event until its handler returns; frames of the timeline are drawn 60
times while it zooms and moves.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

PAINT: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
VISITS: Final = 5
EMPTY: Final = "<!DOCTYPE html><html lang='en' data-ready='yes'><title>empty</title><p>empty</p></html>"
_TRACED: Final = [
    "loading",
    "blink.user_timing",
    "devtools.timeline",
    "disabled-by-default-devtools.timeline",
]
_READY: Final = "html[data-ready=yes]"
FRAMES: Final = """async () => {
  const canvas = document.getElementById("canvas"), frames = [];
  if (!canvas) return [0];
  for (let i = 0; i < 60; i++) {
    const key = i < 25 ? "ArrowUp" : i < 35 ? "ArrowRight" : "ArrowDown";
    canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    frames.push(Number(canvas.dataset.frame));
  }
  return frames;
}"""
INTERACTIONS: Final = """async () => {
  const times = {}, find = (id) => document.getElementById(id);
  const measure = async (name, act) => {
    const begun = performance.now();
    act();
    times[name] = performance.now() - begun;
    await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  };
  const change = (element, event) => element.dispatchEvent(new Event(event));
  const pick = (list, place) => { list.selectedIndex = place; change(list, "change"); };
  if (find("canvas")) {
    await measure("search", () => { find("find").value = "e"; change(find("find"), "input"); });
    await measure("longest gap", () => find("gap").click());
    await measure("other step", () => pick(find("step"), find("step").length - 1));
    await measure("compare", () => pick(find("other"), 1));
  }
  const sort = document.querySelector(".sort");
  if (sort) await measure("sort", () => sort.click());
  return times;
}"""


def main(pages: list[Path]) -> None:
    """Write a line for each page."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # for developers alone

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for page in pages:
            tab = browser.new_page(viewport={"width": 1400, "height": 900})
            tab.goto(page.resolve().as_uri())
            tab.wait_for_selector(_READY, state="attached")
            frames_ms, times_ms = sorted(tab.evaluate(FRAMES)), tab.evaluate(INTERACTIONS)
            listed = ", ".join(f"{name} {time_ms:.1f}" for name, time_ms in times_ms.items())
            p95_ms = frames_ms[int(0.95 * (len(frames_ms) - 1))]
            size = page.stat().st_size / 1e6
            tab.close()
            painted = _compare_paints(browser, page)
            sys.stdout.write(f"{page.name}: {size:.2f} MB, {painted}, frame p95 {p95_ms:.1f} ms, {listed}\n")
        browser.close()


def _compare_paints(browser: Any, page: Path) -> str:
    """Describe the first paint of a page, and of an empty one that is visited in turn with it."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty.html")
        empty.write_text(EMPTY, encoding="utf-8")
        visits = [[measure_visit(browser, path) for path in (page, empty)] for _ in range(VISITS)]
    (paint_ms, cpu_ms), (empty_ms, empty_cpu_ms) = (
        [median(values) for values in zip(*found, strict=True)] for found in zip(*visits, strict=True)
    )
    return (
        f"first paint {paint_ms:.0f} ms ({paint_ms / empty_ms:.1f} times an empty page), CPU until then"
        f" {cpu_ms:.0f} ms ({empty_cpu_ms:.0f} ms empty), load {os.getloadavg()[0]:.1f}"
    )


def measure_visit(browser: Any, page: Path) -> tuple[float, float]:
    """Return the first paint of a page and the CPU time of its main thread until then, in ms."""
    tab = browser.new_page(viewport={"width": 1400, "height": 900})
    browser.start_tracing(page=tab, categories=_TRACED)
    tab.goto(page.resolve().as_uri())
    tab.wait_for_selector(_READY, state="attached")
    tab.wait_for_function("performance.getEntriesByName('first-contentful-paint').length")
    paint_ms = tab.evaluate(PAINT)
    events = json.loads(browser.stop_tracing())["traceEvents"]
    tab.close()
    return paint_ms, _sum_cpu_ms(events)


def _sum_cpu_ms(events: Sequence[Mapping[str, Any]]) -> float:
    """Sum the CPU time of tasks of the thread that painted first, until it did."""
    painted = [event for event in events if event["name"] == "firstContentfulPaint"][-1]
    own = [
        event
        for event in events
        if (event["pid"], event["tid"]) == (painted["pid"], painted["tid"]) and event["ts"] < painted["ts"]
    ]
    begun = max(event["ts"] for event in own if event["name"] == "navigationStart")
    tasks = [event for event in own if event["name"].endswith("RunTask") and event["ts"] >= begun]
    return sum(float(event.get("tdur", 0)) for event in tasks) / 1_000


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m benchmarks.pages", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", type=Path, nargs="+", help="HTML files")
    main(parser.parse_args().pages)

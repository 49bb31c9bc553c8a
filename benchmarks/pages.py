"""First paint, interaction times and size of pages in headless Chromium.

    python -m benchmarks.pages run.html

The first paint counts from the begin of the navigation. An interaction counts from the event until its
handler returns; frames of the timeline are drawn 60 times while it zooms and moves.
"""

import argparse
import shutil
import sys
from pathlib import Path
from typing import Final

PAINT: Final = "Math.round(performance.getEntriesByName('first-contentful-paint')[0].startTime)"
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
            tab.wait_for_selector("html[data-ready=yes]", state="attached")
            paint_ms, frames_ms = tab.evaluate(PAINT), sorted(tab.evaluate(FRAMES))
            times_ms = tab.evaluate(INTERACTIONS)
            listed = ", ".join(f"{name} {time_ms:.1f}" for name, time_ms in times_ms.items())
            p95_ms = frames_ms[int(0.95 * (len(frames_ms) - 1))]
            size = page.stat().st_size / 1e6
            drawn = f"first paint {paint_ms} ms, frame p95 {p95_ms:.1f} ms"
            sys.stdout.write(f"{page.name}: {size:.2f} MB, {drawn}, {listed}\n")
            tab.close()
        browser.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m benchmarks.pages", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", type=Path, nargs="+", help="HTML files")
    main(parser.parse_args().pages)

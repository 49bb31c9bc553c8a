"""Pictures of pages for the README, from the shipped example, light and dark.

    python -m benchmarks.screenshots docs/images

The comparison is of the example with itself, reading token counts back for longer.
"""

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

from wallscope.compare.compare import CompareOptions, Side, compare_sides, comparison_report
from wallscope.compare.gates import parse_gate
from wallscope.demo import example
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options
from wallscope.pipeline import analyze_capture, build_report
from wallscope.views.comparison import write_comparison_page
from wallscope.views.page_analysis import write_analysis_page

_WIDTH, _HEIGHT = 1400, 900
_TIMELINE_HEIGHT = 606
"""Of the picture of the timeline: the lanes and the chain of the longest gap."""
_SLOWER_READ_NS = 300_000


def main(folder: Path) -> None:
    """Write the pictures into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        base, head = Path(scratch) / "moe-base.sqlite", Path(scratch) / "moe-head.sqlite"
        example.write_example(base)
        example.write_example(head, _SLOWER_READ_NS)
        options = Options()
        pages = {
            "report": write_analysis_page(build_report(analyze_capture(base, options, _nothing), _nothing)),
            "diff": _comparison(base, head, options),
        }
        for name, text in pages.items():
            (Path(scratch) / f"{name}.html").write_text(text, encoding="utf-8")
        _pictures(Path(scratch), folder)


def _comparison(base: Path, head: Path, options: Options) -> str:
    before, after = (Side(path.stem, resolve_runs((path,), options, _nothing)) for path in (base, head))
    asked = CompareOptions(gates=(parse_gate("step>3%"), parse_gate("communication>5%")))
    return write_comparison_page(
        comparison_report(compare_sides(before, after, asked), before, after, asked.rank)
    )


def _pictures(pages: Path, folder: Path) -> None:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  # for developers alone

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        for scheme in ("light", "dark"):
            context = browser.new_context(
                viewport={"width": _WIDTH, "height": _HEIGHT},
                color_scheme="light" if scheme == "light" else "dark",
            )
            tab = context.new_page()
            for name in ("report", "diff"):
                tab.goto((pages / f"{name}.html").as_uri())
                tab.wait_for_selector("html[data-ready=yes]", state="attached")
                tab.screenshot(path=folder / f"{name}-{scheme}.png")
            tab.goto((pages / "report.html").as_uri())
            tab.wait_for_selector("html[data-ready=yes]", state="attached")
            tab.locator("#timeline .tables summary").last.click()
            tab.click("#timeline [data-at]")
            tab.wait_for_timeout(500)  # the view moves to the gap
            _clip(tab, "#viewer", folder / f"timeline-{scheme}.png")
            context.close()
        browser.close()


def _clip(tab: Any, selector: str, path: Path) -> None:
    """Take a picture of the upper part of an element, which may be higher than the window."""
    box = tab.locator(selector).bounding_box()
    height = min(box["height"], _TIMELINE_HEIGHT)
    tab.screenshot(
        path=path, full_page=True, clip=box | {"y": box["y"] + tab.evaluate("scrollY"), "height": height}
    )


def _nothing(_: str) -> None:
    """No progress is told."""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        "python -m benchmarks.screenshots", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("folder", type=Path, help="where the pictures go")
    main(parser.parse_args().folder)

"""A page in headless Chromium, with all that the browser complained about and asked for."""

import os
import shutil
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: install Debian's package chromium"
)

AXE = Path(os.environ.get("AXE_CORE", "node_modules/axe-core/axe.min.js"))
needs_axe = pytest.mark.skipif(
    not AXE.is_file(), reason="no axe-core here: npm install axe-core, or name its axe.min.js in AXE_CORE"
)


class Tabs:
    """The tabs of a browser: a page loads four times faster in one that has loaded a page before."""

    def __init__(self, browser):
        self.browser = browser
        self.kept = {}

    def find(self, *, is_open_to_scripts: bool):
        if is_open_to_scripts not in self.kept:
            context = self.browser.new_context(accept_downloads=True, bypass_csp=is_open_to_scripts)
            self.kept[is_open_to_scripts] = context.new_page()
        return self.kept[is_open_to_scripts]


class Opened:
    """The page in a tab, loaded anew."""

    def __init__(self, tabs: Tabs, file: Path, width: int, scheme: str, *, is_open_to_scripts: bool = False):
        self.tab = tabs.find(is_open_to_scripts=is_open_to_scripts)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.listeners = {
            "console": lambda message: self.said.append(message.text),
            "pageerror": lambda error: self.said.append(str(error)),
            "request": lambda request: self.asked.append(request.url),
        }
        self.tab.goto("about:blank")  # nothing of the page before stays
        self.tab.set_viewport_size({"width": width, "height": 900})
        self.tab.emulate_media(color_scheme=scheme)
        for event, listen in self.listeners.items():
            self.tab.on(event, listen)
        self.tab.goto(file.as_uri())
        self.tab.wait_for_selector("html[data-ready=yes]", state="attached", timeout=60_000)

    def close(self):
        for event, listen in self.listeners.items():
            self.tab.remove_listener(event, listen)

    def unfold(self):
        """Open all that is folded, all tabs too, and pass the charts: they are drawn when they come near."""
        self.tab.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        self.tab.evaluate(
            "document.querySelectorAll('.tabpanel').forEach((panel) => { panel.hidden = false; })"
        )
        charts = self.tab.locator(".plot")
        for place in range(charts.count()):
            charts.nth(place).scroll_into_view_if_needed()
            charts.nth(place).locator("canvas").first.wait_for()

    def show(self, key: str):
        """Open a tab of the details, and what is folded in a part of the page."""
        self.tab.evaluate("key => { location.hash = key; }", key)
        self.tab.locator(f"#{key}").wait_for()
        self.tab.evaluate(
            "key => document.querySelectorAll(`#${key} details`).forEach((one) => { one.open = true; })", key
        )

    def is_quiet_and_whole(self, file: Path) -> bool:
        """Nothing complains or is fetched, every section is seen, nothing is wider than the screen."""
        sections = self.tab.locator("main > section")
        fetched = {url for url in self.asked if not url.startswith(("data:", "blob:"))}
        assert self.said == []
        assert fetched == {file.as_uri()}
        assert all(sections.nth(place).is_visible() for place in range(sections.count()))
        assert self.tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        return self.tab.evaluate(
            "window.hacked === undefined && !document.querySelector('a[href*=invalid], img')"
        )

    def violations(self) -> list[str]:
        """What axe-core finds wrong for people who do not see, hear or move like most."""
        self.tab.evaluate(AXE.read_text(encoding="utf-8"))
        found = self.tab.evaluate("axe.run()")["violations"]
        return [f"{entry['id']}: {entry['nodes'][0]['html'][:200]}" for entry in found]

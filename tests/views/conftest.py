"""What tests of pages share."""

import pytest

from tests.views.browsing import CHROMIUM, Tabs


@pytest.fixture(scope="session")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield Tabs(running)
        running.close()

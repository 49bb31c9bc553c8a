"""What Chromium alone can tell of the comparison's page."""

import pytest

from tests.profile.random_profiles import OPERATIONS
from tests.test_traces import TRACES
from tests.views.browsing import Opened, needs_axe, needs_chromium
from tests.views.comparison.test_comparison_page import GATES, HOSTILE, one, reported, steps
from wallscope.compare.compare import CompareOptions, Side, compare_sides, comparison_report
from wallscope.jobs.inputs import resolve_runs
from wallscope.model.capture import Options
from wallscope.views.comparison import write_comparison_page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    name = f"{HOSTILE} %{{x}} {'y' * 100_000}"
    named = (*OPERATIONS[:5], (name, "elementwise", name, None, None, None, "compute/elementwise"))
    head = one("b", steps(20, 1.1, seed=2), operations=named)
    path = tmp_path_factory.mktemp("browser") / "diff.html"
    report = reported(one("a", steps(20)), head, CompareOptions(gates=GATES), (name, "head.json"))
    path.write_text(write_comparison_page(report), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_complains_of_nothing_fetches_nothing_and_shows_all(browser, file, width, scheme):
    opened = Opened(browser, file, width, scheme)
    opened.unfold()
    is_whole = opened.is_quiet_and_whole(file)
    drawn = opened.tab.locator(".plot canvas[data-marks]").count()
    opened.close()

    assert is_whole
    assert drawn >= 2
    assert file.stat().st_size < 600_000


@pytest.mark.parametrize("width", [1400, 1024, 390])
def test_long_lengths_of_both_sides_stay_on_the_page_with_their_units(browser, file, width):
    opened = Opened(browser, file, width, "light")
    found = opened.tab.evaluate(
        """() => [...document.querySelectorAll(".big strong span")].map((part) => {
          part.textContent = part.textContent.replace(/[\\d.]+ \\S+/, "1,195.5 ms");
          return part;
        }).map((part) => [part.getBoundingClientRect().right <= innerWidth, part.getClientRects().length])"""
    )
    opened.close()

    assert found == [[True, 1], [True, 1]]


@needs_axe
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_nothing_stands_in_the_way_of_a_screen_reader(browser, file, width, scheme):
    opened = Opened(browser, file, width, scheme, is_open_to_scripts=True)
    opened.unfold()
    found = opened.violations()
    opened.close()

    assert found == []


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """Writes the page of a comparison of two captures."""
    folder = tmp_path_factory.mktemp("captured")

    def write(base, head):
        path = folder / f"{base}-{head}.html"
        files = [TRACES / f"{name}.sqlite" for name in (base, head)]
        sides = [Side(file.stem, resolve_runs((file,), Options(), lambda _: None)) for file in files]
        asked = CompareOptions()
        report = comparison_report(compare_sides(*sides, asked), *sides, asked.rank)
        path.write_text(write_comparison_page(report), encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("base", "head"),
    [
        ("nersc_sc21_baseline", "nersc_sc21_8workers"),
        ("nersc_sc22_4gpu_base", "nersc_sc22_4gpu_nobcast"),
        ("t4_streams_old", "t4_streams"),
    ],
)
def test_a_comparison_is_short_shows_every_step_and_its_waterfall(browser, captured, base, head):
    if not (TRACES / f"{base}.sqlite").is_file() or not (TRACES / f"{head}.sqlite").is_file():
        pytest.skip("../shared/traces has no such captures")
    path = captured(base, head)
    heights = {}
    for width, scheme in ((1400, "light"), (1024, "dark"), (390, "light")):
        opened = Opened(browser, path, width, scheme)
        heights[width] = opened.tab.evaluate("document.documentElement.scrollHeight")
        parts = [one.get_attribute("id") for one in opened.tab.locator("main > section").all()]
        is_fine = opened.is_quiet_and_whole(path)
        opened.close()
        assert is_fine
        assert parts == ["verdict", "steps", "causes", "details"]

    assert heights[1400] <= 2_450
    assert heights[390] <= 3_400
    assert path.stat().st_size < 400_000

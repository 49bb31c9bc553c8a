"""The page of a job of several exports in Chromium: ranks on one clock, and two of them side by side."""

import re

import pytest

from tests.jobs.simulated import LATE, RANKS, write_job
from tests.views.browsing import Opened, needs_axe, needs_chromium
from wallscope.jobs.inputs import find_exports
from wallscope.jobs.merge import job_report, run_job
from wallscope.model.capture import Options
from wallscope.units import milliseconds
from wallscope.views.page_analysis import write_analysis_page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = write_job(tmp_path_factory.mktemp("job") / "ranks")
    return run_job(find_exports([folder]), Options(), lambda _: None, with_timeline=True)


@pytest.fixture(scope="module")
def file(job, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "job.html"
    page = write_analysis_page(job_report(job.analysis, job.known, job.overviews))
    path.write_text(page, encoding="utf-8")
    return path


def rows_of(tab):
    found = tab.eval_on_selector_all(
        "#breakdown tr", "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return {cells[0]: cells[1:] for cells in found}


def test_all_ranks_of_a_step_have_a_column_with_the_times_of_that_step(browser, file, job):
    opened = Opened(browser, file, 1280, "light")
    opened.show("timeline")
    opened.tab.wait_for_selector("#breakdown table")
    rows = rows_of(opened.tab)
    shown = opened.tab.inner_text("#step option:checked")
    opened.tab.click("#canvas", position={"x": 400, "y": 32})
    told = opened.tab.inner_text("#told")
    opened.close()

    number = int(re.search(r"step (\d+):", shown)[1])
    compute = [rank.steps[number].walls.compute for rank in job.analysis.ranks]
    assert rows["attributed to"] == [f"{member.name} (ms)" for member in job.analysis.job.members]
    assert rows["compute"] == [milliseconds(time_ns).removesuffix(" ms") for time_ns in compute]
    assert compute.index(max(compute)) == LATE
    assert told.startswith("compute/gemm")
    assert opened.said == []


def test_two_ranks_are_compared_below_each_other(browser, file, job):
    opened = Opened(browser, file, 1280, "light")
    labels = opened.tab.eval_on_selector_all("#other optgroup", "(groups) => groups.map((one) => one.label)")
    values = [opened.tab.locator(f"#step optgroup:nth-of-type({2 + rank}) option").nth(3) for rank in (0, 1)]
    opened.show("timeline")
    opened.tab.select_option("#step", values[0].get_attribute("value"))
    opened.tab.select_option("#other", values[1].get_attribute("value"))
    opened.tab.locator("#breakdown caption", has_text="both").first.wait_for()
    rows = rows_of(opened.tab)
    is_shown = opened.tab.is_visible("#canvas-other")
    opened.close()

    assert len(labels) == RANKS
    assert is_shown
    assert [head.split(", ")[1] for head in rows["attributed to"][:2]] == [
        job.analysis.job.members[place].name
        for place in job.overviews.steps["place"].unique(maintain_order=True)[:2]
    ]
    assert len(rows["compute"]) == 3
    assert opened.said == []


@needs_axe
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_nothing_of_a_job_stands_in_the_way_of_a_screen_reader(browser, file, width, scheme):
    opened = Opened(browser, file, width, scheme, is_open_to_scripts=True)
    opened.unfold()
    found = opened.violations()
    is_fine = opened.is_quiet_and_whole(file)
    opened.close()

    assert found == []
    assert is_fine

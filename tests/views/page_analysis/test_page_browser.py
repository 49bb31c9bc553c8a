"""What Chromium alone can tell of the page: nothing complains, nothing is fetched, the timeline works."""

import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from benchmarks.pages import FRAMES, INTERACTIONS, measure_visit
from fixtures.export import ExportWriter
from tests.views.browsing import Opened, needs_axe, needs_chromium
from wallscope import units
from wallscope.demo.machine import SimulatedMachine
from wallscope.model.advice import Fix, Precondition, Setting
from wallscope.model.capture import Options
from wallscope.model.cause_catalogue import name_cause
from wallscope.model.enums import Wall
from wallscope.model.report import SHOWN_OPERATIONS
from wallscope.pipeline import analyze_capture, build_report
from wallscope.views.page_analysis import write_analysis_page

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=2>"
    "\u202e\u2028\x1b[31m{{7*7}} <a href='https://x.invalid/'>b</a> %{x} " + "y" * 100_000
)
pytestmark = needs_chromium


def write(path):
    with ExportWriter(path) as writer:
        writer.gpu()
        machine = SimulatedMachine(writer, pid=1000, device=0)
        main = machine.thread("python", start_ns=1_000_000)
        for number in range(6):
            with main.range(f"train_step {HOSTILE[:3_000]}"):
                main.launch(HOSTILE, 400_000, stream=7, call="cudaLaunchKernel", call_ns=5_000)
                main.work(100_000)
                main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000, stream=9)
                main.synchronize()
                main.work(50_000 + 90_000 * (number == 3))


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("browser") / "run.sqlite"
    write(path)
    found = analyze_capture(path, Options(step_range="train_step"), lambda _: None)
    return build_report(found, lambda _: None)


@pytest.fixture(scope="module")
def file(report, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "run.html"
    path.write_text(write_analysis_page(report), encoding="utf-8")
    return path


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["wide-light", "phone-dark"])
def opened(request, browser, file):
    found = Opened(browser, file, *request.param)
    yield found
    found.close()


def test_the_page_complains_of_nothing_fetches_nothing_and_shows_all(opened, file):
    opened.unfold()

    assert opened.is_quiet_and_whole(file)


def test_a_click_on_a_step_leads_into_the_timeline(browser, file, report):
    opened = Opened(browser, file, 1280, "light")
    tab = opened.tab
    drawn = [shown.step for shown in report.timelines]
    other = next(step.index for step in report.analysis.ranks[0].steps if step.index not in drawn)

    opened.show("steps")
    answer = tab.inner_text("#steps .answer")
    pattern = r"The slowest steady step\b.* In step \d+, host [\w (),]+ takes \S+ \S+ more\. "
    assert re.match(pattern, answer), answer
    tab.locator("#chart-steps").scroll_into_view_if_needed()
    tab.wait_for_selector("#chart-steps canvas[data-marks] >> visible=true")
    for step, said in ((drawn[1], f"step {drawn[1]}, "), (other, f"step {other}, low detail, ")):
        tab.evaluate("detail => dispatchEvent(new CustomEvent('wallscope-step', { detail }))", step)
        assert tab.inner_text("#told").startswith(f"Shows {said}")
    tab.evaluate("detail => dispatchEvent(new CustomEvent('wallscope-step', { detail }))", 999)
    assert tab.inner_text("#told") == "step 999 is not in this page. Choose one of the list."
    tab.locator("#steps button.jump", has_text=f"{drawn[0]}").first.click()
    assert tab.input_value("#step") == "0"
    tab.click("a[href='#upper-bound']")
    tab.locator("#upper-bound").wait_for()  # until it is visible
    opened.close()


def test_what_the_critical_path_does_not_go_through_turns_pale(browser, file):
    opened = Opened(browser, file, 1280, "light")
    tab = opened.tab
    canvas = "document.getElementById('canvas').toDataURL()"
    drawn = f"new Promise((done) => requestAnimationFrame(() => done({canvas})))"
    tab.locator("#canvas").scroll_into_view_if_needed()
    whole = tab.evaluate(drawn)
    tab.click("#onpath")

    assert tab.get_attribute("#onpath", "aria-pressed") == "true"
    assert tab.evaluate(drawn) != whole
    opened.close()


def test_search_zoom_and_gaps_work_from_the_keyboard(browser, file, report):
    opened = Opened(browser, file, 1280, "light")
    tab = opened.tab
    first = report.timelines[0].slices
    gap_ns = max(row["end_ns"] - row["start_ns"] for row in gaps_of(first))

    tab.fill("#find", "allreduce")
    tab.press("#find", "Enter")
    found = tab.inner_text("#found")
    chosen = tab.inner_text("#told")
    tab.focus("#canvas")
    for key in ("Home", "ArrowUp", "ArrowRight", "ArrowDown", "n", "p", "g"):
        tab.press("#canvas", key)
    told = tab.inner_text("#told")
    opened.close()

    assert found == "1 of 1"
    assert chosen.startswith("ncclDevKernel_AllReduce_Sum_f32_RING_LL\n300.0 µs at ")
    assert re.search(
        r"\nIssued by cudaLaunchKernel\w*, called \S+ µs before it began, correlation id \d+\n", chosen
    )
    assert f"Gap of {units.duration(gap_ns)}" in told
    assert opened.said == []


def test_a_row_of_the_gaps_leads_to_its_chain_in_the_timeline(browser, file, report):
    """The links are those of `wallscope gaps`: neighbours of one cause and one thing are one link."""
    shown = {timeline.step for timeline in report.timelines}
    longest = [group.longest for group in report.gaps]
    gaps = [gap for gap in longest if gap.row["step"] in shown]
    opened = Opened(browser, file, 1280, "light")
    told, answers = [], []
    opened.show("timeline")
    opened.tab.evaluate("document.querySelectorAll('table').forEach((one) => one.classList.add('expanded'))")
    for place, gap in enumerate(longest):
        opened.tab.locator("#timeline table [data-at]").nth(place).click()
        answers.append(opened.tab.inner_text("#told"))
        if gap.row["step"] in shown:
            told.append(opened.tab.locator("#told li").all_inner_texts())
    leading = opened.tab.locator("#timeline table [data-at]").count()
    opened.close()

    assert leading == len(longest) > 0
    assert all(
        "low detail" in text
        for text, gap in zip(answers, longest, strict=True)
        if gap.row["step"] not in shown
    )
    expected = [
        [
            f"{units.duration(one.end_ns - one.start_ns)} {name_cause(one.cause)}{': ' if one.what else ''}"
            for one in gap.links
        ]
        for gap in gaps
    ]
    assert list(map(len, told)) == list(map(len, expected))
    assert all(
        line.startswith(begin)
        for lines, begins in zip(told, expected, strict=True)
        for line, begin in zip(lines, begins, strict=True)
    )


def gaps_of(slices):
    """Neighbouring slices without compute, one row a gap."""
    found = []
    for row in slices.iter_rows(named=True):
        if row["state"] in {"compute", "opaque_graph"}:
            continue
        if found and found[-1]["end_ns"] == row["start_ns"]:
            found[-1]["end_ns"] = row["end_ns"]
        else:
            found.append({"start_ns": row["start_ns"], "end_ns": row["end_ns"]})
    return found


def test_a_click_into_the_band_names_the_cause_and_the_other_step_can_be_chosen(browser, file, report):
    opened = Opened(browser, file, 1280, "dark")
    tab = opened.tab
    tab.select_option("#step", index=len(report.timelines) - 1)
    tab.locator("#canvas").click(position={"x": 600, "y": 34})
    told = tab.inner_text("#told").split("\n")[0]
    opened.close()

    causes = set(map(name_cause, report.timelines[-1].slices["cause"]))
    assert len(report.timelines) == 2
    assert re.match(r"\w+: (.+?) [\d.]+ \w+ at \d+\.\d{9} s, device: ", told).group(1) in causes


@pytest.mark.slow
def test_two_hundred_thousand_operations_stay_fluent(browser, report, tmp_path):
    """A frame takes under 100 ms at p95, from the whole step down to single kernels and back."""
    many, length_ns = 200_000, 1_000
    start = pl.int_range(many, eager=True) * length_ns
    spans = {"start_ns": start, "end_ns": start + 700}
    told = report.timelines[0]
    timeline = replace(
        told,
        start_ns=0,
        end_ns=many * length_ns,
        operations=pl.DataFrame(
            {**spans, "lane": "stream 7", "name": "kernel", "what": "gemm", "wall": "compute"}
            | {"call": "cudaLaunchKernel", "call_start_ns": start - 5_000, "path": "train_step"}
        )
        .with_columns(correlation=pl.int_range(many))
        .cast(SHOWN_OPERATIONS)
        .select(SHOWN_OPERATIONS.names()),
        calls=told.calls.clear(),
        ranges=told.ranges.clear(),
        slices=told.slices.head(1).with_columns(start_ns=0, end_ns=many * length_ns),
    )
    path = tmp_path / "large.html"
    path.write_text(write_analysis_page(replace(report, timelines=(timeline,))), encoding="utf-8")
    times: dict[str, float] = {}
    for _ in range(2):  # the quicker of two: other programs share the machine
        opened = Opened(browser, path, 1280, "light")
        frames, measured = opened.tab.evaluate(FRAMES), opened.tab.evaluate(INTERACTIONS)
        opened.close()
        times = {name: min(took, times.get(name, took)) for name, took in measured.items()}

    cpu_ms = min(measure_visit(browser.browser, path)[1] for _ in range(3))

    assert path.stat().st_size < 3_500_000
    assert cpu_ms <= 100  # until the first paint
    assert len(frames) == 60
    assert sorted(frames)[56] < 100
    assert times.keys() >= {"search", "longest gap", "other step", "compare", "sort"}
    assert max(times.values()) < 100


def test_a_long_operation_that_begins_in_the_pixel_of_a_short_one_is_drawn(browser, report, tmp_path):
    length_ns = 100_000_000
    told = report.timelines[0]
    spans = pl.DataFrame({"start_ns": [0, 1_000], "end_ns": [500, length_ns - 1_000]})
    timeline = replace(
        told,
        start_ns=0,
        end_ns=length_ns,
        operations=spans.with_columns(
            lane=pl.lit("stream 7"),
            name=pl.lit("kernel"),
            what=pl.lit("gemm"),
            wall=pl.lit("compute"),
            call=pl.lit("cudaLaunchKernel"),
            call_start_ns=pl.lit(0),
            correlation=pl.lit(1),
            path=pl.lit("step"),
        )
        .select(SHOWN_OPERATIONS.names())
        .cast(SHOWN_OPERATIONS),
        calls=told.calls.clear(),
        ranges=told.ranges.clear(),
        path=told.path.clear(),
        slices=told.slices.head(1).with_columns(start_ns=0, end_ns=length_ns),
    )
    path = tmp_path / "long.html"
    page = write_analysis_page(replace(report, timelines=(timeline,), overviews=None))
    path.write_text(page, encoding="utf-8")
    opened = Opened(browser, path, 1280, "light")
    opened.tab.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )
    pixel = opened.tab.evaluate(
        "() => [...document.getElementById('canvas').getContext('2d').getImageData(700, 62, 1, 1).data]"
    )
    opened.close()

    assert pixel[:3] == [0, 0x72, 0xB2]


def test_printing_unfolds_all_in_light_colours_and_folds_again(browser, file):
    opened = Opened(browser, file, 1280, "dark")
    tab = opened.tab
    folded = "document.querySelectorAll('.tabpanel[hidden]').length"
    ink = "getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()"
    before = tab.evaluate(folded)
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    printed = (tab.evaluate(folded), tab.evaluate(ink))
    widths = tab.evaluate(
        "[...document.querySelectorAll('.plot canvas, #canvas')].map((one) => one.clientWidth)"
    )
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    after = (tab.evaluate(folded), tab.evaluate(ink))
    opened.close()

    assert before > 0
    assert printed == (0, "#000")
    assert after == (before, "#e8ebee")
    assert max(widths) <= 703  # A4 less its margins, at 96 dots an inch


def test_a_table_is_saved_as_csv_without_formulas(browser, file, report):
    opened = Opened(browser, file, 1280, "light")
    opened.show("steps")
    with opened.tab.expect_download() as download:
        opened.tab.click("#steps [data-csv=save]")
    lines = Path(download.value.path()).read_text(encoding="utf-8").splitlines()
    opened.close()

    assert lines[0].startswith("step,start (s),length (ms),compute (ms)")
    assert len(lines) == 1 + len(report.analysis.ranks[0].steps)


@needs_axe
@pytest.mark.parametrize(
    ("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]
)
def test_nothing_stands_in_the_way_of_a_screen_reader(browser, file, width, scheme):
    opened = Opened(browser, file, width, scheme, is_open_to_scripts=True)
    opened.unfold()
    opened.tab.select_option("#other", "1")
    opened.tab.press("#canvas", "b")
    opened.tab.wait_for_timeout(250)
    found = opened.violations()
    opened.close()

    assert found == []


def test_a_table_shows_ten_rows_expands_sorts_and_filters(browser, report, tmp_path):
    """Eleven steps of different lengths; the order is by the exact nanoseconds, not by the text."""
    (rank,) = report.analysis.ranks
    steps = tuple(
        replace(rank.steps[0], index=place, end_ns=rank.steps[0].start_ns + (place * 7) % 11 + 1_000_000)
        for place in range(11)
    )
    shown = replace(report, analysis=replace(report.analysis, ranks=(replace(rank, steps=steps),)))
    path = tmp_path / "rows.html"
    path.write_text(write_analysis_page(shown), encoding="utf-8")
    opened = Opened(browser, path, 1280, "light")
    opened.show("steps")
    table = "#steps table.data"
    visible = f"{table} tbody tr:visible"
    first = f"{table} tbody tr:first-child td:first-child"
    before = opened.tab.locator(visible).count()
    opened.tab.click("#steps .expander")
    expanded = opened.tab.locator(visible).count()
    length = f"{table} th:nth-child(3)"
    told = []
    for _ in range(3):
        opened.tab.click(f"{length} .sort")
        told.append((opened.tab.get_attribute(length, "aria-sort"), opened.tab.inner_text(first)))
    opened.tab.fill("#steps .filter", "no: ")
    matching = opened.tab.locator(visible).count()
    counted = opened.tab.inner_text("#steps .counted")
    opened.close()

    lengths = [step.end_ns - step.start_ns for step in steps]
    assert (before, expanded) == (10, 11)
    assert told == [
        ("descending", str(lengths.index(max(lengths)))),
        ("ascending", str(lengths.index(min(lengths)))),
        (None, "0"),
    ]
    assert matching == sum(not step.steady for step in steps)
    assert counted == f"{matching} of 11 rows match"


def read_breakdown(tab):
    """The rows of the time breakdown below the timeline: name, then the cells."""
    tab.evaluate("document.getElementById('view').open = true")
    tab.wait_for_timeout(250)
    rows = tab.locator("#breakdown table").first.locator("tbody tr")
    return {row.split("\t")[0]: row.split("\t")[1:] for row in rows.all_inner_texts()}


def test_a_selected_range_has_its_own_time_breakdown(browser, file, report):
    """The whole step has the walls of its row in the answer; a part has those of its slices."""
    opened = Opened(browser, file, 1280, "light")
    tab = opened.tab
    told = report.timelines[0]
    whole = read_breakdown(tab)
    box = tab.locator("#canvas").bounding_box()
    tab.click("#select")
    tab.locator("#canvas").scroll_into_view_if_needed()
    box = tab.locator("#canvas").bounding_box()
    tab.mouse.move(box["x"] + 500, box["y"] + 70)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 700, box["y"] + 70, steps=3)
    tab.mouse.up()
    part = read_breakdown(tab)
    first_ns, last_ns = map(int, tab.get_attribute("#breakdown", "data-of").split())
    tab.click("#to-selection")
    zoomed = read_breakdown(tab)
    tab.press("#canvas", "Escape")
    tab.press("#canvas", "Home")
    again = read_breakdown(tab)
    opened.close()

    (step,) = (one for one in report.analysis.ranks[0].steps if one.index == told.step)
    ms = {
        str(wall): units.milliseconds(ns).removesuffix(" ms")
        for wall, ns in zip(Wall, step.walls.parts(), strict=True)
    }
    length = pl.min_horizontal("end_ns", told.start_ns + last_ns) - pl.max_horizontal(
        "start_ns", told.start_ns + first_ns
    )
    sums = dict(
        told.slices.with_columns(ns=length.clip(0)).group_by("wall").agg(pl.col("ns").sum()).iter_rows()
    )
    assert 0 < first_ns < last_ns < told.end_ns - told.start_ns
    assert {wall: whole[wall][0] for wall in ms} == ms
    assert again == whole
    assert part == zoomed
    for wall in ms:
        assert float(part[wall][0]) == pytest.approx(sums.get(wall, 0) / 1e6, abs=0.051)


def test_two_steps_are_compared_below_each_other(browser, file, report):
    opened = Opened(browser, file, 1280, "light")
    tab = opened.tab
    (rank,) = report.analysis.ranks
    base = next(step for step in rank.steps if step.index == report.timelines[0].step)
    head = next(step for step in rank.steps if step.walls.host > base.walls.host + 60_000)
    number = tab.eval_on_selector_all(
        "#other option", f"all => all.find((one) => one.text.startsWith('step {head.index}: ')).value"
    )
    tab.select_option("#other", number)
    rows = read_breakdown(tab)
    named = tab.inner_text("#other-name")
    is_shown = tab.locator("#canvas-other").is_visible()
    tab.select_option("#other", "-1")
    is_gone = not tab.locator("#canvas-other").is_visible()
    opened.close()

    def ms(ns):
        return units.milliseconds(ns).removesuffix(" ms")

    assert named.startswith(f"Below: step {head.index}, low detail, ")
    assert (is_shown, is_gone) == (True, True)
    assert rows["host"] == [
        ms(base.walls.host),
        ms(head.walls.host),
        units.signed_milliseconds(head.walls.host - base.walls.host).removesuffix(" ms"),
    ]


def test_a_cause_of_a_table_is_found_in_the_timeline(browser, file):
    opened = Opened(browser, file, 1280, "light")
    opened.show("causes")
    button = opened.tab.locator("#causes [data-find]").first
    cause = button.inner_text()
    button.click()
    searched, told = opened.tab.input_value("#find"), opened.tab.inner_text("#told")
    opened.close()

    assert searched == cause
    assert name_cause(cause) in told


@pytest.mark.slow
def test_long_names_in_recommendations_stay_inside_the_screen(browser, report, tmp_path):
    """Settings, evidence and preconditions can hold names without a place to break."""
    name = "split_embedding_backward_codegen_rowwise_adagrad_" * 6
    fix = Fix(
        id="one",
        title=f"Replace {name}",
        wall=Wall.HOST,
        causes=("host/framework",),
        why=name,
        settings=(Setting("pytorch", name, "1"), Setting("environment", name, "2")),
        preconditions=(Precondition("p", name, "unmet", name),),
        blocked=True,
        recoverable_ns=None,
        speedup_ceiling=None,
        expected_gain=None,
        caveats=(name,),
        verify=name,
        source=name,
        evidence=(name,),
    )
    path = tmp_path / "long.html"
    advised = replace(report, analysis=replace(report.analysis, fixes=(fix,)))
    path.write_text(write_analysis_page(advised), encoding="utf-8")
    for width in (390, 1280):
        opened = Opened(browser, path, width, "light")
        opened.unfold()
        assert opened.is_quiet_and_whole(path)
        opened.close()

"""The page as text: what stands in it, and that nothing in an export can get out of its place."""

import io
import json
import re
import zlib
from base64 import b64decode
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from rich.console import Console

from fixtures.export import ExportWriter
from wallscope import units
from wallscope.attribution.attribute import HELD_WHILE_IDLE
from wallscope.demo.machine import SimulatedMachine
from wallscope.model.advice import ExpectedGain, Fix, Precondition, Setting
from wallscope.model.capture import Finding, Options, Severity
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import StepMode, UnknownWall
from wallscope.model.enums import Wall
from wallscope.model.report import Report
from wallscope.pipeline import analyze_capture, build_report
from wallscope.render.timeline_pack import pack_timelines
from wallscope.views.cards import build_card
from wallscope.views.first_screen import render_first_screen
from wallscope.views.page_analysis import write_analysis_page
from wallscope.views.statement import state_analysis
from wallscope.views.verdict import describe_worst_step

HOSTILE = (
    "evil</script><script>alert(1)</script>\x1b[31m\r\n::set-output name=x::y\u202e\u2028"
    "'\"><img src=https://x.invalid/i onerror=alert(2)> | `a` {{ 7*7 }} <a href='https://x.invalid'>b</a>"
)


def write(path, name="gemm_kernel", range_text="train_step", *, steps=6, slow_ns=0):
    """Steps of a kernel and a collective; each second step also has host work of `slow_ns`."""
    with ExportWriter(path) as writer:
        writer.gpu()
        machine = SimulatedMachine(writer, pid=1000, device=0)
        main = machine.thread("python", start_ns=1_000_000)
        for number in range(steps):
            with main.range(range_text):
                main.launch(name, 400_000, stream=7, call="cudaLaunchKernel", call_ns=5_000)
                main.work(100_000)
                main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000, stream=7)
                main.synchronize()
                main.work(50_000 + slow_ns * (number % 2))


def reported(path, step_range=None):
    options = Options(step_range=step_range)
    return build_report(analyze_capture(path, options, lambda _: None), lambda _: None)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.sqlite"
    write(path)
    return reported(path)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "run.sqlite"
    write(path, HOSTILE, f"train_step {HOSTILE}")
    return write_analysis_page(reported(path, "train_step"))


def elements(text):
    found = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(text)
    return found


def unpacked(text):
    """The heads and columns of a pack, read as the page reads them."""
    raw = zlib.decompress(b64decode(text))
    size = int.from_bytes(raw[:4], "little")
    head = json.loads(raw[4 : 4 + size])
    planes = np.frombuffer(raw[4 + size :], np.uint8).reshape(4, -1).astype(np.int64)
    numbers = (planes << np.array([[0], [8], [16], [24]])).sum(axis=0)
    return head, np.split(numbers, np.cumsum(head["lengths"])[:-1])


def find_starts(gap, length):
    """The starts of a lane, from the gaps between its rows and their lengths."""
    return (np.cumsum(gap) + np.cumsum(length) - length) % 2**32


def test_the_page_is_the_same_bytes_twice(report):
    assert write_analysis_page(report) == write_analysis_page(report)


def test_numbers_of_the_first_screen_are_those_of_the_answer(report):
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    legend = write_analysis_page(report).partition('class="legend"')[2].partition("</dl>")[0]
    rows = re.findall(r"<dt>.*?</span>(\w+).*?</dt><dd><b>(.*?)</b> (.*?)(?: <small>.*?)?</dd>", legend)

    assert [(wall, unescape(time), unescape(share)) for wall, share, time in rows] == [
        (str(wall), units.duration(part), units.percent(part / rank.typical.step_ns))
        for wall, part in zip(Wall, rank.typical.walls.parts(), strict=True)
        if part
    ]


def list_parts(text):
    """The sections of the overview, and the tabs below it with how many entries they name."""
    found = elements(text)
    sections = [attributes["id"] for tag, attributes in found if tag == "section"]
    tabs = re.findall(r'id="tab-([a-z]+)"[^>]*>[\w ]+?(?: <small>(\d+)</small>)?</button>', text)
    return sections, {key: int(count) if count else None for key, count in tabs}


def test_the_overview_has_few_parts_and_the_rest_is_in_tabs(report):
    sections, tabs = list_parts(write_analysis_page(report))

    assert sections == ["verdict", "timeline", "light", "phases", "details"]
    assert list(tabs)[:6] == ["kernels", "compute", "causes", "communication", "host", "memory"]
    assert list(tabs)[6:] == ["steps", "path", "limits", "computed"]


def test_the_navigation_leads_to_each_part_and_tabs_count_their_entries(report):
    text = write_analysis_page(report)
    linked = re.findall(r'<a href="#([\w-]+)">', text.partition("<nav")[2].partition("</nav>")[0])
    sections, tabs = list_parts(text)

    assert [key for key in linked if key != "recommendations"] == sections
    assert {key: count for key, count in tabs.items() if count} == {
        "steps": len(report.analysis.ranks[0].steps),
        "limits": len(report.analysis.capture.findings),
    }


def test_every_link_inside_the_page_has_its_target(report):
    found = elements(write_analysis_page(report))
    targets = {attributes["id"] for _, attributes in found if "id" in attributes}
    links = {attributes["href"][1:] for tag, attributes in found if tag == "a"}

    assert links - targets == set()
    assert [link for link in links if link.startswith("word-")]


def told_by(report, **changed):
    analysis = replace(report.analysis, diagnosis=replace(report.analysis.diagnosis, **changed))
    text = unescape(re.sub(r"<[^>]+>", " ", write_analysis_page(replace(report, analysis=analysis))))
    return re.sub(r"\s+", " ", text)


@pytest.mark.parametrize(
    ("dominant", "said"),
    [
        ("host", "Compute is useful work, so the dominant wall is the largest of the other parts."),
        ("compute", "Every other wall is too small to be the dominant one."),
        ("mixed", None),
        ("unknown", None),
    ],
)
def test_the_bar_says_why_the_wall_need_not_be_its_largest_part(report, dominant, said):
    told = told_by(report, dominant_wall=dominant)

    every = ("Compute is useful work", "Every other wall is too small")
    assert [each for each in every if each in told] == [each for each in every if said and each in said]
    assert said is None or said in told


def test_the_worst_step_comes_first_in_the_words_of_the_verdict(report):
    (rank,) = report.analysis.ranks
    worst = next(step for step in rank.steps if step.steady)
    longer_ns = 10 * (worst.end_ns - worst.start_ns)
    walls = replace(worst.walls, host=worst.walls.host + longer_ns)
    stalled = replace(worst, end_ns=worst.end_ns + longer_ns, walls=walls)
    steps = tuple(stalled if step is worst else step for step in rank.steps)
    analysis = replace(report.analysis, ranks=(replace(rank, steps=steps),))
    (sentence,) = describe_worst_step(analysis.ranks[0], "step")
    text = unescape(re.sub(r"<[^>]+>", " ", write_analysis_page(replace(report, analysis=analysis))))
    told = (
        re.sub(r"\s+", " ", text).partition(" Time breakdown of each window")[0].rpartition(" Steps The")[2]
    )

    assert sentence.startswith(f"The slowest steady step ({worst.index}) takes ")
    assert told.startswith(f"{sentence.removeprefix('The')} 5 steady steps of 6")


def test_a_step_that_lost_more_to_memory_than_the_typical_one_is_named(report):
    (rank,) = report.analysis.ranks
    (step, *others) = (each for each in rank.steps if each.steady)
    lost = replace(step, walls=replace(step.walls, memory=2_400_000))
    shown = replace(report, analysis=replace(report.analysis, ranks=(replace(rank, steps=(lost, *others)),)))

    assert (
        f"Memory takes 2.4 ms in step {step.index}, more than in any other step, and 0 ns in the"
        in write_analysis_page(shown)
    )
    assert "Memory takes" not in write_analysis_page(report)


def test_nothing_on_the_page_asks_for_another_file(report):
    loading = [
        value
        for _, attributes in elements(write_analysis_page(report))
        for name, value in attributes.items()
        if name in {"src", "href", "srcset", "action", "poster"} and not value.startswith(("#", "data:"))
    ]

    assert loading == []
    assert "default-src 'none'" in unescape(write_analysis_page(report))


def test_hostile_names_stay_text(hostile, report):
    def shape(text):
        return {tag for tag, _ in elements(text)}

    scripts = [attributes for tag, attributes in elements(hostile) if tag == "script"]
    others = [attributes for tag, attributes in elements(write_analysis_page(report)) if tag == "script"]

    assert shape(hostile) <= shape(write_analysis_page(report))
    assert scripts == others
    assert not any(name.startswith("on") for _, attributes in elements(hostile) for name in attributes)
    assert "&lt;script&gt;" in hostile
    assert not set("\x1b\u202e\u2028\r") & set(hostile)


def test_figures_hold_no_markup_of_names(hostile):
    specs = re.findall(r'data-chart="[\w-]+">(.*?)</script>', hostile)
    tags = {tag for spec in map(json.loads, specs) for tag in re.findall(r"<(\w+)", json.dumps(spec))}

    assert len(specs) == 5
    assert tags <= {"br", "extra"}


def test_slices_of_a_timeline_tile_its_step_and_add_up_to_its_walls(report):
    head, columns = unpacked(pack_timelines(report.timelines).base64)
    step = head["steps"][0]
    streams = sum(lane["kind"] == "stream" for lane in step["lanes"])
    gap, length, wall = columns[5 * len(step["lanes"]) + 4 * streams :][:3]
    (told,) = (entry for entry in report.analysis.ranks[0].steps if entry.index == step["step"])

    assert not gap.any()
    assert [int(length[wall == place].sum()) for place in range(5)] == list(told.walls.parts())


def test_the_critical_path_tiles_its_step_in_its_lane(report):
    head, columns = unpacked(pack_timelines(report.timelines).base64)
    step = head["steps"][0]
    assert (step["lanes"][0]["kind"], step["lanes"][0]["lane"]) == ("path", "critical path")
    gap, length, _, _, wall = columns[:5]

    assert 0 <= gap[0] < 0.02 * step["length"]  # it begins with the first compute kernel
    assert not gap[1:].any()
    assert gap[0] + int(length.sum()) == step["length"]
    assert {str(list(Wall)[place]) for place in set(wall)} == {
        part.name for part in report.path.critical.walls
    }


def test_each_bar_of_the_path_is_the_step(report):
    (spec,) = re.findall(r'data-chart="chart-path">(.*?)</script>', write_analysis_page(report), re.DOTALL)
    for kind in ("walls", "causes", "ranges", "operations"):
        parts_ms = sorted(
            (begin, length)
            for trace in json.loads(spec)["traces"]
            for bar, begin, length in zip(trace["y"], trace["base"], trace["x"], strict=True)
            if bar == kind
        )
        ends_ms = [begin + length for begin, length in parts_ms]
        assert [begin for begin, _ in parts_ms] == pytest.approx([0, *ends_ms[:-1]])
        assert ends_ms[-1] == pytest.approx(report.path.critical.step_ns / 1e6)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        pytest.param("two steps hold too much", "Not known: two steps hold too much.", id="why"),
        pytest.param("", None, id="nothing to say"),
    ],
)
def test_a_path_that_is_not_known_says_why(report, path, said):
    text = write_analysis_page(replace(report, path=path))

    assert ('<div id="path"' in text) is (said is not None)
    assert said is None or said in text


def test_a_timeline_with_too_much_detail_is_merged_and_says_so(report, monkeypatch):
    monkeypatch.setattr("wallscope.render.timeline_pack._MOST_ROWS", 6)
    packed = pack_timelines(report.timelines)
    head, columns = unpacked(packed.base64)

    step = head["steps"][0]
    streams = sum(lane["kind"] == "stream" for lane in step["lanes"])
    gap, length, wall = columns[5 * len(step["lanes"]) + 4 * streams :][:3]
    (told,) = (entry for entry in report.analysis.ranks[0].steps if entry.index == step["step"])

    assert not gap.any()
    assert [int(length[wall == place].sum()) for place in range(5)] == list(told.walls.parts())
    assert any("merged" in note for note in packed.notes)
    assert sum(map(len, columns)) < sum(map(len, unpacked_whole(report)))
    assert head["steps"][0]["length"] > 0


def test_fixes_stand_first_with_settings_and_preconditions(report):
    step_ns = report.analysis.ranks[0].typical.step_ns
    fix = Fix(
        id="overlap",
        title="Overlap the exchange",
        wall=Wall.COMMUNICATION,
        causes=("communication/ep/unsplit",),
        why="It stands alone.",
        settings=(Setting("megatron-lm", "overlap", "true"),),
        preconditions=(Precondition("pp", "No pipeline <b>", "unmet", "Set it to 1."),),
        blocked=True,
        recoverable_ns=step_ns // 5,
        speedup_ceiling=step_ns / (step_ns - step_ns // 5),
        expected_gain=ExpectedGain("1.2x", 1.2, 1.2, "elsewhere"),
        caveats=("More memory.",),
        verify="Look again.",
        source="docs",
    )
    advised = replace(report, analysis=replace(report.analysis, fixes=(fix,)))
    text = write_analysis_page(advised)
    told = unescape(re.sub(r"<[^>]+>", " ", text.partition('<ol class="recs">')[2].partition("</ol>")[0]))
    before, after = units.duration(step_ns), units.duration(round(step_ns / 1.25))

    assert re.sub(r"\s+", " ", told).strip() == (
        f"1 Overlap the exchange up to 1.25x {units.join_ends(before, after, ' → ')}"
        f" {units.signed_duration(round(step_ns / 1.25) - step_ns)}"
        " ✗ Unmet: No pipeline <b> → Set it to 1. overlap true 1 unmet Why"
        " Settings Megatron-LM Copy overlap true"
        " Conditions: 1 unmet ✗ unmet: No pipeline <b> → Set it to 1."
        " Why It stands alone. Published result, not a prediction: 1.2x (elsewhere) Caveat: More memory."
        " The bound, and how to verify Assumes that the cause is removed completely."
        " Verify: Look again. Source: docs · More: wallscope explain overlap"
    )
    (width,) = re.findall(r'<span class="left" style="width:([\d.]+)%">', text)
    assert float(width) == pytest.approx(100 / 1.25, abs=0.1)

    answers = read_answers(advised)
    other = "This fix addresses another cause; no fix is known for the cause above. overlap true"
    assert answers["Do first"] == f"Overlap the exchange Blocked: No pipeline <b>. {other}"
    assumed = "Assumes that the cause is removed completely."
    assert answers["Upper bound"] == f"up to 1.25x {before} {after} {assumed}"


def test_the_answers_say_which_recommendation_addresses_the_named_cause(report):
    (rank,) = report.analysis.ranks
    wall = report.analysis.diagnosis.dominant_wall
    cause = max((one for one in rank.causes if one.wall == wall), key=lambda one: one.typical_ns).cause
    first = Fix(
        "other", "Do other work", Wall.HOST, ("host/file",), "", (), (), False, None, None, None, (), "", ""
    )
    fixes = (first, replace(first, id="own", title="Do this work", causes=(cause,)))

    def say(*fixes):
        advised = replace(report, analysis=replace(report.analysis, fixes=fixes))
        return read_answers(advised)["Do first"]

    pointer = "This fix addresses another cause; recommendation 2 addresses the cause above."
    assert say(*fixes).endswith(pointer)
    assert "another cause" not in say(*reversed(fixes))


def test_a_card_says_whose_settings_it_has(report):
    def advise(name, *keys):
        settings = tuple(Setting("megatron-lm", key, "1") for key in keys)
        return Fix(name, name, Wall.HOST, (), "", settings, (), False, None, None, None, (), "", "")

    fixes = (
        advise("a", "x"),
        advise("b", "y", "z"),
        advise("c", "x", "w"),
        advise("d", "z"),
        advise("e", "x"),
    )
    advised = replace(report, analysis=replace(report.analysis, fixes=fixes))
    text = write_analysis_page(advised)
    cards = re.findall(r'<li class="rec.*?(?=<li class="rec|</ol>)', text, re.DOTALL)
    said = [re.findall(r'<p class="needs">(.*?)</p>', card) for card in cards]

    assert said == [
        [],
        [],
        ["Includes all settings of recommendation 1."],
        ["Recommendation 2 includes these settings."],
        ["Recommendation 1 has the same settings."],
    ]


def read_answers(report):
    """The five answers about a capture, by their labels, as one text each."""
    answers = state_analysis(report.analysis).answers
    return {
        one.label: " ".join(
            (one.head, *(one.predicted[:2] if one.predicted else ()), *one.lines, one.command)
        ).strip()
        for one in answers
    }


def test_the_page_begins_with_wall_cause_action_bound_and_doubt(report):
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    wall = analysis.diagnosis.dominant_wall
    largest = max((one for one in rank.causes if one.wall == wall), key=lambda one: one.typical_ns)
    answers = read_answers(report)

    assert list(answers) == ["Wall", "Cause", "Do first", "Upper bound", "How sure"]
    share = units.percent(getattr(rank.typical.walls, wall) / rank.typical.step_ns)
    assert answers["Wall"].startswith(f"{wall.capitalize()} {share} of the ")
    assert f" {units.duration(largest.typical_ns)} of the " in answers["Cause"]
    assert answers["How sure"].startswith(f"{analysis.diagnosis.confidence.level.capitalize()} confidence")


def test_an_error_of_the_capture_is_the_first_doubt(report):
    first = "The profiler lost records."
    lost = Finding("records-lost", Severity.ERROR, f"{first} More follows.", lead=first)
    capture = replace(report.analysis.capture, findings=(*report.analysis.capture.findings, lost))
    shown = replace(report, analysis=replace(report.analysis, capture=capture))

    said = read_answers(shown)["How sure"]
    assert f" {first}" in said
    assert "More follows" not in said


def make_unknown(report, unknown, causes=None):
    """The report with a wall that is unknown for a reason, and without findings."""
    analysis = report.analysis
    (rank,) = analysis.ranks
    diagnosis = replace(analysis.diagnosis, dominant_wall="unknown", steps_wall="unknown", unknown=unknown)
    changed = replace(
        analysis,
        diagnosis=diagnosis,
        ranks=(rank if causes is None else replace(rank, causes=causes),),
        capture=replace(analysis.capture, findings=()),
    )
    return replace(report, analysis=changed)


def test_reasons_of_an_unknown_wall_stand_below_the_answer(report):
    cause = report.analysis.ranks[0].causes[0]
    open_cause = replace(cause, share=0.2, unresolved_ns=cause.typical_ns)
    text = write_analysis_page(make_unknown(report, UnknownWall("open-causes"), (open_cause,)))

    lead = re.search(r'<p class="lead">(.*?)</p>', text)[1].replace("\N{NO-BREAK SPACE}", " ")
    assert "Wall unknown: too much of the step is unexplained." in read_heading(text)
    assert unescape(lead).startswith(f"20.0 % of the step goes to {describe_cause(cause.cause)} (")


def read_heading(text):
    """The first heading of a page, as a reader sees it."""
    heading = re.sub(r"<[^>]+>", "", text.partition("<h1>")[2].partition("</h1>")[0])
    return unescape(heading).replace("\N{NO-BREAK SPACE}", " ")


def test_the_heading_is_the_verdict_in_one_sentence(report):
    told = state_analysis(report.analysis)
    heading = read_heading(write_analysis_page(report))

    assert heading == told.opening
    assert heading.startswith("Communication-bound: ")
    assert len(heading.split()) <= 26


def test_without_a_verdict_the_page_begins_with_why_and_what_to_capture(report):
    unknown = UnknownWall("no-kernels", kernel_share=0.0)
    answers = read_answers(make_unknown(report, unknown))

    assert answers["Wall"].startswith("Unknown ")
    assert answers["Why unknown"] == "This export contains no kernels: there is no verdict"
    assert answers["Do first"].startswith(
        "Capture again with --trace=cuda,nvtx while training runs on the GPU."
    )
    assert answers["Upper bound"].startswith("Not known")
    assert answers["How sure"].startswith("No verdict")


def unpacked_whole(report):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wallscope.render.timeline_pack._MOST_ROWS", 1_000_000)
        return unpacked(pack_timelines(report.timelines).base64)[1]


def test_without_a_finding_the_action_for_a_shared_gpu_is_to_capture_alone(report):
    held = replace(report.analysis.ranks[0].causes[0], cause=HELD_WHILE_IDLE, share=0.463)
    answers = read_answers(make_unknown(report, UnknownWall("open-causes"), (held,)))

    assert answers["Why unknown"].startswith("Too much of the step is unexplained")
    assert answers["Do first"].startswith("Capture again while no other process uses the GPU.")


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    """Short and long steps in turn, so different that none can be replayed with the host times of others."""
    path = tmp_path_factory.mktemp("page") / "run.sqlite"
    write(path, steps=24, slow_ns=4_000_000)
    return reported(path)


def read_text(html):
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", html))).strip()


def test_kinds_of_steps_stand_next_to_their_bars_and_in_the_terminal(uneven, report):
    rank = uneven.analysis.ranks[0]
    short, long = (f"take about {units.duration(mode.median_ns)}" for mode in rank.modes)
    counts = [len(mode.steps) for mode in rank.modes]
    steady = sum(step.steady for step in rank.steps)
    said = f"{counts[0]} of {steady} steps {short} and {counts[1]} {long}."
    strips = [
        read_text(write_analysis_page(one).partition('<figure class="strip">')[2].partition("</figure>")[0])
        for one in (uneven, report)
    ]
    screens = [" ".join(show_first_screen(one.analysis).split()) for one in (uneven, report)]

    assert [said in text for text in (*strips, *screens)] == [True, False, True, False]
    assert "kinds of" not in strips[1] + screens[1]


def show_first_screen(analysis):
    console = Console(file=io.StringIO(), width=200)
    console.print(render_first_screen(analysis, "run.sqlite"))
    return console.file.getvalue()


def test_bounds_without_a_replay_are_less_sure_than_the_breakdown_and_say_why(uneven):
    analysis = uneven.analysis
    split, bounds, *_ = state_analysis(analysis).doubts
    error = units.percent(analysis.replay.check.error_median)
    screen = " ".join(show_first_screen(analysis).split())

    assert analysis.replay.refused is not None
    assert split.head == "High confidence in the time breakdown"
    assert "replay" not in split.text.lower()
    assert (bounds.head, bounds.grade) == ("Upper bounds are less certain", "likely")
    assert f"replay error {error}, limit 5.0 %" in bounds.text
    assert "Upper bounds are less certain: fixes are not simulated, because steps vary too much" in screen
    assert read_text(write_analysis_page(uneven)).count("Upper bounds are less certain.") == 1


def make_fix(name, *settings, **others):
    """A fix with some settings and no more."""
    return Fix(
        id=name,
        title=f"Try {name}",
        wall=Wall.HOST,
        causes=("host/framework",),
        why="It helps.",
        settings=settings,
        preconditions=(),
        blocked=False,
        recoverable_ns=None,
        speedup_ceiling=None,
        expected_gain=None,
        caveats=(),
        verify="Look again.",
        source="docs",
        **others,
    )


@pytest.mark.parametrize(
    ("settings", "line", "link"),
    [
        pytest.param(
            [("pytorch", "loader = DataLoader(num_workers=...)  # as many as cores")],
            "loader = DataLoader(num_workers=...)",
            "Why",
            id="a sketch",
        ),
        pytest.param(
            [("pytorch", "side = Stream()"), ("pytorch", "wait(side)"), ("environment", "A=1")],
            "side = Stream()",
            "3 settings, why",
            id="several lines",
        ),
        pytest.param(
            [("pytorch", "f(<size>)"), ("jax", "--flag=1")], "f(<size>)", "Why", id="another framework"
        ),
        pytest.param([], "", "Why", id="none"),
    ],
)
def test_the_card_of_a_fix_shows_its_first_setting_as_the_terminal_does(report, settings, line, link):
    fix = make_fix("it", *(Setting(system, key, "") for system, key in settings))
    analysis = replace(report.analysis, fixes=(fix,))
    text = write_analysis_page(replace(report, analysis=analysis))
    summary = text.partition('<details class="why"><summary>')[2].partition("</summary>")[0]

    assert read_text(summary.replace("<wbr>", "")) == f"{line} {link}".strip()
    assert not line or line in show_first_screen(analysis)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (["a=1"], ["a=1"], "Recommendation 1 has the same settings."),
        (["a=1"], ["a=1", "b=1"], "Includes all settings of recommendation 1."),
        (["a=1", "b=1"], ["a=1"], "Recommendation 1 includes these settings."),
        (["a=1", "E=1"], ["a=1", "b=1"], ""),
        (["a=1", "E=1"], ["a=1"], "Recommendation 1 includes these settings."),
        (["a=1", "E=1"], ["a=1", "E=1"], "Recommendation 1 has the same settings."),
    ],
)
def test_settings_for_any_framework_count_where_two_fixes_are_compared(first, second, said):
    """Capitals are variables of the environment, which each framework needs in addition."""
    one, other = (
        make_fix(
            name, *(Setting("environment" if key[0].isupper() else "pytorch", key, "") for key in settings)
        )
        for name, settings in (("one", first), ("other", second))
    )
    (earlier,) = (build_card(one, 1_000),)

    assert build_card(other, 1_000, [earlier]).overlap == said


@pytest.mark.parametrize(
    ("keeps_floor", "shown"),
    [
        pytest.param(True, "at most 1.33x about 1.25x at the rates that libraries reach", id="two speedups"),
        pytest.param(False, "about 1.25x", id="an estimate"),
    ],
)
def test_the_step_after_a_fix_is_that_of_a_speedup_next_to_it(report, keeps_floor, shown):
    step_ns = report.analysis.ranks[0].typical.step_ns
    fix = replace(
        make_fix("it", Setting("pytorch", "f()", "")),
        speedup_ceiling=1.25,
        recoverable_ns=round(step_ns / 5),
        most_speedup=1.33,
        keeps_floor=keeps_floor,
    )
    text = write_analysis_page(replace(report, analysis=replace(report.analysis, fixes=(fix,))))
    gain = read_text(text.partition('<p class="gain">')[2].partition("<strong>")[0])

    assert gain == shown


@pytest.mark.parametrize(("slow", "mix"), [(8, ("4 short", "4 long")), (3, ("8 short",))])
def test_of_two_kinds_of_steps_it_says_which_make_the_typical_one(tmp_path, slow, mix):
    """A typical step between two kinds is as long as no step: the screens call it a mean, and of what."""
    path = tmp_path / "run.sqlite"
    write(path, steps=17, slow_ns=0)
    analysis = reported(path).analysis
    (rank,) = analysis.ranks
    steps = tuple(
        replace(step, steady=place < 16, end_ns=step.end_ns + (5_000_000 + place) * (place < slow) + place)
        for place, step in enumerate(rank.steps)
    )
    modes = (
        StepMode(tuple(range(slow, 16)), 1_000_000),
        StepMode(tuple(range(slow)), 6_000_000),
    )
    mixed = replace(analysis, ranks=(replace(rank, steps=steps, modes=modes),))
    console = Console(file=io.StringIO(), width=400)
    console.print(render_first_screen(mixed))

    assert f"(interquartile mean of steps: {', '.join(mix)})" in " ".join(console.file.getvalue().split())
    assert f". Typical: mean of {', '.join(mix)}." in write_analysis_page(Report(mixed, (), ()))

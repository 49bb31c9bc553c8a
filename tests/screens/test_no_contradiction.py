"""No two media contradict each other: all their numbers, with their meaning, compared for every capture."""

import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from fixtures.scenario import scenarios
from fixtures.simulation import changed
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once, analyze_scenario_once, write_page_once
from tests.conftest import TRACES, run_part
from tests.digests.inputs import PAIRS, communication_halved
from tests.jobs.simulated import write_job
from tests.shipped_example import EXAMPLE
from tests.views import change_claims, claims
from tests.views.change_claims import collect_comparison
from tests.views.claims import Answered, collect_analysis
from tests.views.shown import WITH_UNIT, agree, find_contradictions, read_page
from wallscope.agents.tools import ToolRequest, answer_tool
from wallscope.api import diff
from wallscope.errors import NothingToAnalyzeError, WallscopeError
from wallscope.jobs.inputs import find_exports
from wallscope.jobs.merge import run_job
from wallscope.model.brief import DEFAULT_ROWS_COUNT
from wallscope.model.capture import Options
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.report import Report
from wallscope.render.data import pack_brief, write_json
from wallscope.views.analysis import write_analysis_markdown
from wallscope.views.brief import brief_analysis, brief_comparison
from wallscope.views.comparison import write_comparison_markdown
from wallscope.views.page_analysis import write_analysis_page

MINIMAL = TRACES / "minimal"
CAPTURES = [
    EXAMPLE,
    *sorted(TRACES.glob("*.sqlite")),
    *sorted((TRACES / "kineto").glob("*.json.gz")),
    *sorted(path for form in ("*.sqlite", "*.json.gz") for path in MINIMAL.rglob(form)),
]
TRIED = run_part(CAPTURES, of=9)
OF_MEDIA = {"terminal", "page", "markdown", "brief", "json", "card"}
QUANTITIES = {"headline", "headline share", "time", "share", "bound", "best fix", "typical length"}


def write_page(analysis):
    return write_analysis_page(Report(analysis, (), ()))


@cache
def collect(path):
    return collect_analysis(analyze_once(path), write_page_once(path))


def describe(pairs):
    """Each contradiction once, as a reader finds it."""
    return sorted(
        {
            f"{one.subject}, {one.quantity}: {one.text} ({one.medium}), {other.text} ({other.medium})"
            for one, other in pairs
        }
    )


@pytest.mark.skipif(not TRACES.is_dir(), reason="no real captures here: ../shared/traces is absent")
def test_there_are_captures_to_compare():
    assert len(CAPTURES) > 90


@pytest.mark.parametrize("path", TRIED)
def test_no_medium_contradicts_another(path):
    try:
        found = collect(path)
    except WallscopeError:
        pytest.skip("nothing to analyze in this capture")

    assert describe(find_contradictions(found)) == []
    assert {one.medium for one in found} == OF_MEDIA


def read_words(text):
    """A text as one line, without marks of Markdown."""
    return " ".join(text.replace("\\", "").replace("*", "").split())


def read_heading(page):
    """The heading that a page begins with."""
    (heading,) = (shown for name, _, shown in read_page(page).elements if name == "h1")
    return read_words(heading)


@pytest.mark.parametrize("path", TRIED)
def test_every_medium_begins_with_the_sentence_of_the_json(path):
    try:
        analysis = analyze_once(path)
    except WallscopeError:
        pytest.skip("nothing to analyze in this capture")
    opening = read_words(json.loads(write_json(analysis))["diagnosis"]["opening"])
    terminal = read_words("\n".join(claims.print_terminal(analysis, 80, is_full=False)))
    brief = read_words(brief_analysis(analysis, ("a",), DEFAULT_ROWS_COUNT).verdict)

    assert re.fullmatch(r"[A-Z].*: .+\.", opening)
    assert read_heading(write_page_once(path)) == opening
    assert opening.lower() in terminal.lower()
    assert opening in read_words(write_analysis_markdown(analysis))
    assert brief.startswith(opening)


@pytest.mark.parametrize(
    "name",
    run_part([one.name for one in scenarios()], name=str, of=9),
)
def test_no_medium_contradicts_another_about_a_scenario(name):
    try:
        analysis = analyze_scenario_once(name)
    except NothingToAnalyzeError:
        pytest.skip("nothing to analyze in this scenario")

    assert describe(find_contradictions(collect_analysis(analysis, write_page(analysis)))) == []


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """The answer about a folder of several files, one of each rank of a job."""
    folder = write_job(tmp_path_factory.mktemp("job") / "a")
    return run_job(find_exports([folder]), Options(), lambda _: None).analysis


def test_no_medium_contradicts_another_about_a_folder_of_one_job(job):
    found = collect_analysis(job, write_page(job))
    planted = replace(job, job=replace(job.job, walls=job.ranks[0].typical.walls))

    assert len(job.inputs) > 1
    assert describe(find_contradictions(found)) == []
    assert {one.medium for one in found} == OF_MEDIA
    assert find_contradictions([*found, *claims.read_json(write_json(planted))])


def test_no_medium_contradicts_another_about_a_folder_of_other_files(traces):
    """Only one of them belongs to the job that is analyzed, which every medium says."""
    paths = [traces / f"{name}.sqlite" for name in ("fuser_h200", "clue_r3", "p4arth_3060")]
    analysis = run_job(paths, Options(), lambda _: None).analysis
    found = collect_analysis(analysis, write_page(analysis))

    assert analysis.scope.of_files == len(paths)
    assert describe(find_contradictions(found)) == []
    assert {one.medium for one in found if "1 of 3 files" in one.text} >= {"terminal", "page", "markdown"}


def test_what_is_compared_is_most_of_what_the_example_shows():
    """A collector that finds nothing finds no contradiction."""
    found = collect(EXAMPLE)
    shown = {medium: {one.quantity for one in found if one.medium == medium} for medium in OF_MEDIA}

    assert shown["terminal"] >= QUANTITIES | {"confidence", "pressure", "error", "steady", "found"}
    assert shown["page"] >= QUANTITIES | {"confidence", "pressure", "error", "steady", "found"}
    assert shown["markdown"] >= QUANTITIES | {"pressure", "error", "steady", "found"}
    assert shown["brief"] >= {"headline", "headline share", "time", "share", "bound", "confidence", "steady"}
    assert shown["json"] >= {"time", "share", "median share", "bound", "confidence", "error", "steady"}
    assert len(found) > 450


@pytest.mark.parametrize("tool", ["analyze", "time_breakdown", "recommendations"])
def test_the_tools_of_the_server_say_the_same(tool):
    arguments = {"files": (str(EXAMPLE),), "max_rows": 20}
    request = ToolRequest(tool, arguments, {str(EXAMPLE): EXAMPLE}, None)
    packed = pack_brief(answer_tool(request, lambda _: None))
    told = [*claims.read_brief(packed, "server")]

    assert len(told) > 10
    assert describe(find_contradictions([*collect(EXAMPLE), *told])) == []


def read_altered(medium, analysis, change):
    """Claims of one medium whose text was changed."""
    answered = Answered(analysis, change(write_page_once(EXAMPLE)) if medium == "page" else "")
    match medium:
        case "terminal":
            text = change("\n".join(claims.print_terminal(analysis, 80, is_full=False)))
            return [*claims.read_terminal(answered, text.split("\n"))]
        case "full":
            text = change("\n".join(claims.print_terminal(analysis, 140, is_full=True)))
            return [*claims.read_terminal(answered, text.split("\n"))]
        case "page":
            return [*claims.read_page_claims(answered)]
        case "markdown":
            return [*claims.read_markdown(answered, change(write_analysis_markdown(analysis)))]
        case "json":
            return [*claims.read_json(change(write_json(analysis)))]
    packed = pack_brief(brief_analysis(analysis, ("a",), DEFAULT_ROWS_COUNT))
    return [*claims.read_brief(json.loads(change(json.dumps(packed))))]


@pytest.mark.parametrize(
    ("medium", "shown", "planted"),
    [
        ("terminal", "26.1 %", "26.4 %"),
        ("terminal", "up to 1.25x", "up to 1.52x"),
        ("terminal", "COMMUNICATION-BOUND", "HOST-BOUND"),
        ("terminal", "on rank 3 of 16", "on rank 4 of 16"),
        ("terminal", "typical step takes 51.1 ms", "typical step takes 51.4 ms"),
        ("terminal", "8 of the 10 steps", "9 of the 10 steps"),
        ("terminal", "High confidence", "Medium confidence"),
        ("full", "12.8 ms  25.1 %", "12.6 ms  25.1 %"),
        ("full", "1.25x   1.25x (1)", "1.24x   1.25x (1)"),
        ("full", "High confidence", "Low confidence"),
        ("full", "228  8.8 ms", "228  8.9 ms"),
        ("full", "  54.3 ms  30.2 ms", "  54.9 ms  30.2 ms"),
        ("page", '<td data-sort="8838230">8.8</td>', '<td data-sort="8838230">8.9</td>'),
        ("full", "replay error is 0.1 %", "replay error is 0.3 %"),
        ("page", "<b>26.1 %</b>", "<b>21.6 %</b>"),
        ("page", ">up to 1.25x</span>", ">up to 1.26x</span>"),
        ("page", "High confidence", "Low confidence"),
        ("page", '<td data-sort="13305581">13.3</td>', '<td data-sort="13305581">13.4</td>'),
        (
            "page",
            "12.8\N{NO-BREAK SPACE}ms of the typical 51.1",
            "12.8\N{NO-BREAK SPACE}ms of the typical 51.4",
        ),
        ("page", ": 12.8\N{NO-BREAK SPACE}ms of", ": 12.6\N{NO-BREAK SPACE}ms of"),
        ("markdown", "| 13.3 ms | 26.1 % |", "| 13.3 µs | 26.1 % |"),
        ("markdown", "communication; up to 1.25x", "communication; up to 1.35x"),
        ("markdown", "8 steady steps of 10", "8 steady steps of 11"),
        ("brief", "Communication-bound", "Memory-bound"),
        ("brief", '"speedup_ceiling": 1.2', '"speedup_ceiling": 2.2'),
        ("brief", '"high: ', '"medium: '),
        ("json", '"step_ns": 51067152', '"step_ns": 51267152'),
        ("json", '"speedup_ceiling": 1.2', '"speedup_ceiling": 1.4'),
        ("json", '"level": "high"', '"level": "low"'),
    ],
)
def test_a_planted_contradiction_is_found(medium, shown, planted):
    analysis = analyze_once(EXAMPLE)
    altered = []

    def change(text):
        altered.append(shown in text)
        return text.replace(shown, planted)

    told = [replace(one, medium="planted") for one in read_altered(medium, analysis, change)]
    found = find_contradictions([*collect(EXAMPLE), *told])

    assert altered == [True]
    assert found
    assert all("planted" in {one.medium, other.medium} for one, other in found)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("26.1 %", "26.0767 %", True),
        ("26.1 %", "26.16 %", False),
        ("0.060 ms", "60.0 µs", True),
        ("51.1 ms", "51084442 ns", True),
        ("<0.1 %", "0.04 %", True),
        ("<0.1 %", "0.2 %", False),
        (">99.9 %", "99.96 %", True),
        ("more than 20x", "38.777555x", True),
        ("more than 20x", "1.25x", False),
        ("+1.0 ms", "-1.0 ms", False),
        ("1.25x", "1.254x", True),
        ("8", "9", False),
        ("1,998", "1998", True),
        ("High", "high", True),
        ("high", "medium", False),
    ],
)
def test_texts_agree_if_one_value_is_written_as_both(one, other, is_same):
    assert agree(one, other) is is_same
    assert agree(other, one) is is_same


@pytest.mark.parametrize("path", TRIED)
def test_a_bound_leaves_at_least_the_replayed_step(path):
    """What few steps take is in the typical step too where many are slow: it must not count twice."""
    try:
        analysis = analyze_once(path)
    except WallscopeError:
        pytest.skip("nothing to analyze in this capture")
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    longest_ns = max(rank.typical.step_ns, rank.mean_step_ns or 0)

    for fix in analysis.fixes or ():
        if fix.replay is not None and (fix.recoverable_ns or 0) > fix.replay.won_ns:
            assert fix.recoverable_ns <= longest_ns - fix.replay.step_ns


def test_every_capture_has_its_own_name():
    """Answers are kept by path, and tests are chosen by name."""
    assert len({Path(path) for path in CAPTURES}) == len(CAPTURES)


def test_few_numbers_of_the_first_screen_have_no_meaning_here():
    """The assumption of a recommendation alone, which goes wherever its bound goes."""
    lines = claims.print_terminal(analyze_once(EXAMPLE), 80, is_full=False)
    shown = {found[0] for line in lines for found in WITH_UNIT.finditer(line)}
    told = {one.text for one in collect(EXAMPLE) if one.medium == "terminal"}

    assert shown - told == {"50 %"}


@pytest.mark.parametrize(
    ("base", "head"),
    [
        pytest.param(*pair, id="-and-".join(pair), marks=() if place % 12 == 1 else pytest.mark.slow)
        for place, pair in enumerate(PAIRS)
    ],
)
def test_no_medium_contradicts_another_about_a_comparison(traces, base, head):
    found = diff(traces / f"{base}.sqlite", traces / f"{head}.sqlite")

    assert describe(find_contradictions(collect_comparison(found.comparison, found.report))) == []


_NUMBER_OF_CHANGE = re.compile(r"\([-+]?\d[\d.]* %\)")


@pytest.mark.parametrize(
    ("base", "head"),
    [
        pytest.param(*pair, id="-and-".join(pair), marks=() if place % 4 == 1 else pytest.mark.slow)
        for place, pair in enumerate(PAIRS)
    ],
)
def test_a_comparison_tells_one_story(traces, base, head):
    """What a reader of one screen would object to, whatever the screen."""
    found = diff(traces / f"{base}.sqlite", traces / f"{head}.sqlite")
    comparison, opening = found.comparison, read_words(found.comparison.opening)
    terminal = read_words("\n".join(change_claims.print_comparison(comparison, 80, is_full=False)))
    markdown = read_words(write_comparison_markdown(comparison))
    shown = " ".join(text for name, _, text in read_page(found.report).elements if name in {"p", "td", "dd"})
    screens = [terminal, markdown, read_words(shown)]

    assert read_heading(found.report) == opening
    assert opening in terminal
    assert opening in markdown
    assert read_words(brief_comparison(comparison, ("a", "b"), 3).verdict).startswith(opening)
    assert len(_NUMBER_OF_CHANGE.findall(opening)) == (comparison.verdict != "incomparable")
    step, deltas = comparison.step, comparison.deltas
    assert sum(row.base_ns for row in deltas.walls) == step.base_ns
    assert sum(row.head_ns for row in deltas.walls) == step.head_ns
    assert sum(row.delta_ns for row in deltas.causes) == step.change_ns
    explained = {cause for one in comparison.applied for cause in one.causes}
    for text in screens:
        for cause in explained:
            assert f"Nothing that was recorded explains {describe_cause(cause)}" not in text
        if comparison.verdict == "inconclusive":
            assert not re.search(r"(?<!\w)(?:Likely cause|Cause|cause): ", text.partition("Confidence")[0])
    for side, slow in (("base", step.base_slow_steps), ("head", step.head_slow_steps)):
        assert not slow or all(f"none in {side}" not in text for text in screens)


@pytest.fixture(scope="module")
def halved(tmp_path_factory):
    """A comparison of a program with one whose communication takes half as long."""
    folder = tmp_path_factory.mktemp("halved")
    base, head = communication_halved(folder)
    return diff(folder / base, folder / head)


def test_a_comparison_is_compared_on_every_medium(halved):
    found = collect_comparison(halved.comparison, halved.report)
    shown = {
        medium: {one.quantity for one in found if one.medium == medium} for medium in OF_MEDIA - {"card"}
    }

    assert describe(find_contradictions(found)) == []
    assert all(quantities >= {"word", "base", "head", "change", "ratio"} for quantities in shown.values())
    assert all(shown[medium] >= {"low", "high"} for medium in ("terminal", "page", "markdown", "json"))


def read_altered_comparison(medium, found, change):
    comparison = found.comparison
    match medium:
        case "terminal":
            text = change("\n".join(change_claims.print_comparison(comparison, 80, is_full=True)))
            return [*change_claims.read_terminal_change(text.split("\n"))]
        case "page":
            return [*change_claims.read_page_change(change(found.report))]
        case "markdown":
            return [*change_claims.read_markdown_change(change(write_comparison_markdown(comparison)))]
        case "json":
            return [*change_claims.read_json_change(change(write_json(comparison)))]
    packed = pack_brief(brief_comparison(comparison, ("a", "b"), 3))
    return [*change_claims.read_brief_change(json.loads(change(json.dumps(packed))))]


@pytest.mark.parametrize(
    ("medium", "pattern", "planted"),
    [
        ("terminal", r"FASTER", "SLOWER"),
        ("terminal", r"\(-(\d+\.\d) %\)", r"(+\1 %)"),
        ("terminal", r"the typical step", "the mean step"),
        ("markdown", "changed by -", "changed by +"),
        ("terminal", r"-188\.2 … -11\.8", "-188.2 … -13.8"),
        ("terminal", r"-0\.012 ms, likely", "-0.012 ms, possible"),
        ("markdown", r"\| -0\.19 … -0\.012 ms, likely \|", "| -0.29 … -0.012 ms, likely |"),
        ("page", r">-0\.19 … -0\.012 ms, likely<", ">-0.19 … +0.012 ms, likely<"),
        ("json", r'"low_ns": -\d', '"low_ns": -99'),
        ("page", r">FASTER<", ">SLOWER<"),
        ("page", r"(step fell from [\d.]+) to 3", r"\1 to 9"),
        ("markdown", r"faster", "inconclusive"),
        ("markdown", r"\| communication \| 0", "| communication | 7"),
        ("brief", r'"FASTER: ', '"SLOWER: '),
        ("brief", r'"head_ns": 1', '"head_ns": 7'),
        ("json", r'"verdict": "improvement"', '"verdict": "no-change"'),
        ("json", r'"head_typical_ns": \d', '"head_typical_ns": 99'),
    ],
)
def test_a_planted_contradiction_of_a_comparison_is_found(halved, medium, pattern, planted):
    altered = []

    def change(text):
        altered.append(re.search(pattern, text) is not None)
        return re.sub(pattern, planted, text)

    told = [replace(one, medium="planted") for one in read_altered_comparison(medium, halved, change)]
    found = find_contradictions([*collect_comparison(halved.comparison, halved.report), *told])

    assert altered == [True]
    assert found
    assert all("planted" in {one.medium, other.medium} for one, other in found)


COMMITS = [f"{number:04x}" * 10 for number in range(10)]
CHANGED = 5


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A store of captures of which communication takes half as long from one commit on."""
    folder = tmp_path_factory.mktemp("recorded")
    (story,) = (one for one in stories() if one.name == "exposed all-to-all")
    for number, commit in enumerate(COMMITS):
        ratio = (1 + 0.002 * (number % 3)) * (0.5 if number >= CHANGED else 1)
        write_run(run(changed.communication(story.program, ratio)), folder / f"{commit}.sqlite")
    return folder


@pytest.mark.slow
def test_history_bisection_and_comparison_of_one_store_agree(recorded, called, monkeypatch):
    monkeypatch.chdir(recorded)
    for commit in COMMITS:
        assert called("record", f"{commit}.sqlite", "--commit", commit, "--store", "store").code == 0
    ends = COMMITS[CHANGED - 1], COMMITS[CHANGED]
    history = called("history", "step", "--store", "store", columns=100).out
    rows = json.loads(called("history", "step", "--store", "store", "--json", "-").out)
    brief = called("history", "step", "--store", "store", "--brief").out
    samples = called("history", "step", "--store", "store", "--format", "openmetrics").out
    bisection = called("bisect", f"{COMMITS[0]}..{COMMITS[-1]}", "step", "--store", "store").out
    answer = json.loads(called("diff", "..".join(ends), "--store", "store", "--json", "-").out)
    found = [
        *change_claims.read_history(history),
        *change_claims.read_history(brief, "brief history"),
        *change_claims.read_history_rows(rows),
        *change_claims.read_open_metrics(samples),
        *change_claims.read_bisection(bisection),
        *change_claims.read_commits(answer, *ends),
    ]

    assert describe(find_contradictions(found)) == []
    assert {one.medium for one in found if one.subject == "change"} == {
        "history", "brief history", "history rows", "openmetrics", "bisection", "diff",
    }  # fmt: skip
    assert len(found) > 2 * len(COMMITS)
    altered = [*change_claims.read_history(history.replace("fell by", "rose by"), "planted")]
    assert find_contradictions([*found, *altered])
    planted = re.sub(r"(wallscope_change_ratio.*\} )0\.", r"\g<1>1.", samples)
    assert planted != samples
    assert find_contradictions([*found, *change_claims.read_open_metrics(planted, "planted")])

"""The answer as Markdown: it fits, says the numbers of the answer, and no name in it is more than letters."""

import re
from dataclasses import replace

import pytest

from fixtures.export import ExportWriter
from wallscope import units
from wallscope.demo.machine import SimulatedMachine
from wallscope.model.advice import Fix, Precondition, Setting
from wallscope.model.capture import Finding, Options, Severity
from wallscope.model.enums import Wall
from wallscope.pipeline import analyze
from wallscope.render.markdown import MOST_BYTES, code, escape
from wallscope.views.analysis import write_analysis_markdown

HOSTILE = (
    "\n::set-output name=x::y\r\n# h | `a` **b** <img src=x onerror=alert(1)> [l](https://x.invalid)"
    " @someone \x1b[31m \u202e www.x.invalid &lt; $a$"
)


@pytest.fixture(scope="module")
def analysis(tmp_path_factory):
    path = tmp_path_factory.mktemp("markdown") / "run|`x`.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        main = SimulatedMachine(writer, pid=1000, device=0).thread("python", start_ns=1_000_000)
        for _ in range(6):
            with main.range(f"train_step {HOSTILE}"):
                main.launch(HOSTILE, 400_000, stream=7, call="cudaLaunchKernel", call_ns=5_000)
                main.work(100_000)
                main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000, stream=7)
                main.synchronize()
                main.work(50_000)
    return analyze(path, Options(step_range="train_step"), lambda _: None)


def hostile_fix(number):
    settings = tuple(Setting("megatron-lm", f"--{HOSTILE * 90}", "1") for _ in range(40))
    needed = tuple(Precondition("a", HOSTILE * 90, "unmet", HOSTILE * 90) for _ in range(40))
    return Fix(
        id=f"fix-{number}",
        title=HOSTILE * 90,
        wall=Wall.HOST,
        causes=(f"host/{number}",),
        why="",
        settings=settings,
        preconditions=needed,
        blocked=True,
        recoverable_ns=1_000,
        speedup_ceiling=1.5,
        expected_gain=None,
        caveats=(),
        verify="",
        source="",
    )


def test_it_has_the_walls_and_the_causes_of_the_answer(analysis):
    text = write_analysis_markdown(analysis)
    typical = analysis.ranks[0].typical

    for wall, time_ns in zip(Wall, typical.walls.parts(), strict=True):
        row = re.search(rf"^\| \**{wall}\** \| (.*?) \|", text, re.MULTILINE)
        assert row is not None
        assert row[1] == units.milliseconds(time_ns)
    for entry in analysis.ranks[0].causes:
        if entry.wall != Wall.COMPUTE and entry.typical_ns:
            assert f"| {code(entry.cause)} | {units.milliseconds(entry.typical_ns)} |" in text


def test_names_make_no_line_no_markup_and_no_command(analysis):
    text = write_analysis_markdown(analysis)

    assert "::" not in text
    assert "<img" not in text.replace("\\<img", "")
    assert not re.search(r"(?<!\\)\]\(http", text)  # an escaped bracket ends no link
    assert not re.search(r"@\w", text)
    assert all(letter == "\n" or letter.isprintable() or letter == "\u200b" for letter in text)
    assert {line.count("|") - line.count("\\|") for line in text.split("\n") if line.startswith("|")} <= {
        6,
        7,
    }


def test_it_stays_under_60_kilobytes_and_says_what_it_leaves_out(analysis):
    found = Finding("code", Severity.WARNING, HOSTILE * 90, HOSTILE * 90)
    large = replace(
        analysis,
        fixes=tuple(map(hostile_fix, range(30))),
        capture=replace(analysis.capture, findings=(found,) * 40),
        diagnosis=replace(analysis.diagnosis, verdict="é. " + "\u202e🙂" * 9_000),
    )
    text = write_analysis_markdown(large)

    assert len(text.encode()) < MOST_BYTES
    assert "#### Recommendations" in text
    assert "The rest is left out" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("a_b*c", "a\\_b\\*c", id="emphasis"),
        pytest.param("::set-output", ":\u200b:\u200bset-output", id="workflow command"),
        pytest.param("so: that", "so: that", id="a colon before a space"),
        pytest.param("#12", "\\#\u200b12", id="heading or issue"),
        pytest.param("layer_#", "layer\\_\\#", id="no issue"),
        pytest.param("of GH-12", "of GH-\u200b12", id="issue in letters"),
        pytest.param("xGH-12", "xGH-12", id="end of a word"),
    ],
)
def test_prose_is_letters_alone(text, shown):
    assert escape(text) == shown


def test_code_can_not_be_left():
    assert code("a`b|c\nd") == "`a'b\\|c\\nd`"
    assert code("") == "` `"

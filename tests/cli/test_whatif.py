import json
import re

import jsonschema
import pytest

from fixtures.simulation.program import SyncDevice, Work
from fixtures.simulation.random_programs import random_program
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import US, alone, gemm
from fixtures.simulation.writing import write_run
from tests.render.test_data import bare
from wallscope.files import read_report
from wallscope.model.whatif import WhatIf
from wallscope.render.data import make_json_schema

STORIES = {story.name: story.program for story in stories()}


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    path = tmp_path_factory.mktemp("exports") / "run.sqlite"
    write_run(run(random_program(5)), path, has_events=True)
    return path


def test_answers_stand_alone_and_together_and_the_json_follows_the_schema(called, export, tmp_path):
    target = tmp_path / "answers.json"
    options = ("--scale", "Communication=0", "--scale", "think=0.5", "--sweep", "compute=2,1,0.5")
    ran = called("whatif", export, *options, "--json", target)
    answers = json.loads(target.read_text())

    assert (ran.code, ran.err) == (0, f"Wrote {target}\n")
    jsonschema.validate(answers, json.loads(read_report("whatif.schema.json")))
    assert [[one["target"] for one in answer["questions"]] for answer in answers["answers"]] == [
        ["communication"],
        ["think"],
        ["communication", "think"],
    ]
    assert [answer["questions"][0]["share"] for answer in answers["sweep"]] == [2.0, 1.0, 0.5]
    lengths = [answer["step_ns"] for answer in answers["sweep"]]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[1] == answers["step_ns"]
    for answer in answers["answers"]:
        assert sum(answer["walls"].values()) == answer["step_ns"] == answers["step_ns"] - answer["won_ns"]
    for parts in ("walls", "causes", "ranges", "operations"):
        assert sum(part["time_ns"] for part in answers["path"][parts]) == answers["path"]["step_ns"]
    assert "The replay error is " in ran.out
    assert "communication \N{MULTIPLICATION SIGN} 0 + host time" in ran.out


def test_lines_of_a_note_begin_below_its_text(called, export):
    lines = called("whatif", export, "--hide", "communication").out.splitlines()
    first = next(place for place, line in enumerate(lines) if line.startswith("  • "))

    assert lines[first + 1].startswith("    ")
    assert lines[first + 1][4] != " "


def test_without_a_question_the_usual_ones_are_asked_the_best_first(called, export, tmp_path):
    target = tmp_path / "answers.json"
    assert called("whatif", export, "--json", target).code == 0
    won = [answer["won_ns"] for answer in json.loads(target.read_text())["answers"]]

    assert won == sorted(won, reverse=True)
    assert len(won) > 3
    assert won[-1] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        pytest.param(("--scale", "comunication=0"), "nearest names are: communication", id="a slip"),
        pytest.param(("--scale", "communication"), "write --scale communication=0.5", id="no factor"),
        pytest.param(("--scale", "communication=-1"), "with a K of 0 or more", id="below nothing"),
        pytest.param(("--scale", "communication=nan"), "write --scale communication=0.5", id="no number"),
        pytest.param(("--graph", "forwards"), "the nearest names are: forward", id="range"),
        pytest.param(("--without", "sync"), "the nearest names are: synchronisation", id="what"),
        pytest.param(("--without", "communication"), "ask `--scale communication=0`", id="a wall"),
        pytest.param(("--hide", "compute"), "is not in these steps", id="compute cannot be hidden"),
        pytest.param(("--sweep", "communication=1,x"), "write --sweep communication=1,0.5,0", id="sweep"),
        pytest.param(("--sweep", "communication"), "--sweep communication — is not", id="no factors"),
    ],
)
def test_what_is_not_there_is_told_in_a_line_with_what_is(called, export, options, said):
    ran = called("whatif", export, *options)

    assert ran.code == 2
    assert said in ran.err
    assert ran.err.count("\n") == 1


def test_an_answer_that_cannot_be_trusted_is_refused(called, tmp_path):
    path = tmp_path / "run.sqlite"
    program = alone(lambda number: (gemm(50), Work((100 + 200 * (number % 2)) * US), gemm(50), SyncDevice()))
    write_run(run(program), path, has_events=True)  # what the host does differs from step to step
    refused = called("whatif", path)

    assert refused.code == 2
    assert "the answers would not be reliable" in refused.err
    assert refused.err.startswith(f"wallscope: {path} — ")
    (accepted,) = re.findall(r"--accept-error (\d+)", refused.err)
    page = tmp_path / "page.html"
    ran = called("whatif", path, "--accept-error", accepted, "--html", page)
    said = "Above 5.0 %, steps differ too much, so these gains are unreliable."
    assert ran.code == 0
    assert said in " ".join(ran.out.split())
    doubts = page.read_text(encoding="utf-8").partition('id="sure"')[2].partition("</div></div>")[0]
    assert doubts.count('class="bad"') == 1
    assert said in doubts.replace("\N{NO-BREAK SPACE}", " ")


def test_an_export_without_steps_is_told_so(called, tmp_path):
    program = STORIES["relay"]
    write_run(run(program), tmp_path / "run.sqlite", has_events=True)
    ran = called("whatif", tmp_path / "run.sqlite", "--steps", "6")

    assert ran.code == 2
    assert "a replay needs two complete steps" in ran.err


def test_the_published_schema_is_that_of_the_nouns(request):
    if request.config.getoption("--golden"):
        (request.config.rootpath / "reports" / "whatif.schema.json").write_text(
            json.dumps(make_json_schema(WhatIf), indent=1) + "\n", encoding="utf-8"
        )

    assert bare(make_json_schema(WhatIf)) == bare(json.loads(read_report("whatif.schema.json")))


def test_the_page_is_written_beside_the_terminal_or_to_standard_output(called, export, tmp_path):
    target = tmp_path / "answers.html"
    beside = called("whatif", export, "--html", target)
    alone = called("whatif", export, "--html", "-")
    both = called("whatif", export, "--html", "-", "--json", "-")

    assert (beside.code, alone.code, both.code) == (0, 0, 2)
    assert "With each change" in beside.out
    assert alone.out == target.read_text(encoding="utf-8")
    assert alone.out.startswith("<!DOCTYPE html>")

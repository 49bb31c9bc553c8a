"""The skill and the page for coding agents say what the commands say."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from tests.conftest import slow
from tests.shipped_example import EXAMPLE
from tests.test_docs import read_prose
from tests.test_language import find_faults
from tests.test_traces import EXPORTS
from tests.tokens import count_tokens
from wallscope.advice.explain import explain_word
from wallscope.model.cause_catalogue import list_cause_meanings

ROOT = Path(__file__).resolve().parents[1]
SKILL = ROOT / "skills" / "wallscope"
PAGES = [SKILL / "SKILL.md", *sorted((SKILL / "references").glob("*.md"))]
PAGE = ROOT / "docs" / "agents.md"
CAPTURES = [EXAMPLE.parent, ROOT.parent / "shared" / "traces"]
TRANSCRIPT = re.compile(r"```console\n(.*?)```", re.DOTALL)


def load_score():
    """The script that scores answers, as a module."""
    spec = importlib.util.spec_from_file_location("score", SKILL / "evals" / "score.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


score = load_score()
ENTRIES = json.loads(score.EVALS.read_text(encoding="utf-8"))


@pytest.fixture
def run(called):
    """Run a command in this process, and return its JSON."""

    def answer(command):
        said = called(*command, "--json", "-")
        return json.loads(said.out) if said.out else {"error": said.err.strip(), "code": said.code}

    return answer


@pytest.mark.parametrize("number", [6, *slow(30)])
def test_thirty_questions_are_answered_right(run, request, number):
    if request.config.getoption("--golden"):
        score.write_answers(ENTRIES, CAPTURES, run)
    said = score.score_answers(ENTRIES[:: 30 // number], CAPTURES, run)

    assert len(ENTRIES) == len({entry["id"] for entry in ENTRIES}) == 30
    assert {name: wrong for name, wrong in said.items() if wrong} == {}
    assert len(said) == number if EXPORTS else len(said) >= number // 3


@pytest.mark.parametrize("number", ["51.1", *slow("26.1", "8 steady", "1.25", "12,463")])
def test_a_wrong_number_in_an_answer_is_caught(number, run):
    entry = next(
        entry for entry in ENTRIES if number in entry["answer"] and entry["command"][1] == "@moe_step.sqlite"
    )
    planted = {**entry, "answer": entry["answer"].replace(number, number.replace("1", "7").replace("8", "9"))}

    assert planted["answer"] != entry["answer"]
    assert score.score_answers([entry], CAPTURES, run) == {entry["id"]: ""}
    assert "should be" in score.score_answers([planted], CAPTURES, run)[entry["id"]]


def test_each_number_of_an_answer_is_a_value_of_the_command():
    for entry in ENTRIES:
        assert not re.search(r"\d", re.sub(r"\{\d\}", "", entry["template"])), entry["id"]
        assert entry["facts"]
        assert {"id", "question", "expected_skill", "answer", "expected_behavior"} <= entry.keys()


def test_some_questions_have_no_answer_but_unknown():
    assert sum("nknown" in entry["answer"] for entry in ENTRIES) >= 5


def test_the_script_ends_with_one_if_an_answer_is_wrong(run, monkeypatch, capsys):
    (entry,) = [entry for entry in ENTRIES if entry["id"] == "explain-overlap-fix"]
    monkeypatch.setattr(score, "run_command", run)
    for answer, code in ((entry["answer"], 0), ("It makes the step twice as fast.", 1)):
        monkeypatch.setattr(score, "EVALS", _Text(json.dumps([{**entry, "answer": answer}])))
        assert score.main([]) == code
        assert ("wrong" in capsys.readouterr().out) is bool(code)


class _Text:
    """A file that holds a text."""

    def __init__(self, text):
        self.text = text

    def read_text(self, encoding):  # noqa: ARG002  # as of a path
        return self.text


def test_the_page_has_a_transcript_of_four_commands():
    """`tests/test_doc_blocks.py` runs them, and compares what they print."""
    (block,) = TRANSCRIPT.findall(PAGE.read_text(encoding="utf-8"))

    assert len(re.findall(r"^\$ wallscope (.*)$", block, re.MULTILINE)) == 4


def test_the_page_shows_what_the_skill_and_the_server_have():
    page = PAGE.read_text(encoding="utf-8")

    assert str(len(ENTRIES)) in page
    assert "skills/wallscope" in page


def test_the_front_matter_names_the_skill():
    _, front, body = PAGES[0].read_text(encoding="utf-8").split("---\n", 2)
    fields = dict(line.split(": ", 1) for line in front.splitlines())

    assert fields["name"] == SKILL.name
    assert 200 < len(fields["description"]) <= 1_024
    assert body.startswith("\n# ")
    assert count_tokens(body) < 1_500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_commands_exist(page, called):
    text = page.read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert (page.parent / link).is_file()
    helps = {}
    for line in re.findall(r"`wallscope ([^`]+)`", text):
        command, *words = line.split()
        if command not in helps:
            said = called(command, "--help", columns=140)
            assert said.code == 0, command
            helps[command] = said.out
        assert all(word in helps[command] for word in words if word.startswith("--")), line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_texts_are_plain(page):
    assert find_faults(read_prose(page)) == []


def test_every_reference_is_linked_from_the_skill():
    text = PAGES[0].read_text(encoding="utf-8")

    assert all(f"references/{page.name}" in text for page in PAGES[1:])


def test_causes_and_words_of_the_references_exist():
    text = (SKILL / "references" / "causes.md").read_text(encoding="utf-8")
    known = [cause for cause, _ in list_cause_meanings()]
    named = [
        name
        for row in re.findall(r"^\| (`[^|]+) \|", text, re.MULTILINE)
        for name in re.findall(r"`([a-z-]+/[^`]+)`", row)
    ]
    for name in named:
        pattern = re.compile(re.sub(r"<[a-z]+>", "[^/]+", name))
        assert any(pattern.fullmatch(cause) for cause in known) or "<call>" in name, name
    for word in re.findall(r"`explain ([a-z-]+)`", text):
        assert explain_word(word).meaning
    assert len(named) >= 10

"""Docs that can not rot: commands, options, targets and queries are what the texts say."""

import re
from pathlib import Path

import pytest

from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Axis

ROOT = Path(__file__).resolve().parent.parent
CAUSES = (ROOT / "docs" / "causes.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_readme_has_the_two_commands_and_make_has_them_too():
    for target in ("demo", "test"):
        assert f"```\nmake {target}\n```" in README
        assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)


def test_ci_runs_the_test_command_of_the_readme():
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("line", re.findall(r"^wallscope (.*?)(?: +#.*)?$", README, re.MULTILINE))
def test_commands_and_options_of_the_readme_exist(line, wallscope):
    command, *rest = line.split()
    shown = wallscope(command, "--help", columns=140)

    assert shown.code == 0
    assert all(option in shown.out for option in rest if option.startswith("--"))


def test_every_command_and_option_has_its_help(wallscope):
    top = wallscope("--help", columns=140).out
    commands = re.findall(r"^  ([a-z-]+) +\S", top.split("Commands:")[1], re.MULTILINE)

    assert commands == [
        "analyze",
        "diff",
        "record",
        "history",
        "steps",
        "kernels",
        "ranges",
        "gaps",
        "at",
        "whatif",
        "advise",
        "check-config",
        "explain",
        "info",
        "convert",
        "capture-help",
        "cache",
        "install-recipe",
    ]
    for command in commands:
        text = wallscope(command, "--help", columns=140).out
        options = re.findall(r"^  (?:-\w, )?(--[a-z-]+)(.*)", text, re.MULTILINE)
        assert options
        texts = [re.sub(r"\s*\[[^]]*\]$", "", said) for _, said in options]
        assert all(len(said.split("  ")[-1]) > 10 for said in texts)


@pytest.mark.parametrize("path", sorted((ROOT / "queries").iterdir()), ids=lambda path: path.stem)
def test_every_query_says_what_it_answers_and_names_its_columns(path):
    text = path.read_text(encoding="utf-8")
    statement = re.sub(r"--.*", "", text)

    assert path.suffix == ".sql"
    assert text.startswith("-- ")
    assert "*" not in statement.replace("COUNT(*)", "")
    assert not re.search(r"[{}]|%s", statement)


def test_the_catalogue_of_causes_is_the_page_about_them():
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.+?) \|", CAUSES, re.MULTILINE))
    causes = {cause: said for cause, said in rows.items() if "/" in cause}
    axes = {axis: rows[axis] for axis in Axis}
    parts = {part: said for part, said in rows.items() if part not in {*causes, *axes}}
    spelled = {
        f"communication/{axis}/{part}": f"{axes[axis]}, {parts[part]}" for axis in axes for part in parts
    }

    assert causes | spelled == dict(list_cause_meanings())


def test_the_readme_names_every_option_of_analyze(wallscope):
    options = set(re.findall(r"--[a-z-]+", wallscope("analyze", "--help", columns=140).out))

    assert options - {"--help", "--verbose"} <= set(re.findall(r"--[a-z-]+", README))


def test_no_file_outgrows_five_hundred_lines():
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for folder in ("wallscope", "fixtures", "tests")
        for path in (ROOT / folder).rglob("*.py")
    }

    assert {path: length for path, length in lengths.items() if length > 500} == {}


def test_every_promise_of_the_threat_model_has_a_proof_that_exists():
    text = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
    assert len(rows) > 15
    for row in rows:
        proofs = re.findall(r"`(tests/[\w/]+\.py|make [a-z]+)`", row.rsplit("|", 2)[1])
        assert proofs, row
        for proof in proofs:
            if proof.startswith("make "):
                assert re.search(rf"^{proof[5:]}:", MAKEFILE, re.MULTILINE)
            else:
                assert "def test_" in (ROOT / proof).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["SECURITY.md", "docs/robustness.md", "docs/threat-model.md"])
def test_tests_that_pages_name_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text)
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []

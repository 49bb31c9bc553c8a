"""What `--help` shows: every command in one uncut line, options in groups, examples that work."""

import re
import shlex

import pytest
from typer._click.exceptions import NoSuchOption
from typer.main import get_command

from wallscope.cli import EXAMPLES, app

COMMANDS = get_command(app).commands
LONGEST_SUMMARY = 60


def test_the_list_shows_the_first_sentence_of_each_command_uncut(wallscope):
    shown = wallscope("--help", columns=80).out

    for name, command in COMMANDS.items():
        first = command.help.split("\n\n")[0].replace("\n", " ")
        assert first.endswith((".", "?"))
        assert len(first) <= LONGEST_SUMMARY
        assert re.search(rf"^  {name} +{re.escape(first.rstrip('.'))}$", shown, re.MULTILINE)


def test_help_of_a_process_of_its_own_is_text(started):
    ran = started("--help")

    assert (ran.code, ran.err) == (0, "")
    assert set(COMMANDS) <= set(ran.out.split())
    assert "\x1b" not in ran.out


def test_every_command_has_examples():
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_examples_of_the_help_are_parsed(line):
    program, name, *arguments = shlex.split(line)

    parsed = COMMANDS[name].make_context(name, arguments)

    assert program == "wallscope"
    assert line in EXAMPLES[name]
    assert not parsed.args


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_ends_with_its_examples(name, wallscope):
    shown = wallscope(name, "--help", columns=80).out.rstrip("\n").split("\n")

    assert [line.strip() for line in shown[-len(EXAMPLES[name]) :]] == list(EXAMPLES[name])


def test_an_example_with_an_unknown_option_would_not_be_parsed():
    with pytest.raises(NoSuchOption):
        COMMANDS["analyze"].make_context("analyze", ["run.sqlite", "--colour"])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_no_names_of_python_types_and_limits_in_words(name, wallscope):
    shown = wallscope(name, "--help", columns=80).out

    assert not re.search(r"<(path|str|list\[)|<=|2147483647|x>=", shown)
    assert not re.search(r"\w-\n", shown)
    assert "Examples:" in shown or "Example:" in shown


def test_limits_of_a_count_are_words(wallscope):
    shown = wallscope("analyze", "--help", columns=80).out

    assert "[1 to 50]" in shown
    assert "[default: 1; at least 1]" in shown
    assert re.search(r"--rank N +Only this rank of the job\.\n", shown)

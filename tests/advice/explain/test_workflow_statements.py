"""Every statement of the workflow documents, the command that gives it, and the words with which it does."""

import re
from pathlib import Path

import pytest

ROWS = [
    tuple(part.strip() for part in line.split(" | "))
    for line in Path(__file__).with_name("workflow_statements.txt").read_text(encoding="utf-8").splitlines()
]
PAGE = Path(__file__).resolve().parents[3] / "docs" / "statements.md"
HEAD = """# Statements of the workflow documents

Four documents on Megatron Bridge explain how to make large-model training faster. They cover long context,
vision-language models, the order of tuning, and the overlap of expert communication. For each statement in
these documents, the table lists the wallscope command that shows it. A test runs every command and looks
for the quoted words in its output (`tests/advice/explain/test_workflow_statements.py`).

| document | statement | command | words in the output |
|---|---|---|---|
"""


@pytest.fixture(scope="module")
def outputs():
    """Outputs of commands that several statements have."""
    return {}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_command_gives_the_statement(row, outputs, wallscope):
    document, statement, command, words = row
    if command not in outputs:
        shown = wallscope(*command.split())
        assert shown.code == 0
        outputs[command] = re.sub(r"\s+", " ", shown.out)

    assert document
    assert statement
    assert len(words) > 3
    assert words in outputs[command]


def test_the_page_has_all_statements(request):
    lines = (
        f"| {where} | {said} | `wallscope {command}` | {words} |\n" for where, said, command, words in ROWS
    )
    page = HEAD + "".join(lines)
    if request.config.getoption("--golden"):
        PAGE.write_text(page, encoding="utf-8")

    assert len(ROWS) > 95
    assert PAGE.read_text(encoding="utf-8") == page

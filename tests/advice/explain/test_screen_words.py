"""Labels of finished outputs are explained: table heads, brief answers, headings and columns of pages."""

import re
from html import unescape
from itertools import pairwise

import pytest

from tests.advice.explain.test_terms import find_unexplained
from tests.compare.test_compare import steps
from tests.shipped_example import EXAMPLE
from tests.views.comparison.test_comparison_page import one, reported
from wallscope.advice.explain import explain_word
from wallscope.views.comparison import write_comparison_page

UNIT = re.compile(r" (s|ms|µs|\(s\)|\(ms\)|\(µs\)|\(%\))$")
CONTROLS = {"Skip to the content"}
"""Text of links that are controls of the page."""


def list_heads(text):
    """The column heads of each table of a terminal, which follow the line of their rank."""
    lines = text.splitlines()
    for title, head in pairwise(lines):
        if title.startswith("rank "):
            yield from (UNIT.sub("", name) for name in re.split(r"\s{2,}", head.strip()))


def list_brief_labels(text):
    """What stands before the colons of a brief answer, and the names of its numbers and columns."""
    for line in text.splitlines():
        label, _, rest = line.partition(": ")
        if re.fullmatch(r"[a-z]+( \([^)]*\))?", label):
            yield label
        if label == "numbers":
            yield from (re.sub(r" [\d.,]+( .*)?$", "", cell) for cell in rest.split("; "))
        elif line.startswith("rank "):
            yield from (cell.partition(" ")[0] for cell in line.split("; "))


def list_page_labels(page):
    """Headings, column heads, terms and links of navigation of a page, without what explains them.

    Heads of rows are names of causes and operations, and descriptions are values: no labels.
    """
    body = re.sub(r"(?s)<(script|style|svg|dd)\b.*?</\1>", "", page)
    for tag, inner in re.findall(r'(?s)<(h2|th|dt|a)\b(?![^>]*scope="row")[^>]*>(.*?)</\1>', body):
        first = re.sub(r"(?s)<(p|span|small|b)\b.*", "", inner) if tag in {"h2", "a"} else inner
        plain = " ".join(unescape(re.sub(r"<[^>]+>", " ", first)).split()).partition("◀")[0].strip()
        yield UNIT.sub("", plain)
    yield from re.findall(r'role="tab" id="tab-[a-z]+"[^>]*>([\w ]+)', body)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("data loading on the host", "host/data-loading"),
        (
            "host time after cudaStreamSynchronize until the next launch",
            "host/queue-drained/cudaStreamSynchronize",
        ),
        ("Forward work recomputed in the backward pass", "memory/recompute"),
        ("host time outside CUDA calls (Python, framework, program)", "host/framework"),
    ],
)
def test_causes_are_found_by_the_words_that_screens_show(text, cause):
    assert explain_word(text).word == cause


def test_words_that_several_causes_share_list_them():
    found = explain_word("expert-parallel all-to-all")

    assert [line.partition(":")[0] for line in found.sections[0].lines] == [
        f"communication/ep/{part}"
        for part in ("hand-over", "peer-wait", "pipeline-wait", "transfer", "unsplit")
    ]


@pytest.mark.parametrize("command", ["steps", "kernels", "ranges"])
def test_heads_of_tables_are_explained(command, wallscope):
    heads = set(list_heads(wallscope(command, EXAMPLE).out))

    assert len(heads) > 5
    assert find_unexplained(heads) == set()


def test_facts_of_an_export_are_explained(wallscope):
    facts = re.findall(r"(?m)^(\w[\w ]*?)(?: {2,}|$)", wallscope("info", EXAMPLE).out.partition("\n\n")[0])

    assert {"export", "captured", "environment"} <= set(facts)
    assert find_unexplained(facts) == set()


@pytest.mark.parametrize("arguments", [("analyze", EXAMPLE), ("whatif", EXAMPLE), ("diff", EXAMPLE, EXAMPLE)])
def test_labels_of_brief_answers_are_explained(arguments, wallscope):
    labels = set(list_brief_labels(wallscope(*arguments, "--brief").out))

    assert {"verdict", "confidence", "next"} <= labels
    assert find_unexplained(labels) == set()


@pytest.mark.parametrize("command", ["steps", "kernels", "ranges", "gaps"])
def test_columns_of_brief_tables_are_explained(command, wallscope):
    labels = set(list_brief_labels(wallscope(command, EXAMPLE, "--brief").out))

    assert {"rank", "device", "verdict"} <= labels
    assert find_unexplained(labels) == set()


@pytest.mark.parametrize("command", ["analyze", "whatif"])
def test_headings_and_columns_of_pages_are_explained(command, wallscope, tmp_path):
    page = tmp_path / "page.html"
    wallscope(command, EXAMPLE, "--html", page)
    labels = {*list_page_labels(page.read_text(encoding="utf-8"))} - CONTROLS

    assert {"Critical path" if command == "analyze" else "Replay accuracy", "cause", "slack"} <= labels
    assert find_unexplained(labels) == set()


def test_headings_and_columns_of_a_comparison_page_are_explained():
    report = reported(one("a", steps(20)), one("b", steps(20, 1.1, seed=2)))
    labels = {*list_page_labels(write_comparison_page(report))} - CONTROLS

    assert {"Steps", "Time breakdown", "base", "head"} <= labels
    assert find_unexplained(labels) == set()

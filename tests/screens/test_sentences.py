"""A sentence on the screen leads to the code that wrote it: some of its words stand there as they read."""

import re
from functools import cache

import pytest

from fixtures.scenario import scenarios
from tests.answered_once import analyze_once, analyze_scenario_once
from tests.code_index import ROOT
from tests.shipped_example import EXAMPLE
from tests.views.claims import print_terminal
from wallscope.errors import NothingToAnalyzeError

WORDS = 3
"""So many words in a row, without numbers, are what a reader searches for."""
SOURCES = ("py", "toml", "j2")
BETWEEN_LITERALS = re.compile(r'"\s*\n\s*f?"')


@cache
def read_sources():
    """All sources in which sentences stand, each with its literals in one line."""
    kinds = [(folder, kind) for folder in ("wallscope", "reports") for kind in SOURCES]
    found = [path for folder, kind in kinds for path in (ROOT / folder).rglob(f"*.{kind}")]
    return "\n".join(BETWEEN_LITERALS.sub("", path.read_text(encoding="utf-8")) for path in found)


def list_sentences(analysis):
    """The sentences of the first screen: what has several words in a row."""
    lines = "\n".join(print_terminal(analysis, 100, is_full=False))
    text = re.sub(r"(?<=\S)\n(?: +(?=\S)|(?=[a-z]))", " ", lines)
    parts = re.split(r"[.;:!?](?:\s|$)|\n| {2,}|[()]", text)
    return [part.strip() for part in parts if list_runs(part) and not part.strip().startswith("wallscope ")]


def list_runs(sentence):
    """Runs of words that hold no number, name or mark."""
    runs = re.findall(rf"(?=\b([a-zA-Z]+(?:[ -][a-z]+){{{WORDS - 1}}})\b)", sentence)
    return [run for run in runs if not re.search(r"\d", run)]


def find_lost(analysis):
    sources = read_sources()
    return [
        sentence
        for sentence in list_sentences(analysis)
        if not any(run in sources or run[:1].lower() + run[1:] in sources for run in list_runs(sentence))
    ]


def test_every_sentence_of_the_example_is_found():
    assert len(list_sentences(analyze_once(EXAMPLE))) > 10
    verdict, *counts = find_lost(analyze_once(EXAMPLE))

    assert verdict == "COMMUNICATION-BOUND on rank 3 of 16"  # of a wall and numbers
    assert all(re.search(r"\d conditions? to check$", one) for one in counts)  # of a count and a noun


@pytest.mark.parametrize("name", [one.name for one in scenarios()])
def test_most_sentences_of_a_scenario_are_found(name):
    try:
        analysis = analyze_scenario_once(name)
    except NothingToAnalyzeError:
        pytest.skip("nothing to analyze in this scenario")

    assert len(find_lost(analysis)) <= 1

"""Every term of a screen or a page is explained: headings, column heads, labels."""

import re
from dataclasses import replace

import pytest

from tests.answered_once import analyze_once
from tests.conftest import TRACES
from tests.shipped_example import EXAMPLE
from wallscope.advice.explain import explain_word
from wallscope.errors import UnknownWordError
from wallscope.model.capture import Options
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.model.section import Grid, Items, Lines, Section, Span
from wallscope.model.whatif import Asked, Question
from wallscope.pipeline import ask_what_if
from wallscope.views import analysis as views
from wallscope.views import whatif
from wallscope.views.first_screen import build_first_screen
from wallscope.views.sections.depth import build_walls_in_depth
from wallscope.views.sections.findings import build_limits, build_methods
from wallscope.views.sections.job import build_clocks, build_ranks, build_survey
from wallscope.views.sections.steps import build_phases, build_steps
from wallscope.views.sections.walls import build_causes

QUESTIONS = (Question("scale", "communication", 0.5), Question("without", "jitter"))


def list_titles(part):
    """The headings and column heads of a section or table, and of what is in it."""
    if isinstance(part, Section):
        title = part.title if isinstance(part.title, str) else ""
        yield title
        for block in part.blocks:
            yield from list_titles(block)
    elif isinstance(part, Grid):
        yield from (column.brief or column.title for column in part.columns)
        yield from (column.title for column in part.columns)


def list_labels(part):
    """The labels at the margin of the first screen."""
    for block in part.blocks if isinstance(part, Section) else ():
        if isinstance(block, Items):
            for row in block.rows:
                if isinstance(row[0], tuple) and isinstance(row[0][0], Span):
                    yield row[0][0].text.strip(" •")


def build_everything(analysis):
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    yield from views._build_full_analysis(analysis, rank)
    yield from build_first_screen(analysis)
    made = (
        build_ranks(analysis),
        build_survey(analysis),
        build_clocks(analysis),
        build_causes(analysis, rank),
        *build_walls_in_depth(analysis, rank),
        build_phases(analysis, rank),
        build_limits(analysis.capture.findings),
        build_methods(analysis, rank),
        build_steps(analysis, rank, ()),
    )
    yield from (section for section in made if section is not None)


SENTENCE = re.compile(r"[(;:,]| \d| ran | in | of ")
"""A heading goes on with a number or a specification; its first words name the content."""


def name_term(title):
    return SENTENCE.split(title, maxsplit=1)[0].strip()


@pytest.fixture(scope="module")
def example():
    return EXAMPLE


def find_unexplained(titles):
    """Return the terms of titles that explain does not know; the words for a cause are a term as a whole."""
    terms = {title: name_term(title) for title in titles}
    return {
        term for title, term in terms.items() if term and not is_explained(title) and not is_explained(term)
    }


def is_explained(word):
    try:
        return bool(explain_word(word).meaning)
    except UnknownWordError:
        return False


def test_the_words_for_each_cause_are_explained_as_they_stand():
    assert [words for _, words in list_cause_meanings() if not is_explained(words)] == []


def test_headings_columns_and_labels_of_the_example_are_explained(example):
    parts = list(build_everything(analyze_once(example)))
    titles = {title for part in parts for title in (*list_titles(part), *list_labels(part))}

    assert {"Steps", "How sure", "Next"} <= titles
    assert find_unexplained(titles) == set()


def test_headings_and_columns_of_what_if_are_explained(example):
    asked = Asked(QUESTIONS, (replace(QUESTIONS[0], share=0.25),))
    found = ask_what_if(example, Options(), asked, lambda _: None)

    parts = whatif._build_whatif_summary(found)

    assert find_unexplained({title for part in parts for title in list_titles(part)}) == set()


@pytest.mark.skipif(not TRACES.is_dir(), reason="no real captures here: ../shared/traces is absent")
@pytest.mark.parametrize("name", ["nsysai_mfu_before", "als_gpumetrics", "mpi_v100_4rank"])
def test_headings_and_columns_of_real_captures_are_explained(name):
    analysis = analyze_once(TRACES / f"{name}.sqlite")
    parts = list(build_everything(analysis))

    assert find_unexplained({title for part in parts for title in list_titles(part)}) == set()


@pytest.mark.parametrize(
    "word",
    [
        "replay",
        "window",
        "steady",
        "slack",
        "jitter",
        "think",
        "trace-verified",
        "unsplit",
        "host/queue-drained",
        "upper bound",
        "leave-one-out",
        "confidence",
        "no single wall",
        "communication-bound",
        *Wall,
    ],
)
def test_words_of_the_verdict_are_explained(word):
    assert explain_word(word).meaning


def test_a_heading_without_a_term_is_found():
    assert find_unexplained({"Share", "Zzyzx"}) == {"Zzyzx"}
    assert list(list_titles(Section("key", "One", "", (Lines(()), Section("key", "Two", "", ()))))) == [
        "One",
        "Two",
    ]

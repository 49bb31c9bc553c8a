import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from docs_build.fixes import index_facts, write_facts, write_fixes
from wallscope.advice.definitions import cause_notes, notes
from wallscope.advice.explain import explain_word
from wallscope.advice.rules import fix_rules
from wallscope.advice.settings import vocabulary
from wallscope.errors import UnknownWordError

ROOT = Path(__file__).resolve().parents[3]
FACTS = ROOT.parent / "shared" / "facts"
NO_FACTS = {"README.md", "coverage.md", "conflicts.md", "sources.md", "hardware_presets_table.md"}


@pytest.fixture(scope="module")
def known_facts():
    if not FACTS.is_dir():
        pytest.skip("no tables of facts here: ../shared/facts is absent")
    texts = [path.read_text(encoding="utf-8") for path in FACTS.glob("*.md") if path.name not in NO_FACTS]
    return {
        fact for text in texts for fact in re.findall(r"^\| ([A-Z]+\d*-[A-Z]?\d+) \|", text, re.MULTILINE)
    }


def test_every_fact_is_reached_and_none_is_made_up(known_facts):
    assert len(known_facts) == 570
    assert set(index_facts()) == known_facts


@pytest.mark.parametrize(("name", "write"), [("fixes", write_fixes), ("facts", write_facts)])
def test_the_pages_on_fixes_and_facts_are_made_from_the_rules(name, write, request):
    path = ROOT / "docs" / f"{name}.md"
    if request.config.getoption("--golden"):
        path.write_text(write(), encoding="utf-8")

    assert path.read_text(encoding="utf-8") == write()


def test_figures_and_words_of_withdrawn_claims_are_not_promised():
    historic = {"CG-45", "EPO-M7"}

    assert not historic & {fact for rule in fix_rules() for fact in rule.facts}


def test_every_query_that_an_explanation_names_is_there():
    named = {name for note in cause_notes() for name in note.sql}

    assert named <= {path.stem for path in (ROOT / "queries").glob("*.sql")}


def test_topics_that_look_like_fixes_or_causes_are_some():
    ids = {rule.id for rule in fix_rules()}
    causes = [topic for note in notes() for topic in note.topics if "/" in topic]

    assert causes == ["communication/ep"]
    assert {"ep-overlap", "selective-recompute", "cuda-graphs-experts"} <= ids


def test_files_of_rules_hold_rules_alone():
    kinds = {
        path.parent.name: set(tomllib.loads(path.read_text(encoding="utf-8")))
        for path in (ROOT / "wallscope" / "advice" / "rules").glob("*.toml")
    }

    assert kinds == {"rules": {"fix"}}


@cache
def is_explained(word):
    try:
        return bool(explain_word(word).sections)
    except UnknownWordError:
        return False


def rows_of_facts():
    """The ids and texts of the rows of the documents' tables."""
    for path in sorted(FACTS.glob("*.md")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if row := re.match(r"\| ([A-Z]\w*-[A-Z]?\d+[a-z]?) \|(.*)", line):
                yield row[1], row[2]


@pytest.mark.usefixtures("known_facts")
def test_every_row_of_the_documents_is_reached_by_a_word_of_its_own():
    words = {
        fact: re.findall(r"[A-Z]+-\d+|[A-Za-z][A-Za-z0-9_-]{2,}", text) for fact, text in rows_of_facts()
    }

    assert len(words) > 500
    assert {fact for fact, own in words.items() if not any(map(is_explained, sorted(own, key=len)))} == set()


@pytest.mark.usefixtures("known_facts")
def test_every_setting_that_a_document_names_is_explained():
    quoted = {
        word for _, text in rows_of_facts() for part in re.findall("`([^`]+)`", text) for word in part.split()
    }
    settings = {word for word in quoted if vocabulary().name(word) is not None}

    assert len(settings) > 100
    assert {word for word in settings if not is_explained(word)} == set()

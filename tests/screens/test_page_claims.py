"""What pages of real captures state: causes in words, what a bound rests on, and on which step."""

import re
from functools import cache
from html import unescape

import pytest

from tests.advice.explain.test_screen_words import CONTROLS, list_page_labels
from tests.advice.explain.test_terms import find_unexplained
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from tests.test_traces import EXPORTS, TRACES, WITHOUT_DEVICE_OPERATIONS
from wallscope import units
from wallscope.advice.evidence import describe_share
from wallscope.model.capture import Options
from wallscope.model.cause_catalogue import describe_cause, list_cause_meanings
from wallscope.pipeline import analyze_capture, build_report
from wallscope.views.page_analysis import write_analysis_page
from wallscope.views.statement import state_analysis
from wallscope.views.verdict import choose_basis

TORCH = sorted((TRACES / "kineto").glob("*.json.gz"))
ANSWERED = [EXAMPLE, *(path for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS), *TORCH]
PAGED = run_part(ANSWERED, {EXAMPLE.stem, "llama3_real", "clue_r3", "ds_train.json"}, of=81)
KNOWN = [cause.removesuffix("<call>") for cause, _ in list_cause_meanings()]
ID = re.compile(
    rf"(?<![\w/])(?:{'|'.join(map(re.escape, sorted(KNOWN, key=len, reverse=True)))})\w*(?![\w/])"
)


@cache
def paged(path):
    report = build_report(analyze_capture(path, Options(), lambda _: None), lambda _: None)
    return report.analysis, write_analysis_page(report)


def strip(text):
    """Text of a page; a place where a name may break is none."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", text.replace("<wbr>", ""))))


def list_cards(page):
    first = page.partition('<ol class="recs"')[2].partition("</section>")[0]
    return [strip(card) for card in re.split(r'<li class="rec', first)[1:]]


@pytest.mark.parametrize("path", PAGED)
def test_a_cause_is_named_in_words_wherever_its_identifier_stands(path):
    """Commands have identifiers, and tables that have the words in the same row."""
    _, page = paged(path)
    shown = re.sub(r"<(script|style|code)\b.*?</\1>", "", page.partition("<main")[2], flags=re.DOTALL)
    rows = re.findall(r"<tr\b.*?</tr>", shown, re.DOTALL)
    text = strip(re.sub(r"<tr\b.*?</tr>", "", shown, flags=re.DOTALL))
    alone = {
        cause for row in map(strip, rows) for cause in ID.findall(row) if describe_cause(cause) not in row
    }

    assert alone == set()
    assert set(ID.findall(text)) <= {"host/framework"}  # the note that tells it from time after calls


@pytest.mark.parametrize("path", PAGED)
def test_the_first_bound_says_what_is_assumed(path):
    analysis, page = paged(path)
    cards = list_cards(page)
    for fix in (analysis.fixes or ())[:1]:
        if fix.replay is None:
            continue
        for asked in fix.replay.questions:
            if asked.kind == "scale" and asked.share and fix.speedup_ceiling:
                assert any(describe_share(asked) in card for card in cards[:1])


@pytest.mark.parametrize("path", PAGED)
def test_a_bar_of_another_step_than_the_large_number_says_so(path):
    analysis, page = paged(path)
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    basis = choose_basis(analysis, rank)
    if basis.kind != "mean":
        pytest.skip("the page is about the typical step")
    typical, mean = units.duration(rank.typical.step_ns), units.duration(basis.total_ns)
    for card in list_cards(page):
        if card.partition(" → ")[0].endswith(f" {typical.partition(' ')[0]}") and typical != mean:
            assert "on the typical step, without the slow ones" in card
        if card.partition(" → ")[0].endswith(f" {mean.partition(' ')[0]}") and typical != mean:
            assert "on the mean step, slow ones included" in card


@pytest.mark.parametrize("path", PAGED)
def test_every_heading_and_column_of_the_page_is_explained(path):
    _, page = paged(path)
    labels = {*list_page_labels(page)} - CONTROLS

    assert {"What to try", "Time breakdown", "cause"} <= labels
    assert find_unexplained(labels) == set()


def test_host_time_below_the_time_after_a_call_is_called_other():
    paths = {path.stem: path for path in ANSWERED}
    if "llama3_real" not in paths or "clue_r3" not in paths:
        pytest.skip("../shared/traces is absent")
    losses = {
        name: [row.name for row in state_analysis(paged(paths[name])[0]).losses]
        for name in ("llama3_real", "clue_r3")
    }

    assert any(name.startswith("other host time outside CUDA calls") for name in losses["llama3_real"])
    assert not any(name.startswith("other host time") for name in losses["clue_r3"])


MOST_SAME_BEGINNINGS, MOST_WORDS_OF_DOUBT = 0.12, 40
"""As in the documentation; and the words of one of the lines on how sure a verdict is."""


def list_sentences(page):
    """Sentences of four words or more of a page, each once; code, charts and menus have none."""
    body = re.sub(
        r"(?s)<(script|style|code|pre|select)\b.*?</\1>",
        " ",
        page.partition("<main")[2].partition("</main>")[0],
    )
    lines = re.split(r"</?(?!b\b|a\b|i\b|wbr\b|span\b|strong\b|em\b)\w+[^>]*>", body)
    for line in map(strip, lines):
        yield from (one for one in re.split(r"(?<=[.!?]) +(?=[A-Z])", line.strip()) if is_sentence(one))


def is_sentence(text):
    return len(text.split()) >= 4 and text.endswith((".", "!", "?"))


@pytest.mark.parametrize("path", PAGED)
def test_sentences_of_a_page_begin_differently(path):
    sentences = {*list_sentences(paged(path)[1])}
    same = [one for one in sentences if re.match(r"The\b|wallscope\b", one)]

    assert len(sentences) > 20
    assert len(same) < MOST_SAME_BEGINNINGS * len(sentences), same


@pytest.mark.parametrize("path", PAGED)
def test_lines_on_how_sure_a_verdict_is_are_short(path):
    doubts = state_analysis(paged(path)[0]).doubts

    assert [one for one in doubts[:3] if len(f"{one.head} {one.text}".split()) > MOST_WORDS_OF_DOUBT] == []

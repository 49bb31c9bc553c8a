"""How long the users' documentation is, how its sentences begin, and which pictures it shows.

Users' pages are those of the navigation without *Contributors*, the pages made from the code among them.
"""

import re
from functools import cache

import pytest
import yaml

from docs_build import pictures
from docs_build.hooks import MADE
from docs_build.pictures import MARKER, PICTURES, SCREENS, SHOTS, show_pictures, write_svg
from tests.test_docs import ROOT, read_prose_of
from tests.test_language import find_faults

MOST_WORDS, LEAST_PICTURES, MOST_SAME_BEGINNINGS = 60_000, 40, 0.12
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LEADING_MARKS = re.compile(r"^(?:[-*>#]+|\d+\.)\s+")


def list_navigation():
    """The pages below each heading of the navigation."""
    entries = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]
    found = {}
    for entry in entries:
        ((heading, below),) = entry.items()
        pages = [below] if isinstance(below, str) else below
        found[heading] = [page if isinstance(page, str) else next(iter(page.values())) for page in pages]
    return found


NAVIGATION = list_navigation()
USERS = [page for heading, pages in NAVIGATION.items() if heading != "Contributors" for page in pages]


@cache
def read_page(name):
    """The Markdown of a page, also of one that is made from the code."""
    return MADE[name]() if name in MADE else (ROOT / "docs" / name).read_text(encoding="utf-8")


def count_words(text):
    """Words of a page as it is shown: what has a letter or a digit between two spaces."""
    shown = re.sub(r"<!--.*?-->", "", MARKER.sub(lambda match: match["says"], text), flags=re.DOTALL)
    return sum(bool(re.search(r"\w", word)) for word in shown.split())


def list_sentences(text):
    """The sentences of a page, without headings, code and cells that are no sentences."""
    for part in read_prose_of(text):
        for sentence in _SENTENCE_END.split(_LEADING_MARKS.sub("", part)):
            if len(sentence.split()) > 3 and sentence.rstrip('*)"').endswith((".", "!", "?", ":")):
                yield sentence.lstrip("*_[`(")


def test_users_read_at_most_sixty_thousand_words():
    words = {name: count_words(read_page(name)) for name in USERS}

    assert sum(words.values()) <= MOST_WORDS, words


def test_few_sentences_begin_with_the_same_words():
    found = {name: list(list_sentences(read_page(name))) for name in USERS if name not in MADE}
    same = {
        name: [sentence for sentence in sentences if re.match(r"(The|wallscope)\b", sentence)]
        for name, sentences in found.items()
    }
    share = sum(map(len, same.values())) / sum(map(len, found.values()))

    assert sum(map(len, found.values())) > 1_000
    assert share < MOST_SAME_BEGINNINGS, {name: len(one) for name, one in same.items()}


def test_forty_pictures_are_shown_one_on_each_how_to_page():
    shown = {name: [match["name"] for match in MARKER.finditer(read_page(name))] for name in USERS}

    assert len({picture for pictures in shown.values() for picture in pictures}) >= LEAST_PICTURES
    assert [name for name in ("index.md", "get-started.md", *NAVIGATION["How-to"]) if not shown[name]] == []
    assert {picture for pictures in shown.values() for picture in pictures} == set(PICTURES) - UNSHOWN


UNSHOWN = {f"thumbnail-{name}" for name in ("whatif", "trace")}
"""Thumbnails of reports that the gallery does not have."""


@pytest.mark.parametrize("name", USERS)
def test_every_picture_exists_and_says_in_words_what_it_shows(name):
    text = read_page(name)
    found = list(MARKER.finditer(text))

    assert text.count("<!-- picture:") == len(found)
    assert [match["name"] for match in found if match["name"] not in PICTURES] == []
    assert [match["says"] for match in found if len(match["says"].split()) < 4] == []
    assert find_faults(tuple(match["says"] for match in found)) == []


def test_pictures_have_names_of_their_own():
    assert len(PICTURES) == len(SCREENS) + len(SHOTS)


def test_a_picture_becomes_a_figure_and_an_absent_one_a_note(tmp_path):
    (tmp_path / "gaps.svg").write_text("<svg/>", encoding="utf-8")
    asked = "<!-- picture: gaps | Gaps & <i> -->\n<!-- picture: report | The report -->"
    asked = asked.replace("<i>", "links")
    shown = show_pictures(asked, tmp_path)

    assert 'alt="Gaps &amp; links"' in shown
    assert 'src="images/gaps.svg"' in shown
    assert shown.count("<figure>") == 1
    assert "> The report. This picture is not in this build" in shown
    with pytest.raises(KeyError):
        show_pictures("<!-- picture: none | nothing at all -->", tmp_path)


@pytest.mark.slow
def test_without_a_browser_every_screen_is_drawn_and_the_rest_is_noted(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "find_browser", lambda: None)
    said = []
    pictures.build_pictures(tmp_path, said.append)
    drawn = {screen.name: (tmp_path / f"{screen.name}.svg").read_text(encoding="utf-8") for screen in SCREENS}

    assert [name for name, text in drawn.items() if text.count("<text ") < 3] == []
    assert [name for name, text in drawn.items() if str(tmp_path) in text] == []
    assert any("no Chromium" in line for line in said)
    assert show_pictures(f"<!-- picture: {SHOTS[0].name} | A part of a page -->", tmp_path).startswith(
        "> A part"
    )


def test_a_screen_keeps_colors_columns_and_text():
    drawn = write_svg("wallscope x < y", ["a  \x1b[31mred & bold\x1b[0m end", ""], 40)

    assert "wallscope x &lt; y" in drawn
    assert "red &amp; bold" in drawn
    assert len(set(re.findall(r'fill="(#[0-9a-f]{6})"', drawn))) > 5
    places = [float(x) for x in re.findall(r'<tspan x="([\d.]+)"', drawn)]
    assert places == sorted(places[:2]) + sorted(places[2:])


def round_share(text):
    """A share as the pages for users state it."""
    return f"{float(text):.1f}" if float(text) < 9.95 else f"{float(text):.0f}"


def test_the_page_on_comparisons_quotes_the_measured_rates():
    measured, page = read_page("diff.md"), read_page("comparisons.md")
    classes = re.findall(
        r"(?m)^\| noise \w[^|]+\| [\d,]+ \| ([\d.]+) % \| [\d,]+ \| [\d,]+ \| ([\d.]+) % \|", measured
    )
    told = re.findall(r"(?ms)^- \*\*Noise .*?([\d.]+) % of the.*?([\d.]+) % of\s+(?:verdicts|claims)", page)
    grades = [
        re.findall(rf"(?m)^\| all \| {claim} \| (\d+) % .*?\| (\d+) % .*?\| (\d+) % ", measured)[0]
        for claim in ("step", "first cause")
    ]
    found = dict(re.findall(r"(?m)^\| (\d) \| (\d+) % \| \d+ % \|$", measured))

    assert len(classes) == 4
    assert told == [tuple(map(round_share, classes[number])) for number in (0, 1, 3)]
    step, cause = grades
    plain = " ".join(page.split())
    assert (
        f"{step[0]} % of sure claims about the step were right, {step[1]} % of likely ones and {step[2]} %"
        in plain
    )
    assert f"in the headline were right in {cause[0]}, {cause[1]} and {cause[2]} % of cases" in plain
    assert f"step in {found['1']} % of comparisons" in plain
    assert f"with two runs, in {found['2']} %; with three, in {found['3']} %" in plain


def test_the_page_on_trust_quotes_the_measured_accuracy():
    measured, page = read_page("accuracy.md"), read_page("trust.md")
    simulated = measured.partition("<!-- bench: simulation -->")[2].partition("<!-- end -->")[0]
    rows = re.findall(r"(?m)^\| (?:noise, )?with\w* event.*$", simulated)
    verdicts = [re.findall(r"(\d+) of (\d+)", row)[0] for row in rows]
    causes = measured.partition("<!-- bench: causes -->")[2].partition("<!-- end -->")[0]
    named = [tuple(map(int, pair)) for pair in re.findall(r"(\d+) of (\d+)", causes)]
    pairs, median, high, worst = re.findall(
        r"(?m)^\| all \| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|", measured
    )[0]

    assert len(rows) == 4
    assert all(right == of for right, of in verdicts)
    assert f"all {sum(int(right) for right, _ in verdicts)} verdicts" in page
    assert f"At most {max(float(row.split('|')[5].strip(' %')) for row in rows):.2f} % of the time" in page
    assert f"named in {sum(n for n, _ in named[::2])} of {sum(of for _, of in named[::2])} programs" in page
    assert f"in none of {sum(of for _, of in named[1::2])} near misses" in page
    assert sum(n for n, _ in named[1::2]) == 0
    assert (
        f"{median} % (median of {pairs} pairs), {high} % (95th percentile), {float(worst):.0f} % (worst"
        in page
    )

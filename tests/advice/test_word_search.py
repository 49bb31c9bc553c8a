"""Words of people are answered with the right topic; a word without a topic gets no invented answer."""

import tomllib
from pathlib import Path

import pytest

from wallscope.advice.definitions import find_term, find_training_word, list_training_words, spell_form
from wallscope.advice.explain import explain_word
from wallscope.advice.settings import vocabulary
from wallscope.advice.word_search import _list_entries, _match_causes
from wallscope.errors import UnknownWordError

WORDS = tomllib.loads(Path(__file__).with_name("people_words.toml").read_text(encoding="utf-8"))


def text_of(word):
    found = explain_word(word)
    return "\n".join([found.meaning, *(line for section in found.sections for line in section.lines)])


@pytest.mark.parametrize(("word", "part"), WORDS["answered"].items())
def test_a_word_of_people_gets_the_right_answer(word, part):
    assert part in text_of(word)


@pytest.mark.parametrize("word", WORDS["unknown"])
def test_a_word_without_a_topic_gets_no_answer(word):
    with pytest.raises(UnknownWordError, match="unknown topic"):
        explain_word(word)


def test_the_list_of_words_is_long():
    assert len(WORDS["answered"]) > 230


def test_no_two_words_of_training_share_a_spelling_nor_one_with_a_term():
    forms = [{spell_form(one) for one in word.spellings} for word in list_training_words()]

    assert sum(map(len, forms)) == len(set().union(*forms))
    assert [one.name for one in list_training_words() if find_term(one.name)] == []


def test_whatever_an_answer_searches_for_is_somewhere():
    texts = [entry.form for entry in _list_entries()]
    topics = set().union(*(entry.topics for entry in _list_entries()))

    def is_found(wanted):
        form = spell_form(wanted)
        return (
            form in topics
            or wanted in vocabulary().kinds
            or find_term(wanted) is not None
            or any(_match_causes([wanted]))
            or any(f" {form} " in text for text in texts)
        )

    missing = {(word.name, one) for word in list_training_words() for one in word.find if not is_found(one)}
    assert missing == set()


def test_a_word_means_the_same_in_each_spelling():
    for word in list_training_words():
        for spelled in (word.name.replace(" ", "_"), word.name.upper().replace(" ", "-"), f"--{word.name}"):
            assert find_training_word(spelled) is word


@pytest.mark.parametrize("word", ["the", "a", "-", "--", "", "  ", "_"])
def test_words_without_content_are_unknown(word):
    with pytest.raises(UnknownWordError):
        explain_word(word)


def test_flags_are_words(wallscope):
    shown = wallscope("explain", "--overlap-grad-reduce")

    assert shown.code == 0
    assert "overlap_grad_reduce: true or false" in shown.out
    assert wallscope("explain", "--no-such-flag").code == 2

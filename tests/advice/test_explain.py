import re
from pathlib import Path

import pytest

from docs_build.fixes import index_facts
from wallscope.advice.definitions import finding_notes, list_terms, normalize_word, notes
from wallscope.advice.explain import explain_word
from wallscope.advice.rules import fix_rules
from wallscope.advice.word_search import list_topics
from wallscope.errors import UnknownWordError
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.model.finding_codes import FindingCode

PACKAGE = Path(__file__).resolve().parents[2] / "wallscope"


def headings(word):
    return [section.heading for section in explain_word(word).sections]


@pytest.mark.parametrize("cause", [cause for cause, _ in list_cause_meanings()])
def test_every_cause_tells_meaning_computation_fixes_and_sql(cause):
    told = explain_word(cause)

    assert told.kind == "cause"
    assert told.meaning == dict(list_cause_meanings())[cause]
    assert "How it is computed" in headings(cause)
    assert "Fixes" in headings(cause)
    assert any(heading.startswith("queries/") for heading in headings(cause))


@pytest.mark.parametrize("rule", fix_rules(), ids=lambda rule: rule.id)
def test_every_fix_tells_why_what_and_where_from(rule):
    told = {section.heading: section.lines for section in explain_word(rule.id).sections}

    assert told["Why"] == (rule.because,)
    assert [line.partition(": ")[0] for line in told["Causes it addresses"]] == list(rule.causes)
    assert told["How to see that it is active"] == (rule.active,)
    assert told["Source"] == (rule.source,)
    assert sum(len(told.get(entry.system, ())) for entry in rule.all_settings()) >= len(rule.settings)


def test_every_finding_of_the_code_is_explain_word():
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    raised = {name for text in texts for name in re.findall(r"inding\(\s*FindingCode\.([A-Z_]+)", text)}

    assert raised == {entry.code.name for entry in finding_notes()}
    for name in raised:
        assert explain_word(FindingCode[name]).kind == "finding"


@pytest.mark.parametrize("wall", list(Wall))
def test_a_wall_lists_its_causes(wall):
    (causes, *_) = explain_word(wall).sections

    assert len(causes.lines) == sum(cause.startswith(f"{wall}/") for cause, _ in list_cause_meanings())


def test_every_fact_and_topic_is_explain_word():
    topics = {topic for note in notes() for topic in note.topics}

    assert all(explain_word(fact).sections for fact in index_facts())
    assert all(explain_word(topic).meaning for topic in topics if "/" not in topic)


def test_a_drained_queue_is_explained_for_any_call():
    assert explain_word("host/queue-drained/cuEventSynchronize").meaning == (
        "host time after cuEventSynchronize until the next launch"
    )


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("memory/recmopute", "memory/recompute"),
        ("cuda-grpah", "cuda-graphs"),
        ("no-nvt", "no-nvtx"),
        ("zzz", "`wallscope explain` lists the topics"),
        ("", "`wallscope explain` lists the topics"),
    ],
)
def test_an_unknown_word_is_one_line_with_near_names(word, near):
    with pytest.raises(UnknownWordError, match=re.escape(near)) as raised:
        explain_word(word)

    assert "\n" not in str(raised.value)


def test_the_command_prints_and_an_unknown_word_exits_with_2(wallscope):
    shown, unknown = wallscope("explain", "ep-overlap"), wallscope("explain", "nothing-like-it")

    assert (shown.code, shown.err) == (0, "")
    assert "the step got 1.317x faster" in " ".join(shown.out.split())
    assert unknown.code == 2
    assert unknown.err.startswith("wallscope: explain — unknown topic 'nothing-like-it'")
    assert unknown.err.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("vlm", "Qwen3-VL"),
        ("fsdp", "FSDP"),
        ("etp", "ETP"),
        ("dispatcher", "alltoall"),
        ("offload", "offload"),
        ("h100", "H100"),
        ("GB200", "GB200"),
        ("moe_router_dtype", "FP32"),
        ("moe-paged-stash", "from Megatron Bridge 0.5"),
        ("moe_deepep_num_sms", "write moe_flex_dispatcher_num_sms"),
        ("moe_flex_dispatcher_num_sms", "formerly moe_deepep_num_sms, moe_hybridep_num_sms"),
        ("numactl", "cpu-binding"),
    ],
)
def test_words_that_people_use_find_what_names_them(word, named):
    told = explain_word(word)

    assert told.kind == "topic"
    assert any(named in line for section in told.sections for line in section.lines)


def test_all_words_are_listed_and_each_is_explained(wallscope):
    listed = list_topics()
    words = [word for section in listed.sections for line in section.lines for word in line.split(", ")]

    assert len(words) > 400
    assert all(explain_word(word.replace("<call>", "cudaFree")).meaning for word in words)
    shown = wallscope("explain", "--list")
    assert shown.code == 0
    assert "vision-language" in shown.out
    assert wallscope("explain", "fsdp", "--list").code == 2


def test_a_misspelled_word_is_no_word(wallscope):
    assert "did you mean pipeline" in wallscope("explain", "pipelnie").err
    assert "`wallscope explain` lists the topics" in wallscope("explain", "zzzzzz").err


def test_without_a_word_the_topics_are_listed(wallscope):
    shown = wallscope("explain", columns=80)

    assert (shown.code, shown.err) == (0, "")
    assert "slack" in shown.out
    assert "replay window" in " ".join(shown.out.split())
    assert len(shown.out.splitlines()) < 40


@pytest.mark.parametrize(
    "word", ["upper bound", "Upper-Bound", "ceilings", "host/queue-drained", "queue drained", "three walls"]
)
def test_a_term_is_found_in_each_spelling(word, wallscope):
    assert explain_word(word).kind == "term"
    assert wallscope("explain", *word.split()).code == 0


def test_no_two_terms_share_a_spelling():
    spelled = [{normalize_word(word) for word in (term.name, *term.also)} for term in list_terms()]

    assert sum(map(len, spelled)) == len(set().union(*spelled))


@pytest.mark.parametrize("term", list_terms(), ids=lambda term: term.name)
def test_sentences_of_terms_are_short(term):
    assert max(len(sentence.split()) for sentence in re.split(r"(?<=[.!?]) ", term.text)) <= 30


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("data loading on the host", "host/data-loading"),
        (
            "host time after cudaEventSynchronize until the next launch",
            "host/queue-drained/cudaEventSynchronize",
        ),
    ],
)
def test_a_cause_is_found_by_what_screens_call_it(text, cause):
    assert explain_word(text) == explain_word(cause)

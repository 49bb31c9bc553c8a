"""Public names: all are in the index, none is a participle, two are equal only if they mean the same."""

import re
from collections import defaultdict

import pytest

from tests.code_index import ROOT, Name, index_page, public_names

PAGE = ROOT / "docs" / "modules.md"
IRREGULAR = {
    *("told", "said", "made", "kept", "found", "held", "given", "written", "spoken", "taken", "drawn"),
    *("known", "seen", "shown", "sent", "sought", "bound", "built"),
}
NO_PARTICIPLES = {
    "signed": "an adjective of numbers",
    "next_bound": "a limit: a noun",
    "is_compiled": "a question",
    "covered_ns": "a time, with its adjective",
    "passed_ns": "a time, with its adjective",
}
SAME_MEANING = {
    "analyze": "the command, the function of the library, and the pipeline behind both",
    "diff": "the command and the function of the library",
    "main": "the entry point",
    "capture_help": "the command and its text",
    "chain_top": "a compiled loop and what calls it with arrays",
    "farthest": "a compiled loop and what calls it with arrays",
    "find_latest_ends": "a compiled loop and what calls it with arrays",
    "flatten_calls": "a compiled loop and what calls it with arrays",
    "innermost": "a compiled loop and what calls it with arrays",
    "nearest": "a compiled loop and what calls it with arrays",
    "simulate": "a compiled loop and what calls it with arrays",
}


def find_participles(names):
    """Functions and methods whose first or last word is a participle."""
    return {
        name.name
        for name in names
        if name.kind in {"function", "method"}
        for leaf in [name.name.rpartition(".")[2]]
        for word in (leaf.split("_")[0], leaf.split("_")[-1])
        if (word.endswith("ed") or word in IRREGULAR) and not {leaf, word} & set(NO_PARTICIPLES)
    }


def find_doubles(names):
    """Functions and classes that several modules have under one name."""
    modules = defaultdict(set)
    for name in names:
        if name.kind in {"function", "class"} and name.name not in SAME_MEANING:
            modules[name.name].add(name.module)
    return {name for name, found in modules.items() if len(found) > 1}


RULES = {"participles": find_participles, "doubles": find_doubles}


def test_the_index_lists_all_public_functions_and_classes(request):
    if request.config.getoption("--golden"):
        PAGE.write_text(index_page(), encoding="utf-8")

    assert PAGE.read_text(encoding="utf-8") == index_page()


def test_every_public_name_says_what_it_is_in_a_sentence():
    silent = {one for one in public_names() if not re.search(r"\w{3}.*[.:`]$", one.said)}

    assert silent == set()


@pytest.mark.parametrize("rule", RULES)
def test_no_public_name_breaks_a_rule(rule):
    assert RULES[rule](public_names()) == set(), "find another name"


def test_reasons_are_for_names_that_are_there():
    leaves = {name.name.rpartition(".")[2] for name in public_names()}
    words = {word for leaf in leaves for word in leaf.split("_")}

    assert set(NO_PARTICIPLES) <= leaves | words
    assert set(SAME_MEANING) <= leaves


@pytest.mark.parametrize(
    ("name", "kind", "is_one"),
    [
        ("folded", "function", True),
        ("told_on_threads", "function", True),
        ("Cache.mark_used", "method", True),
        ("operations_seen", "function", True),
        ("split_steps", "function", False),
        ("signed_percent", "function", False),
        ("Window.played", "value", False),
        ("Named", "class", False),
    ],
)
def test_a_participle_is_seen(name, kind, is_one):
    assert bool(find_participles([Name("wallscope.made_up", name, kind, "Say it.")])) is is_one


def test_two_names_that_mean_different_things_are_seen():
    one, other = (Name(module, "split", "function", "Split it.") for module in ("wallscope.a", "wallscope.b"))

    assert find_doubles([one, other]) == {"split"}
    assert find_doubles([one, one]) == set()

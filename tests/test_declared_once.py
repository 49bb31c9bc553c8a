"""A column, a finding and a cause are declared in one place; everything else names the declaration."""

import ast
import json
from dataclasses import is_dataclass
from functools import cache
from inspect import get_annotations, getmembers, isclass
from string import Formatter

import pytest

from tests.code_index import ROOT
from wallscope.advice import definitions
from wallscope.advice.definitions import cause_notes, finding_notes
from wallscope.files import read_report
from wallscope.finding_texts import list_finding_texts
from wallscope.model import advice, analysis, capture, diagnosis, frame_rows, rank_summaries
from wallscope.model.cause_catalogue import list_cause_meanings
from wallscope.model.enums import ComputeCategory
from wallscope.model.finding_codes import FindingCode
from wallscope.model.shown import Shown, list_fields
from wallscope.model.table_columns import JOB_TABLES, TABLES

FINDINGS = "wallscope/model/finding_codes.py"
CAUSES = "wallscope/model/cause_catalogue.py"
NOT_FINDINGS = {
    ("wallscope/model/analysis.py", "slower-kernels"): "a reason why a rank is late",
    **{
        (f"wallscope/{module}.py", "no-kernels"): "a reason why the wall is unknown"
        for module in ("model/diagnosis", "summary/verdict", "views/opening", "views/verdict")
    },
}
PREFIXES = {"host/queue-drained/"}
ROWS = [
    row
    for module in (advice, analysis, capture, diagnosis, frame_rows, rank_summaries)
    for _, row in getmembers(module, isclass)
    if row.__module__ == module.__name__ and list_fields(row)
]


@cache
def list_texts(source):
    """Texts in the code of a module, without docstrings."""
    tree = ast.parse(source)
    said = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said
    ]


def find_spelled(ids, home):
    """Modules that spell an id that another one declares."""
    return {
        (path.relative_to(ROOT).as_posix(), text)
        for path in (ROOT / "wallscope").rglob("*.py")
        for text in list_texts(path.read_text(encoding="utf-8"))
        if text in ids and path.relative_to(ROOT).as_posix() != home
    }


def test_a_text_is_found_where_code_spells_it_and_not_in_a_docstring():
    source = (
        '"""few-steps"""\ndef f(a):\n    "no-nvtx"\n    return a == "one-rank" or {"one-gap": f"{a}/x"}\n'
    )

    assert list_texts(source) == ["one-rank", "one-gap", "/x"]


def test_no_module_spells_the_id_of_a_finding():
    assert find_spelled(set(FindingCode), FINDINGS) == set(NOT_FINDINGS)


def test_no_module_spells_a_cause_or_the_beginning_of_one():
    causes = {cause for cause, _ in list_cause_meanings()}

    assert find_spelled(causes | PREFIXES, CAUSES) == set()


@pytest.mark.parametrize(("home", "is_id"), [(FINDINGS, "-"), (CAUSES, "/")], ids=["finding", "cause"])
def test_an_id_is_spelled_once_where_it_is_declared(home, is_id):
    known = {*FindingCode, *(cause for cause, _ in list_cause_meanings())}
    texts = [text for text in list_texts((ROOT / home).read_text(encoding="utf-8")) if is_id in text]
    spelled = [text for text in texts if text in known]

    assert sorted(spelled) == sorted(set(spelled))
    assert spelled


def test_every_finding_is_described_and_nothing_else_is():
    assert sorted(note.code for note in finding_notes()) == sorted(FindingCode)


@pytest.fixture
def unread_notes():
    for read in (finding_notes, cause_notes):
        read.cache_clear()
    yield
    for read in (finding_notes, cause_notes):
        read.cache_clear()


@pytest.mark.usefixtures("unread_notes")
def test_a_note_on_an_unknown_finding_or_cause_is_refused(monkeypatch):
    monkeypatch.setattr(
        definitions, "_note_tables", lambda _: [{"code": "few-stepz", "means": "", "evidence": ""}]
    )
    with pytest.raises(ValueError, match="few-stepz"):
        finding_notes()
    note = {"pattern": "host/lokc", "computed": "", "sql": []}
    monkeypatch.setattr(definitions, "_note_tables", lambda _: [note])
    with pytest.raises(ValueError, match="host/lokc"):
        cause_notes()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_a_row_declares_a_field_once_and_its_docstring_does_not_again(row):
    hints = get_annotations(row)

    assert is_dataclass(row) or set(map(str, hints)) <= {*list_fields(row), "class_"}
    assert all(
        sum(isinstance(note, Shown) for note in getattr(hint, "__metadata__", ())) <= 1
        for hint in hints.values()
    )
    meanings = [shown.meaning for shown in list_fields(row).values()]
    assert all(meanings)
    assert not any(meaning in (row.__doc__ or "") for meaning in meanings)


def test_the_meaning_of_a_column_is_written_in_one_place():
    meanings = [shown.meaning for row in ROWS for shown in set(list_fields(row).values())]
    texts = {
        path.relative_to(ROOT).as_posix(): list_texts(path.read_text(encoding="utf-8"))
        for folder in ("model", "views", "render", "summary", "ranks")
        for path in (ROOT / "wallscope" / folder).rglob("*.py")
    }
    spelled = [
        (meaning, path)
        for meaning in set(meanings)
        for path, own in texts.items()
        for _ in range(own.count(meaning))
    ]

    assert [meaning for meaning in set(meanings) if sum(one == meaning for one, _ in spelled) != 1] == []


def test_tables_take_every_column_from_a_row():
    declared = {
        (shown.column or name, part)
        for row in ROWS
        for name, shown in list_fields(row).items()
        for part in [shown.meaning.partition("{")[0]]
    }

    for table in (*TABLES, *JOB_TABLES):
        for column in table.columns:
            assert any(name == column.name and column.meaning.startswith(part) for name, part in declared), (
                column
            )


@pytest.mark.parametrize("row", [row for row in ROWS if is_dataclass(row)], ids=lambda row: row.__name__)
def test_the_published_schema_says_what_a_field_means(row):
    schemas = [
        json.loads(read_report(f"{name}.schema.json")) for name in ("analysis", "check-config", "comparison")
    ]
    published = [
        schema["$defs"][row.__name__] for schema in schemas if row.__name__ in schema.get("$defs", {})
    ]

    assert published
    for part in published:
        told = {key: part["properties"][key].get("description") for key in list_fields(row)}
        assert told == {key: shown.describe() for key, shown in list_fields(row).items()}


def test_every_category_of_compute_is_a_cause():
    assert {f"compute/{category}" for category in ComputeCategory} <= {
        cause for cause, _ in list_cause_meanings()
    }


COMPOSED = {
    "configuration-impossible": "what is impossible is said by each check of sizes",
    "no-device-operations": "the reader says what is missing",
    "no-nvtx": "says what the export has instead",
    "orphan-operations": "says which operations, and why",
    "rank-contradiction": "names the sources that disagree",
    "replay-unfaithful": "says by how much, and where",
}
"""Findings of which a stage writes a text itself."""


def is_call(node, name):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


@cache
def list_calls(name):
    """Calls of a function by its name: `file:line` and the call."""
    texts = [(path, path.read_text(encoding="utf-8")) for path in sorted((ROOT / "wallscope").rglob("*.py"))]
    return [
        (f"{path.name}:{node.lineno}", node)
        for path, text in texts
        if f"{name}(" in text
        for node in ast.walk(ast.parse(text))
        if is_call(node, name)
    ]


def list_sites():
    """Calls that make a finding from its text: the call, code, variants, filled-in names, and settings.

    One that computes its variant may make each text of the finding.
    """
    settings = {"severity", "cure", "covers_ns"}
    for place, node in list_calls("make_finding"):
        code = FindingCode[node.args[0].attr]
        chosen = node.args[1] if len(node.args) > 1 else ast.Constant("")
        variants = {chosen.value} if isinstance(chosen, ast.Constant) else set(list_finding_texts()[code])
        given = {keyword.arg for keyword in node.keywords}
        yield place, code, variants, given - settings, given & settings


def list_places(text):
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def test_a_finding_fills_in_all_places_of_its_text_and_no_other():
    texts = list_finding_texts()
    given = {place: (places, "severity" in settings) for place, *_, places, settings in list_sites()}
    declared = {
        place: (
            set().union(*(list_places(text.get(key, "")) for text in own for key in ("lead", "text", "do"))),
            any("severity" not in text for text in own),
        )
        for place, code, variants, *_ in list_sites()
        for own in [[texts[code][variant] for variant in variants]]
    }

    assert len(given) > 50
    assert given == declared


def test_every_text_of_a_finding_is_used_and_others_are_composed():
    declared = {(code, variant) for code, texts in list_finding_texts().items() for variant in texts}

    assert declared == {(code, variant) for _, code, variants, _, _ in list_sites() for variant in variants}
    assert set(FindingCode) - {code for code, _ in declared} <= set(COMPOSED)
    made = [
        place
        for place, node in list_calls("Finding")
        if isinstance(node.args[0], ast.Attribute)
        and node.args[0].value.id == "FindingCode"
        and str(FindingCode[node.args[0].attr]) not in COMPOSED
    ]
    assert made == []

"""A name is assigned once, imports have no circle, and no sentence of ours is taken apart again."""

import ast

import pytest

from benchmarks.house import (
    ROOT,
    ROWS,
    find_double_names,
    find_import_circles,
    find_parsed_prose,
    find_parsed_prose_of,
    list_unnamed_tests,
)
from benchmarks.house_traces import count_returns_to_files


def test_no_module_assigns_a_name_twice():
    assert find_double_names() == ()


def test_no_modules_import_each_other():
    assert find_import_circles() == ()


def test_no_sentence_of_ours_is_taken_apart():
    assert find_parsed_prose() == (), "give the value a field instead"


@pytest.mark.parametrize(
    "statement",
    [
        "x = analysis.diagnosis.verdict.partition('. ')[0]",
        "x = fix.why.lower().startswith('memory')",
        "low = units.percent(share); x = low.removesuffix(' %')",
        "low, high = map(units.percent, shares); x = low.removesuffix(' %')",
        "x = [line.partition(': ') for line in program.evidence]",
        "x = describe_cause(cause).split(', ')",
        "x = re.sub('a', 'b', finding.message)",
        "x = _SENTENCE.match(finding.message)",
        "x = finding.message[:40]",
        "x = 'unknown' in finding.message",
        "text = explain(found); text = f'{text}.'; x = text.rstrip('.')",
        "(head, rest) = (job.verdict, 1); x = head.endswith('.')",
    ],
)
def test_a_sentence_taken_apart_is_found(statement):
    assert find_parsed(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "x = kernel.name.partition('<')",
        "x = cause.split('/')",
        "x = fix.why",
        "x = program.evidence[:2]",
        "x = finding.code in {'no-kernels'}",
        "x = f'{finding.message} {finding.cure}'.strip()",
        "x = replace(fix, why='')",
    ],
)
def test_other_strings_are_left_alone(statement):
    assert not find_parsed(statement)


def find_parsed(statement):
    return find_parsed_prose_of("planted", ast.parse(f"def planted(found):\n    {statement}\n"))


def test_a_return_is_an_entry_of_a_file_already_left():
    assert count_returns_to_files(["a", "a", "b", "a", "b", "c"]) == 2


def test_every_row_has_a_goal_and_the_figure_of_the_start():
    assert [row.name for row in ROWS if not (row.stated and row.start and row.goal)] == []


def test_tests_of_packages_are_named_after_what_they_test():
    assert list_unnamed_tests(sorted((ROOT / "tests").rglob("test_*.py"))) == ()


@pytest.mark.parametrize(
    ("path", "is_named"),
    [
        ("trace/test_steps.py", True),
        ("trace/steps/test_selection.py", True),
        ("views/sections/test_walls.py", True),
        ("screens/test_one_number.py", True),
        ("trace/test_selection.py", False),
        ("trace/stepping/test_selection.py", False),
    ],
)
def test_a_test_of_no_module_is_found(path, is_named):
    assert (list_unnamed_tests([ROOT / "tests" / path]) == ()) is is_named

import json
import re
from dataclasses import replace
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from rich.console import Console

from tests.compare.test_compare import steps
from tests.profile.random_profiles import OPERATIONS, profile_of, work
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.compare.gates import parse_gate
from wallscope.files import read_report
from wallscope.model.comparison import Explanation
from wallscope.model.enums import Grade
from wallscope.render.data import write_json
from wallscope.units import join_ends, signed_duration
from wallscope.views.comparison import render_comparison, write_comparison_junit, write_comparison_markdown
from wallscope.views.comparison_answers import build_comparison_answers
from wallscope.views.comparison_words import (
    describe_change,
    describe_sureness,
    name_leading_change,
    write_tested_interval,
)

HOSTILE = "kern</details>|<img src=x>@all\x1b[31m`"


@pytest.fixture(scope="module")
def slower():
    hostile = (*OPERATIONS[:5], ("", "elementwise", HOSTILE, None, None, None, "compute/elementwise"))
    gates = (parse_gate("step>3%"), parse_gate("communication>50%"))
    return compare_sides(
        Side("base.json", ((profile_of("a", steps(20)),),)),
        Side("head.json", ((profile_of("b", steps(20, 1.1, seed=2), operations=hostile),),)),
        CompareOptions(gates=gates),
    )


@pytest.fixture(scope="module")
def unlike():
    return compare_sides(
        Side("a", ((profile_of("a", steps(9)),),)),
        Side("b", ((profile_of("b", steps(9), work(gpu="NVIDIA A100")),),)),
        CompareOptions(),
    )


def shown(comparison, columns, **options):
    console = Console(width=columns, file=None, highlight=False, color_system=None)
    with console.capture() as page:
        console.print(render_comparison(comparison, **options))
    return "\n".join(line.rstrip() for line in page.get().split("\n"))


@pytest.mark.parametrize("columns", [80, 140])
def test_a_comparison_on_a_terminal(slower, columns, golden):
    golden(f"comparison-{columns}.txt", shown(slower, columns))


def test_the_first_line_after_the_names_is_the_verdict(slower, unlike):
    opening = r"SLOWER: the typical step rose from 100\.\d to 109\.\d ms \(\+\d"
    assert re.match(opening, shown(slower, 140).split("\n")[3])
    told = shown(unlike, 140).split("\n")[3:5]
    assert told[0] == "NOT COMPARABLE: the sides differ in GPU."
    assert told[1].startswith("GPU: NVIDIA H100 and NVIDIA A100.")


def test_markdown_is_that_of_the_comparison_and_holds_no_foreign_markup(slower, golden):
    text = write_comparison_markdown(slower)

    golden("comparison.md", text)
    assert not re.search(r"(?<!\\)<(?!/?(details|summary)>)", text)
    assert "\x1b" not in text
    assert text.count("</details>") == 1
    assert "@all" not in text


def test_a_faster_head_has_its_dominant_wall_and_the_next_command(slower):
    faster = compare_sides(
        Side("base.json", ((profile_of("b", steps(20, 1.1, seed=2)),),)),
        Side("head.json", ((profile_of("a", steps(20)),),)),
        CompareOptions(),
    )
    share = {row.wall: row.head_ns for row in faster.deltas.walls}
    words = r"Head is (\w+)-bound: \1(?: time)? takes ([0-9.]+) % of its typical step, compute ([0-9.]+) %\."
    (dominant,) = re.findall(words, shown(faster, 140).replace("\n", " "))

    assert faster.verdict == "improvement"
    whole_ns = sum(share.values())
    assert float(dominant[1]) == pytest.approx(100 * share[dominant[0]] / whole_ns, abs=0.06)
    assert float(dominant[2]) == pytest.approx(100 * share["compute"] / whole_ns, abs=0.06)
    assert "wallscope analyze run.sqlite" in shown(faster, 140)
    assert "wallscope analyze 'my runs/b.sqlite'" in shown(faster, 140, named="my runs/b.sqlite")
    assert "wallscope analyze" not in shown(slower, 140)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param(0.5, "more work runs, {size}", id="half of the cause"),
        pytest.param(3.0, "more work runs, {size}", id="more than the step"),
        pytest.param(-0.5, "gemm kernels in forward, {cause}", id="the other direction"),
        pytest.param(None, "more work runs, {cause}", id="unknown"),
    ],
)
def test_what_is_named_first_has_its_own_size_on_every_screen(slower, part, expected):
    leading = max(slower.deltas.walls, key=lambda row: row.delta_ns)
    cause = max(
        (row for row in slower.deltas.causes if row.wall == leading.wall), key=lambda row: row.delta_ns
    )
    size_ns = None if part is None else round(part * cause.delta_ns)
    found = Explanation("kernels-changed", "More work runs", size_ns, (cause.cause,))
    explained = replace(slower, explanations=(found,))
    change_ns = slower.step.head_typical_ns - slower.step.base_typical_ns

    def write(part_ns):
        if part_ns >= change_ns:
            return f"{signed_duration(part_ns)} (everything else: {signed_duration(change_ns - part_ns)})."
        return join_ends(signed_duration(part_ns), signed_duration(change_ns), " of ")

    named = name_leading_change(explained)
    said = expected.format(size=write(size_ns or 0), cause=write(cause.delta_ns))
    assert f"Cause: {said}" in describe_change(explained)
    assert f"Cause: {said}" in write_comparison_markdown(explained).replace("\\", "")
    answer = next(one for one in build_comparison_answers(explained) if one.label == "Cause of the change")
    assert answer.lines[0].startswith(signed_duration(named.delta_ns))


@pytest.mark.parametrize(("high", "is_given"), [(0.3084, False), (0.309, True)])
def test_an_interval_that_rounds_to_one_number_is_left_out(slower, high, is_given):
    step = replace(slower.step, pair_ratio_low=0.3082, pair_ratio_high=high)

    assert ("Without this noise" in describe_sureness(replace(slower, step=step))) is is_given


def test_what_is_detectable_is_said_only_where_nothing_was_detected(slower):
    same = compare_sides(
        Side("base.json", ((profile_of("a", steps(20)),),)),
        Side("head.json", ((profile_of("b", steps(20, seed=2)),),)),
        CompareOptions(),
    )

    assert same.verdict not in {"regression", "improvement"}
    assert "an 80 % chance of detecting a change of +" in describe_sureness(same)
    assert "would detect" not in describe_sureness(slower)


@pytest.mark.parametrize(
    ("low_ns", "high_ns", "grade", "expected"),
    [
        (18_000, 270_000, None, "+0.018 … +0.27 ms, not significant among all causes"),
        (18_000, 270_000, Grade.POSSIBLE, "+0.018 … +0.27 ms, possible"),
        (18_000, 270_000, Grade.LIKELY, "+0.018 … +0.27 ms, likely"),
        (18_000, 270_000, Grade.SURE, "+0.018 … +0.27 ms"),
        (-18_000, 270_000, Grade.LIKELY, "-0.018 … +0.27 ms"),
        (None, None, None, ""),
    ],
)
def test_an_interval_that_excludes_0_says_how_certain_that_is(slower, low_ns, high_ns, grade, expected):
    row = replace(slower.deltas.causes[0], low_ns=low_ns, high_ns=high_ns, grade=grade)

    assert write_tested_interval(row, among="causes") == expected


@pytest.mark.parametrize(("slow", "expected"), [(5, False), (6, True)])
def test_a_side_whose_slow_steps_are_over_a_quarter_differs_widely(slower, slow, expected):
    step = replace(slower.step, head_slow_steps=slow, head_steps=20, base_slow_steps=0)
    text = describe_sureness(replace(slower, step=step))

    assert ("The steps of head differ widely" in text) is expected
    assert "The steps of base" not in text


def test_junit_has_a_case_a_gate(slower, unlike):
    suite = ET.fromstring(write_comparison_junit(slower))

    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert suite.find("testcase/failure").get("message").startswith("step 100")
    assert [case.get("name") for case in suite] == ["step>3%", "communication>50%"]
    assert ET.fromstring(write_comparison_junit(unlike)).get("failures") == "1"


def test_the_json_follows_the_published_schema(slower, unlike):
    schema = json.loads(read_report("comparison.schema.json"))
    for comparison in (slower, unlike):
        text = write_json(comparison)
        jsonschema.validate(json.loads(text), schema)
        assert text.isascii()

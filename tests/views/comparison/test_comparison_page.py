"""The comparison's page as text: its numbers are those of the JSON, nothing of an export leaves its place."""

import json
import re
from dataclasses import replace
from html import unescape

import polars as pl
import pytest

from tests.compare.test_compare import steps
from tests.conftest import slow
from tests.profile.random_profiles import OPERATIONS, profile_of, work
from tests.views.test_page_analysis import HOSTILE, elements
from wallscope import units
from wallscope.compare.compare import CompareOptions, Side, compare_sides, comparison_report
from wallscope.compare.gates import parse_gate
from wallscope.model.cause_catalogue import name_cause
from wallscope.model.enums import Wall
from wallscope.render.data import write_json
from wallscope.views.comparison import write_comparison_page

GATES = (parse_gate("step>3%"), parse_gate("communication>50%"))


def reported(base, head, asked=None, names=("base.json", "head.json")):
    """The report on two sides, each given by its runs."""
    sides = [Side(name, runs) for name, runs in zip(names, (base, head), strict=True)]
    asked = asked or CompareOptions()
    return comparison_report(compare_sides(*sides, asked), *sides, asked.rank)


def one(fingerprint, *arguments, **options):
    return ((profile_of(fingerprint, *arguments, **options),),)


@pytest.fixture(scope="module")
def slower():
    return reported(one("a", steps(20)), one("b", steps(20, 1.1, seed=2)), CompareOptions(gates=GATES))


@pytest.fixture(scope="module")
def hostile():
    named = (*OPERATIONS[:5], (HOSTILE, "elementwise", HOSTILE, None, None, None, "compute/elementwise"))
    asked = CompareOptions(gates=GATES)
    return reported(
        one("a", steps(20)), one("b", steps(20, 1.1, seed=2), operations=named), asked, (HOSTILE, HOSTILE)
    )


def rows(text, caption):
    """The cells of the table with that caption, as people read them."""
    table = text.partition(f"<figcaption>{caption}")[2].partition("</table>")[0]
    found = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr[^>]*>(.*?)</tr>", table)]
    return [[unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in found if row]


def ms(time_ns):
    """A time as tables of pages have it, with its unit in the head of the column."""
    return units.milliseconds(time_ns).removesuffix(" ms")


def signed_ms(time_ns):
    return units.signed_milliseconds(time_ns).removesuffix(" ms")


def charts(text):
    return {name: json.loads(spec) for name, spec in re.findall(r'data-chart="chart-([\w-]+)">(.*?)</', text)}


def test_the_first_screen_has_the_verdict_the_gates_and_both_sides_of_each_wall(slower):
    text = write_comparison_page(slower)
    found = json.loads(write_json(slower.comparison))
    table = text.partition('class="sides"')[2].partition("</table>")[0]
    walls = re.findall(r"</span>(\w+)</th><td>(.*?)</td><td>(.*?)</td><td>(.*?)</td>", table)
    gates = re.findall(r"<li><b class=\"(\w+)\">.*?<code>(.*?)</code> (.*?)</li>", text)

    opening = r'regression">SLOWER</span>: the typical step rose from 100\.\d to 1[^<]*</h1>'
    assert re.search(opening + r'\s*<p class="lead"><b>The typical step changed by \+9\.\d', text)
    assert re.search(r"<dt>Cause of the change.*?ms; the step: \+\d", text)
    assert [(wall, unescape(base), unescape(head), unescape(by)) for wall, base, head, by in walls] == [
        (
            row["wall"],
            ms(row["base_ns"]),
            ms(row["head_ns"]),
            signed_ms(row["delta_ns"]),
        )
        for row in found["deltas"]["walls"]
    ]
    assert [(unescape(gate), unescape(said)) for _, gate, said in gates] == [
        (gate["gate"], gate["evidence"]) for gate in sorted(found["gates"], key=lambda gate: gate["held"])
    ]
    assert [state for state, *_ in gates] == ["blocked", "held"]
    answers = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", text))
    assert list(answers) == ["Cause of the change", "Do next", "How sure"]
    step = slower.comparison.step
    assert f"up to {step.head_typical_ns / step.base_typical_ns:.2f}x" in answers["Do next"]
    assert "Undo the change" in answers["Do next"]


def test_tables_hold_the_numbers_of_the_json(slower):
    text = write_comparison_page(slower)
    found = json.loads(write_json(slower.comparison))
    causes = rows(text, "Change of the step by cause")
    operations = rows(text, "Change of the step by operation")
    communication = rows(text, "Communication by axis")

    assert [[row[0], *row[2:5]] for row in causes] == [
        [
            row["cause"],
            ms(row["base_ns"]),
            ms(row["head_ns"]),
            signed_ms(row["delta_ns"]),
        ]
        for row in found["deltas"]["causes"]
    ]
    assert [(row[2], row[3]) for row in operations] == [
        (name_cause(row["cause"]), signed_ms(row["delta_ns"])) for row in found["deltas"]["operations"]
    ]
    assert [(row[0], row[1]) for row in communication] == [
        (row["axis"], signed_ms(row["delta_ns"])) for row in found["communication"]
    ]


def test_the_way_from_base_to_head_adds_up_to_the_nanosecond(slower):
    way = charts(write_comparison_page(slower))["way"]
    step = slower.comparison.step
    times = {
        name: time_ns
        for trace in way["traces"]
        for name, (_, time_ns) in zip(trace["y"], trace["customdata"], strict=True)
    }
    order = way["layout"]["yaxis"]["categoryarray"]

    assert (order[0], order[-1]) == ("base step", "head step")
    assert times["base step"] == step.base_typical_ns
    assert times["head step"] == step.head_typical_ns
    assert sum(times[name] for name in order[:-1]) == step.head_typical_ns


def test_steps_of_both_sides_are_those_that_the_comparison_counts(slower):
    step = slower.comparison.step
    for side, count, median_ns in (
        (slower.base, step.base_steps, step.base_median_ns),
        (slower.head, step.head_steps, step.head_median_ns),
    ):
        counting = side.steps.filter("counts")
        assert len(counting) == count
        assert counting["length_ns"].median() == pytest.approx(median_ns, abs=1)
        walls = pl.sum_horizontal(f"{wall}_wall_ns" for wall in Wall)
        assert side.steps.select((walls == pl.col("length_ns")).all()).item()


def test_steps_are_scaled_where_tokens_differ():
    report = reported(
        one("a", steps(20), work(tokens=1_000)), one("b", steps(20, seed=2), work(tokens=2_000))
    )

    assert report.comparison.step.tokens == 1_000
    assert report.head.steps["length_ns"].median() == pytest.approx(
        report.comparison.step.head_median_ns, abs=5
    )
    assert "scaled to tokens" in write_comparison_page(report)


@pytest.mark.parametrize(
    ("base", "head", "said"),
    [
        pytest.param(
            one("a", steps(20)),
            one("a", steps(20)),
            ("NO CHANGE", "Both sides are the same capture", "Do next Give captures of two different runs"),
            id="same",
        ),
        pytest.param(
            one("a", steps(9)),
            one("b", steps(9), work(gpu="NVIDIA A100")),
            (
                "NOT COMPARABLE",
                "NVIDIA H100 and NVIDIA A100",
                "describe two different runs",
                "Do next Compare captures of the same work To compare these runs anyway, add",
                "Cause of the change Unknown The sides cannot be compared.",
            ),
            id="incomparable",
        ),
        pytest.param(
            one("a", steps(6, jitter=0.3)),
            one("b", steps(6, 1.05, seed=4, jitter=0.3)),
            ("INCONCLUSIVE", "the noise between runs is assumed", "Do next Capture "),
            id="inconclusive",
        ),
        pytest.param(
            tuple(one(f"a{run}", steps(9, seed=run))[0] for run in range(3)),
            tuple(one(f"b{run}", steps(9, 1.2, seed=9 + run))[0] for run in range(3)),
            ("SLOWER", "27 steps of 3 runs and 27 steps of 3 runs", "Do next Undo the change"),
            id="several runs",
        ),
        pytest.param(
            one("a", steps(2)),
            one("b", steps(2, 1.2, seed=3)),
            ("INCONCLUSIVE", "too few to distinguish", "Do next Capture at least 10 steps of each side"),
            id="few steps",
        ),
    ],
)
def test_each_outcome_says_what_it_is(base, head, said):
    report = reported(base, head)
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", write_comparison_page(report))))

    assert [part for part in said if part.lower() not in text.lower()] == []


@pytest.mark.parametrize("factor", [1.03, *slow(1.06, 1.1), 1.3])
@pytest.mark.parametrize("count", [6, *slow(9), 30])
def test_a_cause_is_to_be_removed_only_where_one_is_named(factor, count):
    page = write_comparison_page(reported(one("a", steps(count)), one("b", steps(count, factor, seed=3))))
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", page)))

    is_unknown = "Cause of the change Unknown" in text
    assert not (is_unknown and "or remove its cause" in text)
    assert is_unknown or not re.search(r"or find its cause", text)


def test_a_capture_beside_itself_has_no_way_and_no_operations():
    text = write_comparison_page(reported(one("a", steps(20)), one("a", steps(20))))

    assert set(charts(text)) == {"both-steps"}
    assert "No cause changed." in text
    assert 'id="operations"' not in text


def test_runs_are_told_apart_in_the_steps():
    base = tuple(one(f"a{run}", steps(9, seed=run))[0] for run in range(3))
    text = write_comparison_page(reported(base, one("b", steps(9))))
    (trace, *_) = charts(text)["both-steps"]["traces"]

    assert {said.partition(", step")[0] for _, said in trace["customdata"]} == {
        *(f"base, run {run}" for run in range(3)),
        "head, run 0",
    }
    assert [row[1:3] for row in rows(text, "Lengths of the steps") if row[0] == "runs"] == [["3", "1"]]
    assert [row[0] for row in rows(text, "Captures")] == ["base"] * 3 + ["head"]


def test_other_ranks_are_listed():
    from dataclasses import replace

    def run(fingerprint, factor, seed):
        ranks = []
        for rank in (3, 4):
            profile = profile_of(f"{fingerprint}{rank}", steps(9, factor, seed + rank))
            ranks.append(replace(profile, header=replace(profile.header, rank=rank)))
        return (tuple(ranks),)

    report = reported(run("a", 1.0, 1), run("b", 1.1, 5))
    (row,) = rows(write_comparison_page(report), "Typical step of the other ranks")
    (told,) = report.comparison.ranks

    assert row == [
        f"rank {told.rank}",
        ms(told.base_typical_ns),
        ms(told.head_typical_ns),
        units.signed_percent(told.ratio - 1).removesuffix(" %"),
    ]


def test_hostile_names_stay_text(hostile, slower):
    text, plain = write_comparison_page(hostile), write_comparison_page(slower)
    scripts, others = (
        [attributes for tag, attributes in elements(page) if tag == "script"] for page in (text, plain)
    )

    assert {tag for tag, _ in elements(text)} <= {tag for tag, _ in elements(plain)}
    assert scripts == others
    assert not any(name.startswith("on") for _, attributes in elements(text) for name in attributes)
    assert not set("\x1b\u202e\u2028\r") & set(text)
    assert "&lt;script&gt;" in text


def test_the_page_is_the_same_bytes_twice_and_asks_for_nothing(slower):
    text = write_comparison_page(slower)
    loading = [
        value
        for _, attributes in elements(text)
        for name, value in attributes.items()
        if name in {"src", "href", "srcset", "action", "poster"} and not value.startswith(("#", "data:"))
    ]

    assert text == write_comparison_page(slower)
    assert loading == []
    assert "default-src 'none'" in unescape(text)
    assert 'id="timelines"' not in text


def test_an_interval_that_is_wider_than_that_of_the_step_is_explained(slower):
    step, walls = slower.comparison.step, slower.comparison.deltas.walls
    width_ns = round((step.ratio_high - step.ratio_low) * step.base_typical_ns)

    def write(noise, low_ns):
        wide = replace(walls[0], low_ns=low_ns, high_ns=0, run_noise=noise, run_noise_source="assumed")
        others = (replace(one, low_ns=None, high_ns=None) for one in walls[1:])
        deltas = replace(slower.comparison.deltas, walls=(wide, *others))
        changed = replace(slower.comparison, deltas=deltas, step=replace(step, run_noise=0.01))
        return write_comparison_page(replace(slower, comparison=changed))

    said = "A wall can have a wider interval than the step:"
    assert said in write(0.2, -2 * width_ns - 2)
    assert said not in write(0.01, -2 * width_ns - 2)
    assert said not in write(0.2, 0)

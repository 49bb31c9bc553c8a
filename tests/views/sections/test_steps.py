"""Gaps on a terminal: like ones of several steps are one block, moments outside all steps are refused."""

import io

import pytest
from rich.console import Console

from wallscope.errors import SelectionError
from wallscope.model.report import GAPS, Gap, Link, Moment
from wallscope.render.terminal import render_sections
from wallscope.views.sections.steps import build_gaps, build_moments

KERNEL = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int)"


def gap(step, length_ns, cause="host/data-loading", ended_by=KERNEL):
    start_ns = 1_000_000 * step
    row = dict.fromkeys(GAPS) | {
        "device": 0,
        "pid": 7,
        "step": step,
        "steady": True,
        "start_ns": start_ns,
        "duration_ns": length_ns,
        "cause": cause,
        "cause_ns": length_ns,
        "ended_by": ended_by,
        "stream": 3,
    }
    return Gap(row, (Link(start_ns, start_ns + length_ns, cause, "thread 7", None, "step # / load"),))


def shown(gaps, columns=80):
    page = io.StringIO()
    Console(file=page, width=columns, markup=False, highlight=False).print(render_sections(build_gaps(gaps)))
    return page.getvalue()


def test_like_gaps_of_several_steps_are_told_once_by_the_longest():
    text = shown([gap(5, 9_000), gap(2, 7_000), gap(3, 8_000)])

    assert text.count("vectorized_elementwise_kernel FillFunctor on stream 3") == 1
    assert "step 5, ended by" in text
    assert "2 similar gaps (7.0 µs to 8.0 µs) in steps 2, 3" in " ".join(text.split())


@pytest.mark.parametrize(
    "other",
    [gap(2, 7_000, cause="host/framework"), gap(2, 7_000, ended_by="memset"), gap(2, 7_000, ended_by=None)],
)
def test_gaps_of_another_cause_or_end_are_apart(other):
    text = shown([gap(5, 9_000), other])

    assert "similar gap" not in text
    assert "step 5, " in text
    assert "step 2, " in text


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_chains_fit_the_terminal(columns):
    assert max(map(len, shown([gap(5, 9_000)], columns).split("\n"))) <= columns


def test_a_moment_in_no_step_is_refused():
    outside = Moment({"rank": None, "pid": 1, "device": 0}, None, ())

    with pytest.raises(SelectionError, match="lies in no step"):
        build_moments((outside,), 5)


def test_the_parts_of_the_first_kinds_are_shown_and_the_others_have_a_line_each():
    text = shown([gap(step, 10_000 - step, cause=f"host/other-call-{step}") for step in range(9)])

    assert text.index("Gaps in steady steps come first") < text.index("start") < text.index("process 7") + 80
    assert text.count("ended by") == 6
    assert all(f"host/other-call-{step} 10.0 µs" in text for step in range(9))
    assert text.index("host/other-call-5") < text.index("Other gaps") < text.index("host/other-call-6")


def test_a_gap_of_a_step_that_is_not_steady_says_so():
    one = gap(5, 9_000)
    one.row["steady"] = False

    assert "step 5 (not steady), ended by" in shown([one])

"""The kernels of the step that a page shows, against sums over its operations one by one."""

from collections import defaultdict

import pytest

from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Options
from wallscope.pipeline import analyze_capture, build_report
from wallscope.render.texts import shorten_name, visible
from wallscope.views.sections.kernels import build_kernels


@pytest.fixture(scope="module")
def report():
    return build_report(analyze_capture(EXAMPLE, Options(), lambda _: None), lambda _: None)


def test_the_kernels_of_the_shown_step_are_counted_and_summed(report):
    lengths = defaultdict(list)
    for row in report.timelines[0].operations.iter_rows(named=True):
        if row["wall"] in {"compute", "communication"}:
            lengths[row["name"], row["what"]].append(row["end_ns"] - row["start_ns"])
    section = build_kernels(report)
    (table,) = section.blocks
    total_ns = sum(map(sum, lengths.values()))
    longest = sorted(lengths.items(), key=lambda one: (-sum(one[1]), one[0][0]))

    assert section.answer.startswith(f"{sum(map(len, lengths.values())):,} kernels of step ")
    assert 10 < len(table.rows) < len(lengths)
    for row, ((name, what), own) in zip(table.rows, longest, strict=False):
        assert row[0].value.startswith(visible(shorten_name(name), most=64))
        assert row[0].hint == visible(name, most=300)
        assert row[1:4] == (what, len(own), sum(own))
        assert row[4] == pytest.approx(sum(own) / total_ns)
        assert row[5:] == (round(sum(own) / len(own)), max(own))
    assert len({row[0].value for row in table.rows}) == len(table.rows)
    assert table.notes == (f"{len(lengths) - len(table.rows)} more names: wallscope kernels FILE",)

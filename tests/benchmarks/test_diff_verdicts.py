import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.diff_tables import (
    COVERED,
    Rate,
    Setting,
    choose_again,
    classify,
    is_outside,
    summarize,
    tabulate_again,
)
from benchmarks.diff_verdicts import (
    PARTS,
    STEPS_OF_CLAIMS,
    WHOLE,
    _Library,
    count_again,
    count_claims,
    find_power,
    vary_runs,
)
from benchmarks.marks import put
from benchmarks.noise_laws import ALL_LAWS, WALLS, draw_runs
from tests.conftest import slow

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "diff.md").read_text(encoding="utf-8")
PAIRS = 60


@pytest.fixture(scope="module")
def rates():
    return count_claims(0, (6, 6), PAIRS)


@pytest.mark.parametrize("law", ALL_LAWS, ids=lambda law: law.name)
def test_walls_and_causes_of_drawn_steps_add_up(law):
    found = draw_runs(law, np.random.default_rng(1), 20, 30)
    walls, causes = found[..., 1 : 1 + len(WALLS)], found[..., 1 + len(WALLS) :]

    assert walls.sum(axis=-1) == pytest.approx(found[..., 0])
    assert causes.sum(axis=-1) == pytest.approx(found[..., 0])
    assert np.median(found[..., 0]) == pytest.approx(1e8, rel=0.12)


def test_runs_differ_as_a_whole_or_in_two_walls():
    random = np.random.default_rng(2)
    mean = np.tile(np.array([np.log(1e8), 55e6, 25e6, 8e6, 12e6, *[1e6] * 30]), (4_000, 1))
    library = _Library(mean, np.ones_like(mean), np.ones(4_000), [], [], np.zeros(4_000), [], [])
    whole, _, _ = vary_runs(library, (2_000, 2), WHOLE, 0.1, random)
    parts, _, _ = vary_runs(library, (2_000, 2), PARTS, 0.1, random)

    assert whole[..., 0].std() == pytest.approx(0.1, rel=0.05)
    assert np.log(whole[..., 2]).std() == pytest.approx(0.1, rel=0.05)
    assert parts[..., 0].std() == pytest.approx(0.1 * np.hypot(0.25, 0.12), rel=0.06)
    assert (np.ptp(parts[..., 1]), np.ptp(parts[..., 3])) == (0, 0)
    assert np.log(parts[..., 4]).std() == pytest.approx(0.1, rel=0.05)


def test_intervals_hold_what_they_promise(rates):
    known = [rate for rate in rates if rate.is_known]
    coverage = [rate for rate in known if rate.is_coverage]
    measured = [rate.share for rate in coverage if rate.setting.is_measured]

    assert COVERED[0] < np.mean(measured) < COVERED[1]
    assert np.mean([rate.share for rate in known if not rate.is_coverage]) <= 0.05
    assert 6 in STEPS_OF_CLAIMS


@pytest.mark.parametrize("pairs", [40, *slow(200)])
def test_more_runs_find_more(pairs):
    one, two, three, five = (find_power(Setting(runs), pairs) for runs in (1, 2, 3, 5))

    assert one <= two
    assert 0.7 <= three <= five
    assert five >= 0.95


@pytest.mark.parametrize("pairs", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_two_runs_find_no_less_than_one_where_runs_differ_by_more_than_assumed(pairs):
    one, two = (find_power(Setting(runs), pairs, offset=0.02) for runs in (1, 2))

    assert one <= two


def test_the_same_arguments_give_the_same_rates():
    assert count_claims(3, (7, 7), 5) == count_claims(3, (7, 7), 5)


@pytest.mark.slow
def test_rates_do_not_depend_on_the_order_of_hashes():
    asked = "from benchmarks.diff_verdicts import count_claims; print(count_claims(0, (6, 6), 3))"
    found = {
        subprocess.run(
            [sys.executable, "-c", asked],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(found) == 1


def test_a_wall_that_base_lacks_is_covered_by_its_time_in_head():
    number = next(number for number, law in enumerate(ALL_LAWS) if law.missing)
    cells = [(Setting(3), WHOLE, 0.01), (Setting(1, head=3), WHOLE, 0.01)]
    found = count_claims(number, (10, 20), PAIRS, cells)
    held = [rate.share for rate in found if rate.of == "interval of memory"]

    assert len(held) == 2
    assert min(held) >= 0.85


def test_rates_are_measured_again_in_their_own_cells_and_with_other_seeds(rates):
    chosen = choose_again(rates)
    again = count_again(chosen, 2 * PAIRS)

    assert [(one.setting, one.varies, one.offset, one.of) for one in again] == [
        (one.setting, one.varies, one.offset, one.of) for one in chosen
    ]
    assert {one.pairs for one in again} == {2 * PAIRS}
    worst = min((one for one in chosen if one.kind == "interval of step"), key=lambda one: one.share)
    assert worst.share == min(
        one.share
        for one in rates
        if one.kind == "interval of step" and one.is_known and classify(one) == classify(worst)
    )
    lines = [*tabulate_again(chosen, again)]
    groups = {(classify(one), one.kind) for one in chosen}
    outside = {(classify(one), one.kind) for one in (*chosen, *again) if is_outside(one)}
    assert len(lines) == 4 + len(outside) + 2
    assert lines[-1].startswith(f"In the {len(groups - outside)} other combinations")


def test_the_interval_of_a_rate_is_that_of_wilson():
    low, high = Rate("", (6, 6), Setting(1), WHOLE, 0.0, "", 0.95, 400, is_known=True).interval

    assert (low, high) == pytest.approx((0.9242, 0.9673), abs=2e-4)


def test_the_page_holds_what_was_measured():
    table = PAGE.partition("<!-- bench: verdicts -->")[2]
    power = table.partition("| found if both sides warm up by 10 % |")[2].partition("\n\n")[0]
    found = dict(re.findall(r"^\| (\d+(?:, recorded)?) \| (\d+) % ", power, re.MULTILINE))

    assert int(found["2"]) >= int(found["1"])
    assert int(found["3"]) >= 70
    assert int(found["5"]) >= 95
    assert all(f"| {law.title or law.name} |" in table for law in ALL_LAWS)
    assert "-0.0" not in table


def test_a_table_replaces_the_one_before(rates, tmp_path):
    pages = [tmp_path / name for name in ("twice.md", "once.md")]
    for page in pages:
        page.write_text(PAGE, encoding="utf-8")
    found = summarize(rates, ([0.5] * 9, [0.5] * 9), [])

    assert "| 1, recorded |" in found
    put(pages[0], "verdicts", "one")
    put(pages[0], "verdicts", found)
    put(pages[1], "verdicts", found)
    assert pages[0].read_text(encoding="utf-8") == pages[1].read_text(encoding="utf-8")

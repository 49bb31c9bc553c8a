from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import slow
from tests.profile.random_profiles import OPERATIONS, captured, profile_of, profiles, work
from wallscope.compare.compare import CompareOptions, Side, compare_sides, require_comparable
from wallscope.compare.confidence import spread_of_steps
from wallscope.compare.gates import parse_gate
from wallscope.compare.run_noise import Assumed, Recorded, measure_difference, stack_runs
from wallscope.errors import ComparisonError
from wallscope.model.enums import Wall
from wallscope.model.profile import Noise, RecordedNoise
from wallscope.views.comparison_words import describe_change

MIRRORED = {"regression": "improvement", "improvement": "regression"}
ASKED = CompareOptions(overridden=True)


def diff(base, head, asked=ASKED):
    return compare_sides(Side("base", ((base,),)), Side("head", ((head,),)), asked)


def sums(rows, by, of="delta_ns"):
    found = {}
    for row in rows:
        found[getattr(row, by)] = found.get(getattr(row, by), 0) + getattr(row, of)
    return {name: time_ns for name, time_ns in found.items() if time_ns}


def assert_adds_up(found):
    change_ns = found.step.head_typical_ns - found.step.base_typical_ns
    assert sum(row.delta_ns for row in found.deltas.walls) == change_ns
    walls = {row.wall: row.delta_ns for row in found.deltas.walls if row.delta_ns}
    assert sums(found.deltas.causes, "wall") == walls
    causes = {row.cause: row.delta_ns for row in found.deltas.causes}
    assert sums(found.deltas.operations, "cause") == causes
    assert all(row.count_delta_ns + row.rate_delta_ns == row.delta_ns for row in found.deltas.operations)


@given(profiles("a"), profiles("b"))
def test_deltas_sum_to_the_change_of_the_step_at_each_level(base, head):
    assert_adds_up(diff(base, head))


@given(profiles())
def test_a_capture_compared_with_itself_has_no_difference(profile):
    found = diff(profile, profile, CompareOptions())

    assert (found.verdict, found.step.ratio, found.step.replication) == ("no-change", 1.0, "same")
    assert (found.deltas.causes, found.deltas.operations, found.explanations) == ((), (), ())
    assert {row.delta_ns for row in found.deltas.walls} == {0}


@given(profiles("a"), profiles("b"))
def test_swapped_sides_mirror_everything(base, head):
    there, back = diff(base, head), diff(head, base)

    assert back.verdict == MIRRORED.get(there.verdict, there.verdict)
    assert back.step.ratio == pytest.approx(1 / there.step.ratio)
    if there.step.ratio_low is not None:
        assert back.step.ratio_high == pytest.approx(1 / there.step.ratio_low)
    assert sums(back.deltas.walls, "wall") == {k: -v for k, v in sums(there.deltas.walls, "wall").items()}
    for level in ("causes", "operations"):
        ours, theirs = getattr(there.deltas, level), getattr(back.deltas, level)
        assert sums(theirs, "cause") == {k: -v for k, v in sums(ours, "cause").items()}
    for of in ("count_delta_ns", "rate_delta_ns"):
        ours = sums(there.deltas.operations, "cause", of)
        assert sums(back.deltas.operations, "cause", of) == {k: -v for k, v in ours.items()}


def steps(count, factor=1.0, seed=1, jitter=0.02, gemm_ns=60_000_000):
    """Steps of about 100 ms, each operation of which varies alike."""
    random = np.random.default_rng(seed)
    typical = np.array([gemm_ns, 20_000_000, 5_000_000, 10_000_000, 4_000_000, 1_000_000]) * factor
    return [
        np.round(typical * (1 + jitter * random.standard_normal())).astype(int).tolist() for _ in range(count)
    ]


@pytest.mark.parametrize("count", [18, 20, 22], ids=["fewer steps", "as many", "more steps"])
def test_the_same_work_in_more_or_fewer_steps_is_no_regression(count):
    found = diff(profile_of("a", steps(20)), profile_of("b", steps(count, seed=2)), CompareOptions())

    assert found.verdict in {"no-change", "inconclusive"}


@pytest.mark.parametrize(("ours", "theirs"), [(7, 8), (8, 7), (5, 20), (7, 7)])
@pytest.mark.parametrize("slow", [1.5, 2.0, 4.0])
def test_one_slow_step_does_not_shift_the_typical_step_of_any_number_of_steps(ours, theirs, slow):
    """With the mean of seven steps and the middle of eight, one doubled step made 14 %."""

    def side(name, count, seed):
        drawn = np.array(steps(count, 1.0, seed, 0.002))
        drawn[count // 2] = (drawn[count // 2] * slow).astype(int)
        return profile_of(name, drawn.tolist())

    found = diff(side("base", ours, 1), side("head", theirs, 2), CompareOptions())

    assert found.step.ratio == pytest.approx(1, abs=0.004)
    assert found.verdict in {"no-change", "inconclusive"}


@pytest.mark.slow
def test_stalls_of_each_eighth_step_are_no_change_between_short_and_long_runs():
    """Seven steps against twenty, ten runs a side: the phase of the stalls varies from run to run."""
    random = np.random.default_rng(8)

    def side(count):
        runs = []
        for _ in range(10):
            length = 1e8 * np.exp(0.01 * random.standard_normal(count))
            length[(np.arange(count) + random.integers(0, 8)) % 8 == 0] *= 2
            own = np.round(length * np.exp(0.01 * random.standard_normal())).astype(np.int64)
            runs.append(spread_of_steps(own, np.empty((count, 0), np.int64)))
        return stack_runs(runs, [count] * 10)

    nothing = Recorded(np.zeros(1), np.zeros(1))
    changed = [
        measure_difference(side(20), side(7), nothing, Assumed(np.array([0.0115]))) for _ in range(100)
    ]
    claimed = sum(abs(float(one.change[0])) > max(float(one.half()[0]), np.log(1.02)) for one in changed)

    assert claimed <= 5
    assert np.mean([one.change[0] for one in changed]) == pytest.approx(0, abs=0.003)


def test_a_step_ten_per_cent_slower_is_a_regression_though_the_capture_is_as_long():
    found = diff(profile_of("a", steps(22)), profile_of("b", steps(20, 1.1, seed=2)), CompareOptions())

    assert found.verdict == "regression"
    assert found.step.ratio == pytest.approx(1.1, abs=0.02)
    assert_adds_up(found)


@pytest.mark.parametrize(
    ("gates", "held"),
    [
        pytest.param("step>3%", False, id="step past its limit"),
        pytest.param("step>20%", True, id="step within its limit"),
        pytest.param("step>2ms", False, id="step past its time"),
        pytest.param("compute>5%", False, id="wall past its share of the step"),
        pytest.param("communication>5%", True, id="wall within its share"),
        pytest.param("compute/gemm>1ms", False, id="cause past its time"),
        pytest.param("compute/norm>1ms", True, id="cause that is not there"),
        pytest.param("regression", False, id="verdict"),
        pytest.param("inconclusive", True, id="other verdict"),
    ],
)
def test_gates_fail_by_what_surely_grew_past_them(gates, held):
    asked = CompareOptions(gates=(parse_gate(gates),))
    found = diff(profile_of("a", steps(20)), profile_of("b", steps(20, 1.1, seed=2)), asked)

    (gate,) = found.gates
    assert (gate.gate, gate.held) == (gates, held)
    assert gate.evidence


def test_a_gate_does_not_fail_by_what_may_be_chance():
    asked = CompareOptions(gates=(parse_gate("step>3%"),))
    found = diff(
        profile_of("a", steps(6, jitter=0.2)), profile_of("b", steps(6, 1.1, seed=4, jitter=0.2)), asked
    )

    assert (found.verdict, found.gates[0].held) == ("inconclusive", True)


def test_recorded_noise_between_runs_keeps_a_gate_from_failing():
    base, head = profile_of("a", steps(20)), profile_of("b", steps(20, 1.05, seed=2))
    known = RecordedNoise({"step": Noise(0.03, 6)}, 20)
    gate = CompareOptions(gates=(parse_gate("step>3%"),))

    assert not diff(base, head, gate).gates[0].held
    found = compare_sides(Side("base", ((base,),), noise=known), Side("head", ((head,),), noise=known), gate)
    assert (found.gates[0].held, found.step.run_noise_source) == (True, "recorded")
    assert found.step.run_noise == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [
        pytest.param(1.0, "inconclusive", id="the pair is alike, other runs may not be"),
        pytest.param(1.028, "inconclusive", id="the pair differs, by no more than runs may"),
        pytest.param(0.972, "inconclusive", id="the same, the other way"),
        pytest.param(1.05, "regression", id="by more than runs may"),
    ],
)
def test_one_run_a_side_is_told_from_what_runs_are_taken_to_differ_by(factor, verdict):
    gate = CompareOptions(gates=(parse_gate("step>1%"),))
    found = diff(
        profile_of("a", steps(20, jitter=0.005)),
        profile_of("b", steps(20, factor, seed=2, jitter=0.005)),
        gate,
    )

    assert (found.verdict, found.gates[0].held) == (verdict, verdict != "regression")
    assert found.step.run_noise_source == "assumed"
    assert found.step.ratio_low < found.step.pair_ratio_low < found.step.pair_ratio_high


@pytest.mark.parametrize("drawn", [(1, 0), (2, 2), *slow((1, 1), (3, 3), (3, 4), (5, 5))])
def test_the_word_of_a_verdict_agrees_with_the_intervals_that_are_shown(drawn):
    runs, seed = drawn
    random = np.random.default_rng(seed)
    words = set()

    def made(name, by, run):
        return profile_of(name, steps(12, by, 100 * seed + run, 0.003))

    for factor in (1.0, 1.001, 1.015, 1.03, 0.96, 1.12):
        off = np.exp(random.choice((0.0005, 0.005)) * random.standard_normal((2, runs)))
        base, head = (
            Side(
                name,
                tuple((made(f"{name} {run}", by * off[side, run], 10 * side + run),) for run in range(runs)),
            )
            for side, (name, by) in enumerate((("base", 1.0), ("head", factor)))
        )
        found = compare_sides(base, head, CompareOptions())
        step, limit = found.step, 1 + found.step.margin_ratio
        inside = 1 / limit < step.ratio_low and step.ratio_high < limit
        ratios = (step.ratio, step.head_mean_ns / step.base_mean_ns)
        slower = [
            low > 1 and ratio > limit
            for low, ratio in zip((step.ratio_low, step.mean_ratio_low), ratios, strict=True)
        ]
        faster = [
            high < 1 and ratio < 1 / limit
            for high, ratio in zip((step.ratio_high, step.mean_ratio_high), ratios, strict=True)
        ]
        words.add(found.verdict)
        assert (found.verdict == "regression") == (any(slower) and not any(faster))
        assert (found.verdict == "improvement") == (any(faster) and not any(slower))
        assert found.verdict != "no-change" or inside
        assert found.verdict != "inconclusive" or not inside

    assert len(words) > 1


def test_runs_of_one_side_tell_how_much_those_of_the_other_differ():
    runs = tuple((profile_of(f"a{run}", steps(20, 1 + 0.02 * run, seed=run)),) for run in range(4))
    one = ((profile_of("b", steps(20, seed=8)),),)
    found = compare_sides(Side("base", runs), Side("head", one), CompareOptions())

    assert (found.step.replication, found.step.run_noise_source) == ("steps", "runs")
    assert found.step.pair_ratio_low is None


def test_runs_are_what_varies_where_there_are_several():
    base = Side(
        "base", tuple((profile_of(f"a{run}", steps(20, 1 + 0.02 * run, seed=run)),) for run in range(4))
    )
    head = Side(
        "head", tuple((profile_of(f"b{run}", steps(20, 1 + 0.02 * run, seed=run + 9)),) for run in range(4))
    )
    found = compare_sides(base, head, CompareOptions())

    assert (found.verdict, found.step.replication) == ("inconclusive", "runs")
    assert (found.step.base_runs, found.step.base_steps) == (4, 80)
    assert found.step.run_noise == pytest.approx(0.026, abs=0.005)
    assert_adds_up(found)


@pytest.mark.parametrize(
    ("base", "head", "what"),
    [
        pytest.param(work(), work(gpu="NVIDIA A100"), "GPU", id="GPU"),
        pytest.param(work(), replace(work(), kind="whole-trace"), "steps", id="no steps"),
        pytest.param(work(), replace(work(), unit="layer"), "steps", id="other unit"),
        pytest.param(
            work(), replace(work(), world_size=8), "ranks of the job", id="other job, tokens unknown"
        ),
    ],
)
def test_unlike_work_gets_no_verdict(base, head, what):
    ours, theirs = profile_of("a", steps(9), base), profile_of("b", steps(9), head)
    found = diff(ours, theirs, CompareOptions(gates=(parse_gate("step>3%"),)))

    assert (found.comparable, found.verdict, found.gates) == (False, "incomparable", ())
    assert found.mismatches[0].what == what
    with pytest.raises(ComparisonError, match="no gate can be judged"):
        require_comparable(found, (parse_gate("step>3%"),))
    assert diff(ours, theirs, CompareOptions(overridden=True)).verdict != "incomparable"


def test_steps_of_other_kernels_are_other_work():
    other = tuple(
        (f"part{n}", "norm", f"norm_kernel_{letter}", None, None, None, "compute/norm")
        for n, letter in enumerate("abcdef")
    )
    found = diff(profile_of("a", steps(9)), profile_of("b", steps(9), operations=other), CompareOptions())

    assert (found.verdict, found.mismatches[0].what) == ("incomparable", "kernels of the step")


def test_sides_of_known_tokens_are_compared_by_the_token():
    ours = profile_of("a", steps(20), work(tokens=1_000))
    theirs = profile_of("b", steps(20, 2.0, seed=2), work(tokens=2_000))
    found = diff(ours, theirs, CompareOptions())

    assert found.step.ratio == pytest.approx(1, abs=0.02)
    assert (found.step.tokens, found.comparable) == (1_000, True)
    assert_adds_up(found)


def test_a_retuned_kernel_is_the_same_and_a_new_one_is_new():
    added = ("optimizer", "elementwise", "add_kernel", None, None, None, "compute/elementwise")
    retuned = (
        *[
            (path, kind, name.replace("128x128", "256x64"), *rest)
            for path, kind, name, *rest in OPERATIONS[:5]
        ],
        added,
    )
    found = diff(profile_of("a", steps(9)), profile_of("b", steps(9, 1.2), operations=retuned))
    rows = {row.name or row.base_name: row for row in found.deltas.operations}

    assert rows["add_kernel"].matched_by == "only in head"
    assert rows["add_kernel"].count_delta_ns == rows["add_kernel"].delta_ns
    assert [row.matched_by for row in found.deltas.operations if "256x64" in row.name] == ["family"]


@given(st.sampled_from(["", "step", "step>", "step>3", "step<3%", "speed>3%", "step>-1%", "host/x >3 m"]))
def test_what_is_no_gate_is_refused(text):
    from wallscope.errors import OptionError

    with pytest.raises(OptionError, match="is not a gate"):
        parse_gate(text)


def test_the_rank_that_computes_least_speaks_for_both_sides():
    def run(name, *factors):
        return tuple(
            replace(
                profile_of(f"{name}{rank}", steps(9, gemm_ns=round(60e6 * factor), seed=rank)),
                header=replace(
                    profile_of("x", steps(1)).header, rank=rank, inputs=(captured(f"{name}{rank}"),)
                ),
            )
            for rank, factor in enumerate(factors)
        )

    found = compare_sides(
        Side("base", (run("a", 1, 0.5),)), Side("head", (run("b", 1, 0.6),)), CompareOptions()
    )
    assert (found.base.rank, [row.rank for row in found.ranks]) == (1, [0])
    with pytest.raises(ComparisonError, match="--rank 7"):
        compare_sides(Side("base", (run("a", 1),)), Side("head", (run("b", 1),)), CompareOptions(rank=7))


def test_walls_have_intervals_that_hold_their_change():
    found = diff(profile_of("a", steps(20)), profile_of("b", steps(20, 1.1, seed=2)), CompareOptions())

    for row in found.deltas.walls:
        assert row.low_ns <= row.delta_ns <= row.high_ns
        assert row.wall in {Wall.HOST, Wall.COMMUNICATION, Wall.MEMORY, Wall.UNATTRIBUTED} or row.low_ns > 0


def test_another_export_of_one_capture_is_the_same_capture():
    first = profile_of("a", steps(9), work())
    again = profile_of("b", steps(9), replace(work(), gpu=None))
    other = profile_of("c", steps(9, seed=2), work())

    assert [entry.what for entry in diff(first, again, CompareOptions()).mismatches] == ["capture"]
    assert diff(first, again, CompareOptions()).verdict == "no-change"
    assert "capture" not in {entry.what for entry in diff(first, other, CompareOptions()).mismatches}


def test_a_copy_of_a_run_is_no_run():
    base, head = profile_of("base", steps(20)), profile_of("head", steps(20, factor=1.03, seed=2))
    other = profile_of("head again", steps(20, factor=1.03, seed=3))
    renamed = replace(head, header=replace(head.header, inputs=other.header.inputs))
    once = compare_sides(Side("base", ((base,),)), Side("head", ((head,),)), ASKED)
    twice = compare_sides(Side("base", ((base,),)), Side("head", ((head,), (renamed,))), ASKED)
    both = compare_sides(Side("base", ((base,),)), Side("head", ((head,), (other,))), ASKED)

    assert (twice.step, twice.verdict) == (once.step, once.verdict)
    (note,) = [entry for entry in twice.mismatches if entry.what == "runs that count"]
    assert (note.base, note.head, note.severity) == ("1", "1 of 2 given, as others are copies", "note")
    assert both.step.head_runs == 2
    assert "runs that count" not in {entry.what for entry in both.mismatches}


def test_walls_that_cancel_each_other_are_in_the_headline():
    def trade(step):
        moved_ns = round(step[0] * 0.1)
        return [step[0] - moved_ns, *step[1:3], step[3] + moved_ns, *step[4:]]

    base = profile_of("base", steps(30))
    head = profile_of("head", [trade(step) for step in steps(30, seed=4)])
    found = diff(base, head, CompareOptions())

    said = describe_change(found)
    assert abs(found.step.ratio - 1) < 0.02
    assert "Walls changed in opposite directions: " in said
    assert "opposite" not in describe_change(diff(base, profile_of("again", steps(30, seed=4))))

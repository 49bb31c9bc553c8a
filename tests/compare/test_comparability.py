"""A side that tells waiting from moving beside one that does not."""

from dataclasses import replace

import pytest

from fixtures.simulated_ranks import US, Meet, Work, played, profiles
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.compare.gates import parse_gate
from wallscope.errors import ComparisonError
from wallscope.ranks.job import match_ranks
from wallscope.summary.diagnosis import decide_wall

WHOLE, PEER, MOVING = (f"communication/dp-gradient/{part}" for part in ("unsplit", "peer-wait", "transfer"))


def captured(late_us):
    step = [[Work((500 + late_us * rank) * US), Meet((0, 1), 70 * US)] for rank in (0, 1)]
    return tuple(profiles(played([[own] * 6 for own in step], exit_ns=0)))


def split(told):
    return match_ranks(told, lambda walls, unknown: decide_wall(walls, unknown).dominant).profiles


def other(told):
    """The same, of another capture."""
    header = told[0].header
    renamed = replace(header, inputs=(replace(header.inputs[0], fingerprint="other"),))
    return (replace(told[0], header=renamed), *told[1:])


def compare(base, head, gates=()):
    asked = CompareOptions(rank=0, gates=tuple(map(parse_gate, gates)))
    return compare_sides(Side("a", (base,)), Side("b", (head,)), asked)


def causes(comparison):
    return {entry.cause: (entry.base_ns, entry.head_ns) for entry in comparison.deltas.causes}


def test_both_told_are_compared_part_by_part():
    found = compare(split(captured(100)), other(split(captured(300))))

    assert set(causes(found)) == {PEER}
    base_ns, head_ns = causes(found)[PEER]
    assert head_ns - base_ns == pytest.approx(200 * US * 5 / 6, rel=0.25)
    assert "waiting for peers" not in {entry.what for entry in found.mismatches}


@pytest.mark.parametrize("is_base", [True, False])
def test_one_that_does_not_tell_makes_both_one(is_base):
    plain, told = captured(100), other(split(captured(300)))
    found = compare(plain, told) if is_base else compare(told, plain)

    assert set(causes(found)) == {WHOLE}
    (note,) = (entry for entry in found.mismatches if entry.what == "waiting for peers")
    assert (note.base, note.head)[is_base] == "separated from transfer"
    assert note.severity == "note"


def test_a_gate_on_a_part_that_is_not_told_is_refused():
    with pytest.raises(ComparisonError, match="does not separate waiting from transfer"):
        compare(captured(100), other(split(captured(300))), [f"{PEER}>5%"])


def test_a_gate_on_the_whole_counts_its_parts():
    found = compare(split(captured(100)), other(split(captured(300))), [f"{WHOLE}>5%"])

    assert set(causes(found)) == {WHOLE}
    assert [result.held for result in found.gates] == [False]

"""The section on the parts of a model with vision."""

from dataclasses import replace

from tests.advice.runs import run
from wallscope.model.analysis import RangeWork
from wallscope.views.sections.vision import build_vision

TOWER = {"visual": 30, "language_model": 50}


def show(analysis):
    """Return the sentence of the section and its lines; `None` without it."""
    section = build_vision(analysis, analysis.ranks[0])
    return None if section is None else (section.answer, [line[0] for line in section.blocks[0].lines])


def test_shares_of_the_parts_are_stated_with_what_is_unknown_of_them():
    answer, lines = show(run({"compute/norm": 20}, ranges=TOWER))

    assert "vision tower 30.0 %, projectors 0.0 %, decoder 50.0 %" in answer
    assert any("forward times alone" in line for line in lines)
    assert any("Mock data without images" in line for line in lines)
    assert not any("on 2 ranks" in line for line in lines)


def test_other_programs_have_no_such_section():
    assert show(run({"compute/norm": 20}, ranges={"visual": 30})) is None


def test_uneven_towers_are_named_and_even_ones_are_stated():
    uneven = show(run({"compute/norm": 20}, ranges=TOWER, other_ranges={**TOWER, "visual": 10}))[1]
    even = show(run({"compute/norm": 20}, ranges=TOWER, other_ranges=TOWER))[1]

    assert any("10.0 ms to 30.0 ms. Spread images evenly" in line for line in uneven)
    assert any(line.endswith("30.0 ms to 30.0 ms.") for line in even)


def test_a_frozen_tower_is_told_from_a_trained_one():
    found = run({"compute/norm": 20}, ranges=TOWER)
    said = []
    for tower_ms in (0, 10):
        backward = {"visual": tower_ms, "language_model": 20}
        ranges = tuple(
            replace(entry, backward_gpu_ns=backward[entry.name] * 1_000_000)
            for entry in found.ranks[0].ranges
        )
        assert all(isinstance(entry, RangeWork) for entry in ranges)
        said.append(show(replace(found, ranks=(replace(found.ranks[0], ranges=ranges),)))[1][0])

    assert said[0] == "The tower has no backward pass: it is frozen."
    assert "its backward pass takes 10.0 %" in said[1]

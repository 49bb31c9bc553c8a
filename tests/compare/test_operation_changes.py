"""Operations of both sides by NVTX range: what is new, gone, changed, and what replaces what."""

from fractions import Fraction
from time import perf_counter

import pytest

from wallscope.compare.operation_changes import operation_changes
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.enums import Wall


def kernel(path, category, name):
    return Key(path, category, name, None, None, None)


def typical(*rows):
    """A typical step of rows: key, cause, how often it runs, its time per call in ns."""
    owned, ran, causes = {}, {}, {}
    for key, cause, count, each_ns in rows:
        owned[cause, key] = count * each_ns
        causes[cause] = causes.get(cause, 0) + count * each_ns
        if key.category != "host":
            ran[key] = OperationWork(Fraction(count), Fraction(count * each_ns), None, None)
    walls = {wall: sum(ns for cause, ns in causes.items() if find_wall(cause) == wall) for wall in Wall}
    return TypicalStep(sum(walls.values()), walls, causes, owned, ran)


def changes(base, head):
    return tuple(one.row for one in operation_changes(base, head))


def said(rows):
    return [(row.kind, row.path, row.base_name, row.name, row.delta_ns) for row in rows]


GELU = kernel("step / mlp", "elementwise", "gelu")
MUL = kernel("step / mlp", "elementwise", "mul")
NORM = kernel("step / mlp", "norm", "layer_norm")
FUSED = kernel("step / mlp", "elementwise", "triton_fused")
POINTWISE = "compute/elementwise"


def test_kernels_that_are_fused_into_one_are_replaced_by_it():
    base = typical((GELU, POINTWISE, 4, 10), (MUL, POINTWISE, 4, 10), (NORM, "compute/norm", 4, 15))
    (row,) = changes(base, typical((FUSED, POINTWISE, 4, 20)))

    assert said([row]) == [("replaced", "step / mlp", "layer_norm", "triton_fused", -60)]
    assert (row.base_count, row.base_work_ns, row.base_names_count) == (12.0, 140, 3)
    assert (row.head_count, row.head_work_ns, row.head_names_count) == (4.0, 80, 1)
    assert (row.base_category, row.category, row.wall) == ("norm", "elementwise", Wall.COMPUTE)


def test_a_split_kernel_is_replaced_by_its_parts():
    base = typical((FUSED, POINTWISE, 4, 20))
    (row,) = changes(base, typical((GELU, POINTWISE, 4, 15), (MUL, POINTWISE, 4, 10)))

    assert said([row]) == [("replaced", "step / mlp", "triton_fused", "gelu", 20)]


def test_a_kernel_that_others_take_over_from_in_part_belongs_to_the_replacement():
    base = typical((GELU, POINTWISE, 10, 10), (MUL, POINTWISE, 4, 10))
    head = typical((GELU, POINTWISE, 2, 10), (MUL, POINTWISE, 4, 10), (FUSED, POINTWISE, 4, 5))

    assert said(changes(base, head)) == [("replaced", "step / mlp", "gelu", "gelu", -60)]


@pytest.mark.parametrize(
    "head", [FUSED._replace(path="step / attention"), FUSED._replace(category="attention")], ids=str
)
def test_kernels_of_another_range_or_kind_are_new(head):
    found = changes(typical((GELU, POINTWISE, 4, 10)), typical((head, POINTWISE, 4, 8)))

    assert sorted(row.kind for row in found) == ["gone", "new"]


def test_a_kernel_far_too_short_replaces_nothing():
    found = changes(typical((GELU, POINTWISE, 4, 1000)), typical((FUSED, POINTWISE, 4, 1)))

    assert sorted(row.kind for row in found) == ["gone", "new"]


@pytest.mark.parametrize("head", ["", "step", "step / mlp / inner"])
def test_kernels_move_into_a_range_around_or_inside_and_out_of_all(head):
    moved = FUSED._replace(path=head)
    (row,) = changes(typical((GELU, POINTWISE, 4, 10)), typical((moved, POINTWISE, 4, 9)))

    assert (row.kind, row.path, row.delta_ns) == ("replaced", head, -4)


def test_another_tile_of_the_same_kernel_is_changed_and_a_leading_one_stands_apart():
    slow, steady = (kernel("mlp", "gemm", f"cutlass_gemm_{name}") for name in ("wgrad", "dgrad"))
    base = typical((slow, "compute/gemm", 2, 100), (steady, "compute/gemm", 2, 50))
    head = typical((slow, "compute/gemm", 2, 160), (steady, "compute/gemm", 2, 51))
    found = changes(base, head)

    assert said(found) == [
        ("changed", "mlp", slow.name, slow.name, 120),
        ("changed", "mlp", steady.name, steady.name, 2),
    ]


def test_very_many_operations_take_no_square_of_the_time():
    sides = [
        typical(
            *(
                (kernel(f"step / {side} {number}", "elementwise", f"{side} {number}"), POINTWISE, 1, 9)
                for number in range(8_000)
            )
        )
        for side in ("old", "new")
    ]
    begun_s = perf_counter()
    found = changes(*sides)

    assert perf_counter() - begun_s < 30  # a square takes minutes
    assert {abs(row.delta_ns) for row in found} == {9}
    assert len(found) == 100


def test_time_of_the_host_is_no_operation_and_changes_sum_to_those_of_the_device():
    host = kernel("step / mlp", "host", "cudaLaunchKernel")
    base = typical((GELU, POINTWISE, 4, 10), (host, "host/launch-call", 1, 50))
    head = typical((FUSED, POINTWISE, 4, 7), (host, "host/launch-call", 1, 90))

    assert said(changes(base, head)) == [("replaced", "step / mlp", "gelu", "triton_fused", -12)]
    assert changes(base, base) == ()

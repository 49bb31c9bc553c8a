"""Conditions of two captures that make one seem slower: each is noted, with its direction."""

from dataclasses import replace
from fractions import Fraction

import pytest

from tests.compare.test_compare import diff, steps
from tests.profile.random_profiles import captured, profile_of, work
from wallscope.compare.capture_bias import BiasSide, find_biases
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep
from wallscope.model.capture import CaptureConditions, GraphTracing, Profiler
from wallscope.model.enums import Wall
from wallscope.model.profile import Header
from wallscope.views.comparison_words import find_confounders

GEMM = Key("", "gemm", "nvjet_64x64", None, None, "bf16")
NORM = Key("", "norm", "layer_norm", None, None, None)
GELU = Key("", "elementwise", "gelu", None, None, None)
INPUT = Key("", "host-to-device", "", None, None, None)
ON = (("CPU sampling", "on"), ("CUDA memory usage", "on"), ("NVTX", "on"))
OFF = tuple((name, "off") for name, _ in ON)


def side(times_ns=(800, 100, 100), counts=(10, 10, 10), input_bytes=1 << 20, of=None, **conditions):
    """A side whose kernels take so long per call, with the conditions of its capture."""
    known = {name: conditions.pop(name) for name in ("launch_call_ns", "device_count") if name in conditions}
    graphs = conditions.pop("graphs", GraphTracing.NONE)
    ran = {
        key: OperationWork(Fraction(count), Fraction(count * each_ns), None, None)
        for key, count, each_ns in zip((GEMM, NORM, GELU), counts, times_ns, strict=True)
    }
    ran[INPUT] = OperationWork(Fraction(1), Fraction(50), Fraction(50), input_bytes and Fraction(input_bytes))
    owned = {("compute/gemm", key): round(one.work_ns) for key, one in ran.items()}
    step_ns = sum(owned.values())
    walls = dict.fromkeys(Wall, 0) | {Wall.COMPUTE: step_ns}
    capture = replace(captured("a"), conditions=CaptureConditions(**conditions), **known)
    header = Header(0, 0, replace(of or work(), graphs=graphs), (capture,))
    return BiasSide(header, TypicalStep(step_ns, walls, {"compute/gemm": step_ns}, owned, ran))


def noted(base, head):
    return [(entry.what, entry.base, entry.head, entry.direction) for entry in find_biases(base, head)]


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        pytest.param({}, {}, [], id="alike"),
        pytest.param(
            {"profiler_version": "2023.2.3"},
            {"profiler_version": "2025.1.1"},
            [("profiler version", "2023.2.3", "2025.1.1", "either")],
            id="profiler",
        ),
        pytest.param(
            {"options": OFF},
            {"options": ON},
            [
                ("capture option CPU sampling", "off", "on", "slower"),
                ("capture option CUDA memory usage", "off", "on", "slower"),
            ],
            id="options",
        ),
        pytest.param({"options": ()}, {"options": ON}, [], id="options that one side does not tell"),
        pytest.param(
            {"launch_call_ns": 4_000},
            {"launch_call_ns": 5_500},
            [("time of a launch call (lower quartile)", "4.0 µs", "5.5 µs", "slower")],
            id="launches",
        ),
        pytest.param(
            {"launch_call_ns": 4_000, "graphs": GraphTracing.NODE},
            {"launch_call_ns": 5_500, "graphs": GraphTracing.NODE},
            [],
            id="launches of graphs",
        ),
        pytest.param(
            {"clock_hz": 1_980_000_000, "driver_version": "550.54.15"},
            {"clock_hz": 1_755_000_000, "driver_version": "570.172.08"},
            [
                ("NVIDIA driver", "550.54.15", "570.172.08", "either"),
                ("highest GPU clock", "1980 MHz", "1755 MHz", "slower"),
            ],
            id="machine",
        ),
        pytest.param(
            {"device_count": 4}, {"device_count": 8}, [("GPUs in the capture", "4", "8", "either")], id="GPUs"
        ),
    ],
)
def test_conditions_that_differ_are_noted_with_their_direction(base, head, expected):
    assert noted(side(**base), side(**head)) == expected
    mirrored = {"slower": "faster", "faster": "slower", "either": "either"}
    assert noted(side(**head), side(**base)) == [
        (what, theirs, ours, mirrored[direction]) for what, ours, theirs, direction in expected
    ]


def test_what_a_trace_of_pytorch_recorded_is_compared():
    def traced(options):
        plain = side(options=options)
        (capture,) = plain.header.inputs
        header = replace(plain.header, inputs=(replace(capture, profiler=Profiler.TORCH),))
        return replace(plain, header=header)

    base, head = (traced((("input shapes", value), ("operators", "on"))) for value in ("off", "on"))

    assert noted(base, head) == [("capture option input shapes", "off", "on", "slower")]
    assert noted(base, side(options=ON)) == []


def test_dearer_launches_bias_by_their_number():
    base, head = side(launch_call_ns=4_000), side(launch_call_ns=5_500)
    (entry,) = find_biases(base, head)

    assert (entry.bias_ns, entry.wall) == (30 * 1_500, Wall.HOST)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        pytest.param(side((1600, 200, 170), input_bytes=2 << 20), ["work per step"], id="twice the batch"),
        pytest.param(side((1600, 200, 170), input_bytes=None), ["work per step"], id="bytes unknown"),
        pytest.param(side((1600, 200, 170)), [], id="the same input"),
        pytest.param(side((880, 100, 100)), [], id="one kernel alone"),
        pytest.param(side((880, 100, 110)), [], id="the largest and another"),
        pytest.param(side((1600, 200, 170), input_bytes=1 << 19), [], id="half the input"),
        pytest.param(side((850, 106, 106)), ["speed of all kernels"], id="lower clocks"),
        pytest.param(side((850, 106, 106), input_bytes=2 << 20), [], id="slower, and another input"),
        pytest.param(side((800, 200, 200)), [], id="some kernels alone"),
        pytest.param(side((1600, 200, 200), (20, 20, 20), 2 << 20), [], id="other numbers of calls"),
        pytest.param(
            side((1600, 200, 200), input_bytes=2 << 20, of=work(tokens=8)), ["work per step"], id="one tells"
        ),
    ],
)
def test_another_amount_of_work_or_clock_is_inferred_from_kernels_that_change_alike(head, expected):
    found = find_biases(side(), head)

    assert [entry.what.removesuffix(" (inferred)") for entry in found] == expected
    assert all(entry.direction == "slower" and entry.bias_ns > 0 for entry in found)
    back = find_biases(head, side())
    assert [entry.direction for entry in back] == ["faster"] * len(expected)


def test_known_tokens_need_no_guess():
    known = work(tokens=8)

    assert noted(side(of=known), side((1600, 200, 200), input_bytes=2 << 20, of=work(tokens=16))) == []


def test_a_bias_that_could_be_the_whole_change_stands_next_to_the_verdict():
    slower = profile_of("b", steps(20, 1.3, seed=2))
    found = diff(profile_of("a", steps(20)), slower)
    (entry,) = find_confounders(found)

    assert entry.what == "work per step (inferred)"
    assert 1.27 < float(entry.head.removesuffix("x")) < 1.33
    assert find_confounders(diff(slower, profile_of("a", steps(20)))) != ()
    alike = diff(profile_of("a", steps(20)), profile_of("b", steps(20, seed=2)))
    assert find_confounders(alike) == ()

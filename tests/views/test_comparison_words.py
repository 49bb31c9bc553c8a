"""What changed of an operation is said: calls, time per call, or how much of it the step waits for."""

import pytest

from wallscope.model.comparison import OperationChange
from wallscope.model.enums import Wall
from wallscope.views.comparison_words import TIMES, describe_calls, is_of_overlap, write_calls


def changed(count, each_ns, delta_ns):
    (base_count, head_count), (base_ns, head_ns) = count, each_ns
    return OperationChange(
        kind="changed",
        path="step",
        category="all-gather",
        base_category="all-gather",
        name="ncclDevKernel",
        base_name="ncclDevKernel",
        wall=Wall.COMMUNICATION,
        delta_ns=delta_ns,
        base_count=float(base_count),
        head_count=float(head_count),
        base_work_ns=base_count * base_ns,
        head_work_ns=head_count * head_ns,
        base_names_count=1,
        head_names_count=1,
    )


@pytest.mark.parametrize(
    ("row", "text"),
    [
        pytest.param(
            changed((27, 27), (2_700, 2_710), 3_200_000),
            "27 x 2.7 µs, 3.2 ms more exposed",
            id="overlap lost",
        ),
        pytest.param(
            changed((27, 27), (2_700, 2_700), -900_000), "27 x 2.7 µs, 900.0 µs less exposed", id="hidden"
        ),
        pytest.param(changed((4, 4), (1_000_000, 2_000_000), 4_000_000), "4 x 1.0 → 2.0 ms", id="slower"),
        pytest.param(
            changed((4, 8), (1_000_000, 1_000_000), 4_000_000), "4 x 1.0 ms → 8 x 1.0 ms", id="more"
        ),
        pytest.param(
            changed((4, 4), (2_000_000, 1_000_000), 4_000_000),
            "4 x 2.0 → 1.0 ms, 4.0 ms more exposed",
            id="faster and yet longer waited for",
        ),
    ],
)
def test_calls_say_what_changed(row, text):
    assert describe_calls(row) == text.replace(" x ", TIMES)
    assert is_of_overlap(row) is text.endswith(" exposed")
    assert describe_calls(row).startswith(write_calls(row))

"""How much runs of one testbed differ though nothing changed: told by commits with several runs."""

from collections import defaultdict
from collections.abc import Iterable
from math import log, sqrt

from wallscope.model.record import Record, Testbed
from wallscope.thresholds import FEWEST_DEGREES_OF_NOISE_COUNT


def run_noise(records: Iterable[Record], testbed: Testbed) -> tuple[float, float] | None:
    """Standard deviation of the logarithm of the typical step inside commits, and its degrees of freedom.

    `None` where fewer than two degrees tell it. Runs of pull requests do not count.
    """
    by_commit: dict[str, list[float]] = defaultdict(list)
    for record in records:
        if record.is_reference and record.testbed == testbed and record.speaking.typical_ns > 0:
            by_commit[record.commit].append(log(record.speaking.typical_ns))
    squares, freedom = 0.0, 0
    for values in by_commit.values():
        mean = sum(values) / len(values)
        squares += sum((value - mean) ** 2 for value in values)
        freedom += len(values) - 1
    return (sqrt(squares / freedom), float(freedom)) if freedom >= FEWEST_DEGREES_OF_NOISE_COUNT else None

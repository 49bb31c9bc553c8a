"""Comparison of two sides: whether they can be compared, how they differ, how sure that is, and in what."""

from wallscope.compare.comparability import configuration_of
from wallscope.compare.comparing import Asked, Side, check_gated, compared
from wallscope.compare.gates import Gate, gate_of, shares
from wallscope.compare.intervals import Noise
from wallscope.compare.reporting import comparison_report

__all__ = [
    "Asked",
    "Gate",
    "Noise",
    "Side",
    "check_gated",
    "compared",
    "comparison_report",
    "configuration_of",
    "gate_of",
    "shares",
]

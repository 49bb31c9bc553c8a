"""Whole nanoseconds out of broken ones, so that parts still add up."""

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeVar

_Name = TypeVar("_Name")


def apportioned(parts: Mapping[_Name, Fraction], whole: int) -> dict[_Name, int]:
    """Broken times as whole ones that add up, the largest remainders rounded up, ties by name."""
    floors = {name: int(value) for name, value in parts.items()}
    order = sorted(parts, key=lambda name: (floors[name] - parts[name], repr(name)))
    for name in order[: whole - sum(floors.values())]:
        floors[name] += 1
    return floors

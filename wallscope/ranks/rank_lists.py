"""Lists of ranks in sentences: numbers in a row are a range, and long lists are counted."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

_FEWEST_OF_RANGE = 3
MOST_PARTS: Final = 8
"""Numbers and ranges of a list that is written in full."""


def join_ranks(named: Sequence[str]) -> str:
    """Return names of ranks as a list; of a long one how many there are, the first and the last.

    >>> join_ranks(["rank 2", "rank 3"]), join_ranks(["rank 7"]), join_ranks(["a:0", "a:1"])
    ('ranks 2, 3', 'rank 7', 'a:0, a:1')
    >>> join_ranks([f"rank {number}" for number in (1, *range(8, 16), 20, 21)])
    'ranks 1, 8 to 15, 20, 21'
    >>> join_ranks([f"rank {number}" for number in range(0, 512, 8)])
    '64 ranks from 0 to 504'
    """
    numbers = [name.removeprefix("rank ") for name in named]
    is_numbered = all(number.isdigit() for number in numbers)
    parts = list(_join_runs(list(map(int, numbers)))) if is_numbered else numbers
    if len(parts) > MOST_PARTS:
        return f"{len(named)} ranks from {numbers[0]} to {numbers[-1]}"
    lead = "" if not is_numbered else "rank " if len(named) == 1 else "ranks "
    return f"{lead}{', '.join(parts)}"


def join_numbers(numbers: Sequence[int]) -> str:
    """Return numbers of ranks in order as a list; of a long one only the first and the last.

    >>> join_numbers((3, 8, 9, 10)), join_numbers(range(0, 512, 8))
    ('3, 8 to 10', 'from 0 to 504')
    """
    parts = list(_join_runs(numbers))
    return ", ".join(parts) if len(parts) <= MOST_PARTS else f"from {numbers[0]} to {numbers[-1]}"


def _join_runs(numbers: Sequence[int]) -> Iterator[str]:
    """Yield numbers in order, and three or more that follow one another as a range."""
    for _, run in groupby(enumerate(numbers), lambda entry: entry[1] - entry[0]):
        own = [number for _, number in run]
        yield from [f"{own[0]} to {own[-1]}"] if len(own) >= _FEWEST_OF_RANGE else map(str, own)

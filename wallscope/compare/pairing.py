"""Which operations of both sides are the same, across names that an autotuner or a range changed."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from fractions import Fraction

from wallscope.compare.families import family
from wallscope.compare.typical import Key, Ran, TypicalStep, total, wall_of
from wallscope.model.comparison import OperationDelta
from wallscope.thresholds import LIKE_OPERATIONS_RATIO

_MOST_LISTED = 200
_REST = "rest"
_ABSENT = Ran(Fraction(), Fraction(), Fraction(), Fraction())


@dataclass(frozen=True, slots=True)
class Pair:
    """Operations that are the same: the keys of each side, and what says so."""

    base: tuple[Key, ...]
    head: tuple[Key, ...]
    matched_by: str


def _family(key: Key) -> Hashable:
    return (key.path, key.category, key.axis, family(key.name))


def _moved(key: Key) -> Hashable:
    return (key.category, key.axis, key.name or key.path.rpartition(" / ")[2])


def _moved_family(key: Key) -> Hashable:
    return (key.category, key.axis, family(key.name) or key.path.rpartition(" / ")[2])


def _place(key: Key) -> Hashable:
    return (key.path, key.category, key.axis) if key.path else None


_WAYS: tuple[tuple[str, Callable[[Key], Hashable]], ...] = (
    ("name", lambda key: key),
    ("family", _family),
    ("name, other range", _moved),
    ("family, other range", _moved_family),
    ("range and category", _place),
)


def pairs(base: TypicalStep, head: TypicalStep) -> tuple[Pair, ...]:
    """All operations of both sides, the same ones together; what only one side has stands alone.

    The same are asked for in this order: name; family in a range; name, family anywhere; what is left of a
    category in a range, where it runs about as often on both sides.
    """
    left = [sorted({*side.ran, *(key for _, key in side.owned)}, key=repr) for side in (base, head)]
    found: list[Pair] = []
    for way, told in _WAYS:
        groups = [_grouped(keys, told) for keys in left]
        for group in sorted(groups[0].keys() & groups[1].keys(), key=repr):
            ours, theirs = groups[0][group], groups[1][group]
            if told is _place and not _is_as_often(ours, theirs, base, head):
                continue
            found.append(Pair(tuple(ours), tuple(theirs), way))
            left = [[key for key in keys if told(key) != group] for keys in left]
    found.extend(Pair((key,), (), "only in base") for key in left[0])
    found.extend(Pair((), (key,), "only in head") for key in left[1])
    return tuple(found)


def _grouped(keys: Iterable[Key], told: Callable[[Key], Hashable]) -> dict[Hashable, list[Key]]:
    groups: dict[Hashable, list[Key]] = defaultdict(list)
    for key in keys:
        group = told(key)
        if group is not None:
            groups[group].append(key)
    return groups


def _is_as_often(ours: list[Key], theirs: list[Key], base: TypicalStep, head: TypicalStep) -> bool:
    counts = [_ran(keys, side).count for keys, side in ((ours, base), (theirs, head))]
    return min(counts) >= LIKE_OPERATIONS_RATIO * max(counts) > 0


def _ran(keys: Iterable[Key], side: TypicalStep) -> Ran:
    parts = [side.ran[key] for key in keys if key in side.ran]
    return total(parts) if parts else _ABSENT


def operation_deltas(base: TypicalStep, head: TypicalStep) -> tuple[OperationDelta, ...]:
    """How what operations own changed, the largest change first; those of a cause sum to it exactly.

    Times are split evenly between both ways to go: what comes from a change of the count, at the mean of
    both times each, and what from a change of the time each, at the mean of both counts.
    """
    sides = (_Owning(base), _Owning(head))
    rows = [row for pair in pairs(base, head) for row in _rows(pair, *sides) if row.delta_ns]
    rows.sort(key=lambda row: (-abs(row.delta_ns), row.cause, row.path, row.name, row.base_name))
    return (*rows[:_MOST_LISTED], *_rest(rows[_MOST_LISTED:]))


class _Owning:
    """A side, with what each kind of operation owns by cause."""

    def __init__(self, step: TypicalStep) -> None:
        self.step = step
        self._by_key: dict[Key, dict[str, int]] = defaultdict(dict)
        for (cause, key), time_ns in step.owned.items():
            self._by_key[key][cause] = time_ns

    def by_cause(self, keys: tuple[Key, ...]) -> dict[str, int]:
        """What some kinds own together."""
        sums: dict[str, int] = defaultdict(int)
        for key in set(keys):
            for cause, time_ns in self._by_key.get(key, {}).items():
                sums[cause] += time_ns
        return sums


def _rows(pair: Pair, base: _Owning, head: _Owning) -> Iterable[OperationDelta]:
    sides = ((pair.base, base), (pair.head, head))
    owned = [side.by_cause(keys) for keys, side in sides]
    ran = [_ran(keys, side.step) for keys, side in sides]
    shown = (pair.head or pair.base)[0]
    is_counted = any(part.count for part in ran)
    for cause in sorted(owned[0].keys() | owned[1].keys()):
        base_ns, head_ns = owned[0].get(cause, 0), owned[1].get(cause, 0)
        by_count_ns = _by_count_ns((base_ns, ran[0].count), (head_ns, ran[1].count)) if is_counted else 0
        yield OperationDelta(
            name=_names(pair.head),
            base_name=_names(pair.base),
            path=shown.path,
            category=shown.category,
            cause=cause,
            delta_ns=head_ns - base_ns,
            count_delta_ns=by_count_ns,
            rate_delta_ns=head_ns - base_ns - by_count_ns,
            base_count=float(ran[0].count) if is_counted else None,
            head_count=float(ran[1].count) if is_counted else None,
            matched_by=pair.matched_by,
        )


def _by_count_ns(base: tuple[int, Fraction], head: tuple[int, Fraction]) -> int:
    """What the change of the count alone makes of the change of time."""
    (base_ns, base_count), (head_ns, head_count) = base, head
    if not base_count or not head_count:
        return head_ns - base_ns
    return round((head_count - base_count) * (base_ns / base_count + head_ns / head_count) / 2)


def _names(keys: tuple[Key, ...]) -> str:
    names = list(dict.fromkeys(key.name for key in keys))
    return names[0] if len(names) == 1 else " | ".join(names[:3])


def _rest(rows: list[OperationDelta]) -> Iterable[OperationDelta]:
    """What is not listed, a row a cause."""
    for cause in sorted({row.cause for row in rows}, key=lambda cause: (wall_of(cause), cause)):
        own = [row for row in rows if row.cause == cause]
        sums = {
            name: sum(getattr(row, name) for row in own)
            for name in ("delta_ns", "count_delta_ns", "rate_delta_ns")
        }
        yield OperationDelta(
            name=_REST,
            base_name=_REST,
            path="",
            category="",
            cause=cause,
            base_count=None,
            head_count=None,
            matched_by=_REST,
            **sums,
        )

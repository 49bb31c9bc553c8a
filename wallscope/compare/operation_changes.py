"""Operations by NVTX range that are new, gone, replaced or changed, as calls and time per call.

Kernels get other names when a compiler fuses them, when another precision or library runs them, or when one
is split. Of one kind in one range, those that only head has replace those that only base has: they do the
same work, unless their times are too far apart.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from wallscope.compare.match_operations import OperationPair, pair_operations
from wallscope.compare.operation_intervals import Part, TracedRow
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep, total_work
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import OperationChange
from wallscope.model.enums import ComputeCategory, Wall
from wallscope.thresholds.verdict import (
    LEADING_OPERATION_SHARE,
    LIKE_OPERATIONS_RATIO,
    REPLACED_WORK_RATIO,
)
from wallscope.trace.kernel_classes import shorten_kernel

_POINTWISE = frozenset(
    {
        ComputeCategory.NORM,
        ComputeCategory.ELEMENTWISE,
        ComputeCategory.REDUCTION,
        ComputeCategory.OPTIMIZER,
        ComputeCategory.QUANTIZE,
        ComputeCategory.OTHER,
        ComputeCategory.UNRECOGNIZED,
    }
)
"""Kernels that compilers fuse into one another."""
_KEPT = frozenset({"name", "family", "name, other range", "family, other range"})
_HOST = "host"
_MOST_LISTED = 100
_MOST_JOINED = 200  # of what is gone and what is new, as each is compared with each
_NOTHING = Key("", "", "", None, None, None)

_Place = tuple[str, str]
"""The range and the kind of work in it."""


@dataclass(slots=True)
class _Group:
    """What runs in one range and has one kind: operations of both sides that match, and what is left."""

    kept: list[OperationPair] = field(default_factory=list)
    gone: list[Key] = field(default_factory=list)
    new: list[Key] = field(default_factory=list)


def operation_changes(base: TypicalStep, head: TypicalStep) -> tuple[TracedRow[OperationChange], ...]:
    """Return how operations of the device changed, by range and kind, the largest change first."""
    sides = _Side(base), _Side(head)
    groups = _group_pairs(pair_operations(base, head))
    _join_ranges(groups, *sides)
    for group in groups.values():
        _join_changed_counts(group, *sides)
    traced = [one for group in groups.values() for one in _describe_group(group, *sides)]
    traced = [one for one in traced if one.row.delta_ns or one.row.kind != "changed"]
    traced.sort(key=lambda one: _order(one.row))
    return tuple(traced[:_MOST_LISTED])


def _order(row: OperationChange) -> tuple[int | str, ...]:
    return (-abs(row.delta_ns), row.path, row.category, row.kind, row.name, row.base_name)


class _Side:
    """A side, with the time of the step that is attributed to each kind of operation, without host time."""

    def __init__(self, step: TypicalStep) -> None:
        self.ran = step.ran
        self._owned: dict[Key, dict[Wall, int]] = defaultdict(lambda: defaultdict(int))
        self.parts: dict[Key, set[Part]] = defaultdict(set)
        for (cause, key), time_ns in step.owned.items():
            if (wall := find_wall(cause)) is not Wall.HOST:
                self._owned[key][wall] += time_ns
                self.parts[key].add((cause, key))

    def work(self, keys: Iterable[Key]) -> OperationWork:
        """Return the calls and durations of some kinds of operations together."""
        return total_work([self.ran[key] for key in keys if key in self.ran])

    def by_wall(self, keys: Iterable[Key]) -> dict[Wall, int]:
        """Return the time of the step that some kinds of operations are attributed, by wall."""
        sums: dict[Wall, int] = defaultdict(int)
        for key in keys:
            for wall, time_ns in self._owned[key].items():
                sums[wall] += time_ns
        return sums

    def largest(self, keys: Iterable[Key]) -> Key | None:
        """Return the kind of operation that runs longest."""
        return max(sorted(keys, key=repr), key=lambda key: self.work((key,)).work_ns, default=None)


def _kind_of(key: Key) -> str:
    if key.axis is not None:
        return f"communication {key.axis}"
    return "pointwise" if key.category in _POINTWISE else key.category


def _group_pairs(pairs: Iterable[OperationPair]) -> dict[_Place, _Group]:
    groups: dict[_Place, _Group] = defaultdict(_Group)
    for pair in pairs:
        shown = (pair.head or pair.base)[0]
        if shown.category == _HOST:
            continue
        if pair.matched_by in _KEPT:
            groups[_place_of(shown)].kept.append(pair)
            continue
        for key in pair.base:
            groups[_place_of(key)].gone.append(key)
        for key in pair.head:
            groups[_place_of(key)].new.append(key)
    return groups


def _place_of(key: Key) -> _Place:
    """Return the innermost ranges around an operation, as a reader sees its path, and its kind."""
    return " / ".join(key.path.split(" / ")[-2:]), _kind_of(key)


def _join_changed_counts(group: _Group, base: _Side, head: _Side) -> None:
    """Put kernels that run less or more often to those that others took over from, where there are any."""
    if not group.gone and not group.new:
        return
    kept = []
    for pair in group.kept:
        counts = sorted((base.work(pair.base).count, head.work(pair.head).count))
        if counts[0] >= LIKE_OPERATIONS_RATIO * counts[1]:
            kept.append(pair)
        else:
            group.gone.extend(pair.base)
            group.new.extend(pair.head)
    group.kept = kept


def _join_ranges(groups: dict[_Place, _Group], base: _Side, head: _Side) -> None:
    """Put what is gone from one range to what is new in a range in or around it, or without a range."""
    gone = [place for place, group in groups.items() if group.gone and not group.new]
    new = [place for place, group in groups.items() if group.new and not group.gone]
    gone.sort(key=lambda place: (-base.work(groups[place].gone).work_ns, place))
    new = sorted(new, key=lambda place: (-head.work(groups[place].new).work_ns, place))[:_MOST_JOINED]
    for place in gone[:_MOST_JOINED]:
        near = [
            other
            for other in new
            if other[1] == place[1]
            and _is_near(groups[place].gone[0].path, groups[other].new[0].path)
            and _are_alike(base.work(groups[place].gone), head.work(groups[other].new))
        ]
        if near:
            chosen = near[0]  # the largest
            groups[chosen].gone, groups[place].gone = groups[place].gone, []
            new.remove(chosen)


def _is_near(base: str, head: str) -> bool:
    return not base or not head or base.startswith(f"{head} / ") or head.startswith(f"{base} / ")


def _are_alike(base: OperationWork, head: OperationWork) -> bool:
    less, more = sorted((base.work_ns, head.work_ns))
    return less >= REPLACED_WORK_RATIO * more > 0


def _describe_group(group: _Group, base: _Side, head: _Side) -> Iterator[TracedRow[OperationChange]]:
    for pairs in _split_leading(group.kept, base, head):
        ours = [key for pair in pairs for key in pair.base]
        theirs = [key for pair in pairs for key in pair.head]
        yield _change("changed", ours, theirs, base, head)
    if group.gone and group.new and _are_alike(base.work(group.gone), head.work(group.new)):
        yield _change("replaced", group.gone, group.new, base, head)
        return
    if group.gone:
        yield _change("gone", group.gone, (), base, head)
    if group.new:
        yield _change("new", (), group.new, base, head)


def _split_leading(pairs: list[OperationPair], base: _Side, head: _Side) -> list[list[OperationPair]]:
    """Set apart the one operation that changed by nearly all of what its group changed by."""
    if len(pairs) < 2:
        return [pairs] if pairs else []
    sizes = {
        place: abs(sum(head.by_wall(pair.head).values()) - sum(base.by_wall(pair.base).values()))
        for place, pair in enumerate(pairs)
    }
    largest = max(sizes, key=lambda place: (sizes[place], -place))
    if sizes[largest] < LEADING_OPERATION_SHARE * sum(sizes.values()):
        return [pairs]
    return [[pairs[largest]], [pair for place, pair in enumerate(pairs) if place != largest]]


def _change(
    kind: Literal["new", "gone", "replaced", "changed"],
    ours: Iterable[Key],
    theirs: Iterable[Key],
    base: _Side,
    head: _Side,
) -> TracedRow[OperationChange]:
    ours, theirs = sorted(set(ours), key=repr), sorted(set(theirs), key=repr)
    work, walls = (base.work(ours), head.work(theirs)), (base.by_wall(ours), head.by_wall(theirs))
    names = base.largest(ours), head.largest(theirs)
    shown = names[1] or names[0] or _NOTHING
    changed = {wall: walls[1].get(wall, 0) - walls[0].get(wall, 0) for wall in Wall}
    row = OperationChange(
        kind=kind,
        path=shown.path,
        category=shown.category,
        base_category=(names[0] or shown).category,
        name="" if names[1] is None else shorten_kernel(names[1].name),
        base_name="" if names[0] is None else shorten_kernel(names[0].name),
        wall=max(Wall, key=lambda wall: abs(changed[wall])),
        delta_ns=sum(changed.values()),
        base_count=float(work[0].count),
        head_count=float(work[1].count),
        base_work_ns=round(work[0].work_ns),
        head_work_ns=round(work[1].work_ns),
        base_names_count=len({key.name for key in ours}),
        head_names_count=len({key.name for key in theirs}),
    )
    parts = [side.parts[key] for keys, side in ((ours, base), (theirs, head)) for key in keys]
    return TracedRow(row, str(row.wall), frozenset[Part]().union(*parts))

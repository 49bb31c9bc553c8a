"""Operations of both sides: which are the same, how their time changed, which are new, gone or replaced.

They are matched across names that an autotuner or a range changed: families of kernels are names without what
an autotuner chooses. `nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN` and
`nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN` multiply alike; tile sizes, stages, architectures and what stands
in angle brackets are choices.

Kernels get other names when a compiler fuses them, when another precision or library runs them, or when one
is split. Of one kind in one range, those that only head has replace those that only base has: they do the
same work, unless their times are too far apart.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import field
from fractions import Fraction
from typing import Literal

from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep, total_work
from wallscope.compare.wall_deltas import Part, TracedRow
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import OperationChange, OperationDelta
from wallscope.model.enums import ComputeCategory, Wall
from wallscope.records import dataclass
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
_HOST = "host"
_MOST_DELTAS = 200
_MOST_CHANGES = 100
_MOST_JOINED = 200  # of what is gone and what is new, as each is compared with each
_NOTHING = Key("", "", "", None, None, None)
_REST = "rest"
_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\(anonymous namespace\)", ""),
        (r"^(nvjet)_.*?_([NT]{2,3})\b.*$", r"\1_\2"),
        (r"^(?:void |static )", ""),
        (r"<.*$", ""),
        (r"\(.*$", ""),
        (r"^(?:sm|ampere|hopper|volta|turing|blackwell|maxwell|pascal)\d*_", ""),
        (r"_(?:sm|stages?|knob|tile|warps?|split_?k|cta|ldg|cluster)_?\d*(?:x\d+)*(?=_|$)", ""),
        (r"_?\d+x\d+(?:x\d+)*", ""),
        (r"\d+", "#"),
    )
)


def name_family(name: str) -> str:
    """Return what is left of a kernel's name.

    >>> name_family("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN")
    'nvjet_TNN'
    >>> name_family("void at::native::reduce<(int)512>(T3)")
    'at::native::reduce'
    >>> sm90, sm80 = "sm90_xmma_gemm_bf16_128x128x64_stages_3", "sm80_xmma_gemm_bf16_64x64x32_stages_4"
    >>> name_family(sm90) == name_family(sm80)
    True
    """
    for pattern, replacement in _RULES:
        name = pattern.sub(replacement, name)
    return name


@dataclass(frozen=True, slots=True)
class OperationPair:
    """Operations that are the same: the keys of each side, and what says so."""

    base: tuple[Key, ...]
    head: tuple[Key, ...]
    matched_by: str


def _family(key: Key) -> Hashable:
    return (key.path, key.category, key.axis, name_family(key.name))


def _moved(key: Key) -> Hashable:
    return (key.category, key.axis, key.name or key.path.rpartition(" / ")[2])


def _moved_family(key: Key) -> Hashable:
    return (key.category, key.axis, name_family(key.name) or key.path.rpartition(" / ")[2])


def _range_and_category(key: Key) -> Hashable:
    return (key.path, key.category, key.axis) if key.path else None


def _itself(key: Key) -> Hashable:
    return key


def _spread_over_ranges(key: Key) -> Hashable:
    return (key.category, key.axis, key.name) if key.name else None


_ONE_OF_EACH = 2
_WAYS: tuple[tuple[str, Callable[[Key], Hashable]], ...] = (
    ("name", _itself),
    ("name, other range", _spread_over_ranges),
    ("name", lambda key: key),
    ("family", _family),
    ("name, other range", _moved),
    ("family, other range", _moved_family),
    ("range and category", _range_and_category),
)


KEPT = frozenset({"name", "family", "name, other range", "family, other range"})
"""Ways that match kernels of one name or family."""


def pair_operations(base: TypicalStep, head: TypicalStep) -> tuple[OperationPair, ...]:
    """Return all operations of both sides, the same ones together; what only one side has stands alone.

    They are matched in this order: by name; by family in a range; by name, then family anywhere. What is left
    of a category in a range is matched where it runs about as often on both sides. An operation that a few
    steps run in this range, and the others in another one, is the same only with both ranges together.
    """
    left = [sorted({*side.ran, *(key for _, key in side.owned)}, key=repr) for side in (base, head)]
    found: list[OperationPair] = []
    for way, identity in _WAYS:
        groups = [_group(keys, identity) for keys in left]
        matched = set()
        for group in sorted(groups[0].keys() & groups[1].keys(), key=repr):
            ours, theirs = groups[0][group], groups[1][group]
            if identity is _range_and_category and not _is_as_often(ours, theirs, base, head):
                continue
            if identity is _spread_over_ranges and not (
                set(ours) & set(theirs)
                and len(ours) + len(theirs) > _ONE_OF_EACH
                and _is_as_often(ours, theirs, base, head)
            ):
                continue
            if identity is _itself and _is_rarer(ours[0], base, head):
                continue
            found.append(OperationPair(tuple(ours), tuple(theirs), way))
            matched.add(group)
        left = [[key for key in keys if identity(key) not in matched] for keys in left]
    found.extend(OperationPair((key,), (), "only in base") for key in left[0])
    found.extend(OperationPair((), (key,), "only in head") for key in left[1])
    return tuple(found)


def _group(keys: Iterable[Key], identity: Callable[[Key], Hashable]) -> dict[Hashable, list[Key]]:
    groups: dict[Hashable, list[Key]] = defaultdict(list)
    for key in keys:
        group = identity(key)
        if group is not None:
            groups[group].append(key)
    return groups


def _is_rarer(key: Key, base: TypicalStep, head: TypicalStep) -> bool:
    """Return whether an operation runs much more often on one side."""
    return key in base.ran and key in head.ran and not _is_as_often([key], [key], base, head)


def _is_as_often(ours: list[Key], theirs: list[Key], base: TypicalStep, head: TypicalStep) -> bool:
    counts = [_sum_counts(keys, side) for keys, side in ((ours, base), (theirs, head))]
    return min(counts) >= LIKE_OPERATIONS_RATIO * max(counts) > 0


def _sum_counts(keys: Iterable[Key], side: TypicalStep) -> Fraction:
    return sum((side.ran[key].count for key in keys if key in side.ran), Fraction())


class _Side:
    """A side, with the time of the step that is attributed to each kind of operation."""

    def __init__(self, step: TypicalStep) -> None:
        self._ran = step.ran
        self._owned: dict[Key, list[tuple[str, int]]] = defaultdict(list)
        for (cause, key), time_ns in step.owned.items():
            self._owned[key].append((cause, time_ns))

    def work(self, keys: Iterable[Key]) -> OperationWork:
        """Return the calls and durations of some kinds of operations together."""
        return total_work([self._ran[key] for key in keys if key in self._ran])

    def by_cause(self, keys: Iterable[Key]) -> dict[str, int]:
        """Return the time of the step that some kinds of operations are attributed, by cause, in ns."""
        sums: dict[str, int] = defaultdict(int)
        for key in set(keys):
            for cause, time_ns in self._owned[key]:
                sums[cause] += time_ns
        return sums

    def by_wall(self, keys: Iterable[Key]) -> dict[Wall, int]:
        """Return the same by wall, without host time."""
        sums: dict[Wall, int] = defaultdict(int)
        for cause, time_ns in self.by_cause(keys).items():
            if (wall := find_wall(cause)) is not Wall.HOST:
                sums[wall] += time_ns
        return sums

    def parts(self, keys: Iterable[Key]) -> frozenset[Part]:
        """Return what that time adds up."""
        owned = ((cause, key) for key in keys for cause, _ in self._owned[key])
        return frozenset(part for part in owned if find_wall(part[0]) is not Wall.HOST)

    def largest(self, keys: Iterable[Key]) -> Key | None:
        """Return the kind of operation that runs longest."""
        return max(sorted(keys, key=repr), key=lambda key: self.work((key,)).work_ns, default=None)


def operation_deltas(base: TypicalStep, head: TypicalStep) -> tuple[TracedRow[OperationDelta], ...]:
    """Return how the time of operations changed, the largest change first; those of a cause sum to it.

    A change is split in two. One part comes from the count, at the mean of both times per call; the other
    from the time per call, at the mean of both counts.
    """
    sides = (_Side(base), _Side(head))
    traced = [one for pair in pair_operations(base, head) for one in _rows(pair, *sides) if one.row.delta_ns]
    traced.sort(
        key=lambda one: (-abs(one.row.delta_ns), one.row.cause, one.row.path, one.row.name, one.row.base_name)
    )
    return (*traced[:_MOST_DELTAS], *_rest(traced[_MOST_DELTAS:]))


def _rows(pair: OperationPair, base: _Side, head: _Side) -> Iterable[TracedRow[OperationDelta]]:
    sides = ((pair.base, base), (pair.head, head))
    owned = [side.by_cause(keys) for keys, side in sides]
    ran = [side.work(keys) for keys, side in sides]
    shown = (pair.head or pair.base)[0]
    is_counted = any(part.count for part in ran)
    for cause in sorted(owned[0].keys() | owned[1].keys()):
        base_ns, head_ns = owned[0].get(cause, 0), owned[1].get(cause, 0)
        by_count_ns = _by_count_ns((base_ns, ran[0].count), (head_ns, ran[1].count)) if is_counted else 0
        row = OperationDelta(
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
        keys = {*pair.base, *pair.head}
        yield TracedRow(row, cause, frozenset((cause, key) for key in keys))


def _by_count_ns(base: tuple[int, Fraction], head: tuple[int, Fraction]) -> int:
    """Return what the change of the count alone makes of the change of time."""
    (base_ns, base_count), (head_ns, head_count) = base, head
    if not base_count or not head_count:
        return head_ns - base_ns
    return round((head_count - base_count) * (base_ns / base_count + head_ns / head_count) / 2)


def _names(keys: tuple[Key, ...]) -> str:
    names = list(dict.fromkeys(key.name for key in keys))
    return names[0] if len(names) == 1 else " | ".join(names[:3])


def _rest(traced: list[TracedRow[OperationDelta]]) -> Iterable[TracedRow[OperationDelta]]:
    """Return what is not listed, a row a cause."""
    causes = {one.row.cause for one in traced}
    for cause in sorted(causes, key=lambda cause: (find_wall(cause), cause)):
        own = [one for one in traced if one.row.cause == cause]
        sums = {
            name: sum(getattr(one.row, name) for one in own)
            for name in ("delta_ns", "count_delta_ns", "rate_delta_ns")
        }
        row = OperationDelta(
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
        yield TracedRow(row, cause, frozenset(part for one in own for part in one.parts))


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
    traced.sort(key=lambda one: _order_changes(one.row))
    return tuple(traced[:_MOST_CHANGES])


def _order_changes(row: OperationChange) -> tuple[int | str, ...]:
    return (-abs(row.delta_ns), row.path, row.category, row.kind, row.name, row.base_name)


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
        if pair.matched_by in KEPT:
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
    return TracedRow(row, str(row.wall), base.parts(ours) | head.parts(theirs))

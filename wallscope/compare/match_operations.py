"""Which operations of both sides are the same, how their time changed, and communication by axis.

They are matched across names that an autotuner or a range changed: families of kernels are names without what
an autotuner chooses. `nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN` and
`nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN` multiply alike; tile sizes, stages, architectures and what stands
in angle brackets are choices.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from wallscope.compare.operation_intervals import TracedRow
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep, total_work
from wallscope.model.cause_catalogue import find_wall
from wallscope.model.comparison import CommunicationChange, OperationDelta
from wallscope.model.enums import Axis, Wall
from wallscope.thresholds.verdict import LIKE_OPERATIONS_RATIO

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


_MOST_LISTED = 200
_REST = "rest"
_ABSENT = OperationWork(Fraction(), Fraction(), Fraction(), Fraction())


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


def _place(key: Key) -> Hashable:
    return (key.path, key.category, key.axis) if key.path else None


_WAYS: tuple[tuple[str, Callable[[Key], Hashable]], ...] = (
    ("name", lambda key: key),
    ("family", _family),
    ("name, other range", _moved),
    ("family, other range", _moved_family),
    ("range and category", _place),
)


def pair_operations(base: TypicalStep, head: TypicalStep) -> tuple[OperationPair, ...]:
    """Return all operations of both sides, the same ones together; what only one side has stands alone.

    They are matched in this order: by name; by family in a range; by name, then family anywhere. What is left
    of a category in a range is matched where it runs about as often on both sides.
    """
    left = [sorted({*side.ran, *(key for _, key in side.owned)}, key=repr) for side in (base, head)]
    found: list[OperationPair] = []
    for way, identity in _WAYS:
        groups = [_group(keys, identity) for keys in left]
        matched = set()
        for group in sorted(groups[0].keys() & groups[1].keys(), key=repr):
            ours, theirs = groups[0][group], groups[1][group]
            if identity is _place and not _is_as_often(ours, theirs, base, head):
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


def _is_as_often(ours: list[Key], theirs: list[Key], base: TypicalStep, head: TypicalStep) -> bool:
    counts = [_work_of(keys, side).count for keys, side in ((ours, base), (theirs, head))]
    return min(counts) >= LIKE_OPERATIONS_RATIO * max(counts) > 0


def _work_of(keys: Iterable[Key], side: TypicalStep) -> OperationWork:
    parts = [side.ran[key] for key in keys if key in side.ran]
    return total_work(parts) if parts else _ABSENT


def operation_deltas(base: TypicalStep, head: TypicalStep) -> tuple[TracedRow[OperationDelta], ...]:
    """Return how the time of operations changed, the largest change first; those of a cause sum to it.

    A change is split in two. One part comes from the count, at the mean of both times per call; the other
    from the time per call, at the mean of both counts.
    """
    sides = (_OwnedByCause(base), _OwnedByCause(head))
    traced = [one for pair in pair_operations(base, head) for one in _rows(pair, *sides) if one.row.delta_ns]
    traced.sort(
        key=lambda one: (-abs(one.row.delta_ns), one.row.cause, one.row.path, one.row.name, one.row.base_name)
    )
    return (*traced[:_MOST_LISTED], *_rest(traced[_MOST_LISTED:]))


class _OwnedByCause:
    """A side, with the time of each kind of operation by cause."""

    def __init__(self, step: TypicalStep) -> None:
        self.step = step
        self._by_key: dict[Key, dict[str, int]] = defaultdict(dict)
        for (cause, key), time_ns in step.owned.items():
            self._by_key[key][cause] = time_ns

    def by_cause(self, keys: tuple[Key, ...]) -> dict[str, int]:
        """Return the time of some kinds together, by cause, in ns."""
        sums: dict[str, int] = defaultdict(int)
        for key in set(keys):
            for cause, time_ns in self._by_key.get(key, {}).items():
                sums[cause] += time_ns
        return sums


def _rows(
    pair: OperationPair, base: _OwnedByCause, head: _OwnedByCause
) -> Iterable[TracedRow[OperationDelta]]:
    sides = ((pair.base, base), (pair.head, head))
    owned = [side.by_cause(keys) for keys, side in sides]
    ran = [_work_of(keys, side.step) for keys, side in sides]
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


def communication_changes(base: TypicalStep, head: TypicalStep) -> tuple[TracedRow[CommunicationChange], ...]:
    """Return a row an axis that either side has, in the order of the axes."""
    found = []
    for axis in Axis:
        if _parts(base, axis) or _parts(head, axis):
            prefix = f"communication/{axis}/"
            owned = frozenset(part for part in (*base.owned, *head.owned) if part[0].startswith(prefix))
            found.append(TracedRow(_change(axis, base, head), str(Wall.COMMUNICATION), owned))
    return tuple(found)


def _parts(step: TypicalStep, axis: Axis) -> list[OperationWork]:
    return [ran for key, ran in step.ran.items() if key.axis == axis]


def _change(axis: Axis, base: TypicalStep, head: TypicalStep) -> CommunicationChange:
    ours, theirs = total_work(_parts(base, axis)), total_work(_parts(head, axis))
    waits = [_cause_ns(step, (f"communication/{axis}/peer-wait",)) for step in (base, head)]
    owned = [_cause_ns(step, (f"communication/{axis}/",)) for step in (base, head)]
    return CommunicationChange(
        axis=axis,
        base_count=float(ours.count),
        head_count=float(theirs.count),
        base_bytes=None if ours.bytes is None else round(ours.bytes),
        head_bytes=None if theirs.bytes is None else round(theirs.bytes),
        base_work_ns=round(ours.work_ns),
        head_work_ns=round(theirs.work_ns),
        base_exposed_ns=round(ours.exposed_ns or 0),
        head_exposed_ns=round(theirs.exposed_ns or 0),
        base_hidden_share=_hidden(ours),
        head_hidden_share=_hidden(theirs),
        peer_wait_delta_ns=waits[1] - waits[0],
        delta_ns=owned[1] - owned[0],
    )


def _hidden(ran: OperationWork) -> float | None:
    if not ran.work_ns or ran.exposed_ns is None:
        return None
    return float(1 - ran.exposed_ns / ran.work_ns)


def _cause_ns(step: TypicalStep, prefixes: Sequence[str]) -> int:
    return sum(ns for cause, ns in step.causes.items() if cause.startswith(tuple(prefixes)))

"""Which recommendation for base head has applied, and what came of its bound.

Four kinds of evidence show it (`applied_fixes.toml`). The first is a changed setting, the second recognized
changes of kernels, copies, graphs and calls. The third is a condition that holds no more. The last is a cause
that falls by more than half without another explanation. What fits several recommendations names the first,
and the others as alternatives. A change that fits none is left out.
"""

from collections.abc import Collection, Sequence
from functools import cache

from wallscope.compare.capture_bias import WORK_DIFFERS
from wallscope.files import read_toml
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import AppliedFix, CauseDelta, Explanation, Mismatch, StepChange, WallDelta
from wallscope.model.enums import Wall
from wallscope.model.profile import RecordedFix
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    APPLIED_FALL_SHARE,
    MATERIAL_SHARE,
    NEXT_WALL_OF_FIX_SHARE,
    SAME_WHOLE_SHARE,
    SIDE_EFFECT_SHARE,
)
from wallscope.units import duration

_RARE_STALLS = "rare-stalls-fewer"
_LOSSES = frozenset({Wall.COMMUNICATION, Wall.MEMORY, Wall.HOST})


@dataclass(frozen=True, slots=True)
class ChangeEvidence:
    """What a comparison found, as far as it shows applied fixes; `still_advised` is what head is advised."""

    step: StepChange
    walls: tuple[WallDelta, ...]
    causes: tuple[CauseDelta, ...]
    explanations: tuple[Explanation, ...]
    mismatches: tuple[Mismatch, ...]
    still_advised: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Recognized:
    """A fix with the texts that show it, the ids that these fit as well, and the causes they explain.

    `precisions` are those of head, if the fix names another.
    """

    fix: RecordedFix
    texts: list[str]
    alternatives: list[str]
    causes: set[str]
    precisions: tuple[str, ...] = ()


def recognize_applied_fixes(fixes: Sequence[RecordedFix], found: ChangeEvidence) -> tuple[AppliedFix, ...]:
    """Return the recommendations that were applied, each with bound, replayed and measured gain."""
    if not fixes or found.step.replication in {"same", "none"}:
        return ()
    recognized: list[_Recognized] = []
    _recognize_settings(fixes, found, recognized)
    _recognize_explained(fixes, found, recognized)
    _recognize_unmet(fixes, found, recognized)
    _recognize_fallen(fixes, found, recognized)
    return tuple(_measure_applied(one, found, is_joint=len(recognized) > 1) for one in recognized)


def _recognize_settings(
    fixes: Sequence[RecordedFix], found: ChangeEvidence, recognized: list[_Recognized]
) -> None:
    """Add fixes whose first setting head has and base has not, none of whose settings has another value.

    Of fixes with one first setting those count of which most settings changed.
    """
    changed = {
        _name_setting(entry.what): (entry.base, entry.head) for entry in found.mismatches if entry.is_setting
    }
    fitting: dict[str, list[tuple[int, RecordedFix, list[str]]]] = {}
    for fix in fixes:
        own = [(_name_setting(key), value) for key, value in fix.settings]
        known = [(name, value, *changed[name]) for name, value in own if name in changed]
        hits = [(name, base, head) for name, value, base, head in known if _is_value(head, value)]
        if hits and len(hits) == len(known) and hits[0][0] == own[0][0]:
            texts = [f"{name} {base} → {head}" for name, base, head in hits]
            fitting.setdefault(own[0][0], []).append((len(hits), fix, texts))
    for entries in fitting.values():
        most = max(count for count, _, _ in entries)
        best = [(fix, texts) for count, fix, texts in entries if count == most]
        fix, texts = best[0]
        _add(
            recognized, _Recognized(fix, ["; ".join(texts)], [one.id for one, _ in best[1:]], set(fix.causes))
        )


def _name_setting(key: str) -> str:
    """Return a setting without its section, spelled as its canonical name.

    >>> _name_setting("model.moe_flex"), _name_setting("--moe-token-dispatcher-type"), _name_setting("NCCL_X")
    ('moe_flex', 'moe_token_dispatcher_type', 'NCCL_X')
    """
    return key.rpartition(".")[2].lstrip("-").replace("-", "_")


def _is_value(head: str, value: str) -> bool:
    """Return whether head has the value that a fix sets; a flag without a value is on."""
    return head.strip().lower() == (value.strip().lower() or "true")


def _recognize_explained(
    fixes: Sequence[RecordedFix], found: ChangeEvidence, recognized: list[_Recognized]
) -> None:
    for explanation_code, ids in _list_evidence():
        for entry in found.explanations:
            if entry.code != explanation_code:
                continue
            open_causes = set(entry.causes) - {cause for one in recognized for cause in one.causes}
            fitting = [
                fix
                for fix in fixes
                if fix.id in ids and (open_causes & set(fix.causes) or _covers(fix, open_causes))
            ]
            if fitting and _is_no_side_effect(_sum_change(entry, found), found, recognized):
                as_seen = [fix for fix in fitting if _has_precision(fix, entry)]
                first, *others = as_seen or fitting
                causes = set(entry.causes) & set(first.causes) | _list_covered(first, entry.causes)
                seen = () if as_seen else entry.precisions
                further = [one.id for one in others]
                _add(recognized, _Recognized(first, [entry.message], further, causes, seen))


def _has_precision(fix: RecordedFix, entry: Explanation) -> bool:
    """Return whether kernels of head run in the precision that a fix names, if it names one."""
    named = read_toml("compare/applied_fixes.toml")["precisions"].get(fix.id)
    return not entry.precisions or named is None or not set(named).isdisjoint(entry.precisions)


def _recognize_unmet(
    fixes: Sequence[RecordedFix], found: ChangeEvidence, recognized: list[_Recognized]
) -> None:
    """Add fixes that head is not advised any more, though their causes, which fell, may be its next wall."""
    if not found.still_advised or any(entry.what == WORK_DIFFERS for entry in found.mismatches):
        return
    known = {cause for one in recognized for cause in one.causes}
    by_condition = set(read_toml("compare/applied_fixes.toml")["by_condition"])
    for fix in fixes:
        own = [one for one in found.causes if one.cause in fix.causes and one.cause not in known]
        if fix.id not in by_condition or fix.id in found.still_advised or not own:
            continue
        base_ns, head_ns = sum(one.base_ns for one in own), sum(one.head_ns for one in own)
        is_less = base_ns - head_ns >= MATERIAL_SHARE * found.step.base_ns
        if is_less and head_ns >= NEXT_WALL_OF_FIX_SHARE * found.step.head_ns:
            text = f"what recommended it is gone; {_write_fall(own)}"
            _add(recognized, _Recognized(fix, [text], [], {one.cause for one in own}))
            known |= set(fix.causes)


def _write_fall(deltas: Sequence[CauseDelta]) -> str:
    return "; ".join(
        f"{describe_cause(one.cause)} {duration(one.base_ns)} → {duration(one.head_ns)}" for one in deltas
    )


def _recognize_fallen(
    fixes: Sequence[RecordedFix], found: ChangeEvidence, recognized: list[_Recognized]
) -> None:
    """Add fixes of which most of the causes' time is surely gone, and that nothing else explains."""
    if any(entry.what == WORK_DIFFERS for entry in found.mismatches):
        return
    tables = read_toml("compare/applied_fixes.toml")
    explained = {cause for one in recognized for cause in one.causes}
    explained |= {
        cause for entry in found.explanations if entry.code not in tables["open"] for cause in entry.causes
    }
    by_cause = set(tables["by_cause"])
    deltas = {one.cause: one for one in found.causes}
    while True:
        fitting = [
            (fix, fallen)
            for fix in fixes
            if fix.id in by_cause
            and fix.bound_ns
            and (fallen := _list_fallen(fix, deltas, found.step, explained))
        ]
        if not fitting:
            return
        fix, fallen = fitting[0]
        if not _is_no_side_effect(sum(deltas[cause].delta_ns for cause in fallen), found, recognized):
            return
        others = [one.id for one, own in fitting[1:] if set(own) <= set(fallen)]
        text = _write_fall([deltas[cause] for cause in fallen])
        _add(recognized, _Recognized(fix, [text], others, set(fallen)))
        explained |= set(fallen)


def _list_fallen(
    fix: RecordedFix, deltas: dict[str, CauseDelta], step: StepChange, explained: Collection[str]
) -> list[str]:
    """Return the causes of a fix that fell, if more than half of their time is surely gone."""
    own = [deltas[cause] for cause in fix.causes if cause in deltas and cause not in explained]
    base_ns, delta_ns = sum(one.base_ns for one in own), sum(one.delta_ns for one in own)
    if -delta_ns < max(APPLIED_FALL_SHARE * base_ns, MATERIAL_SHARE * step.base_ns):
        return []
    return [one.cause for one in own if one.high_ns is not None and one.high_ns < 0]


def _is_no_side_effect(delta_ns: int, found: ChangeEvidence, recognized: Sequence[_Recognized]) -> bool:
    """Return whether causes fell, or stayed, and by more than a small part of what is recognized already."""
    known_ns = sum(
        one.delta_ns for one in found.causes if any(one.cause in other.causes for other in recognized)
    )
    return delta_ns <= min(SIDE_EFFECT_SHARE * known_ns, 0)


def _sum_change(entry: Explanation, found: ChangeEvidence) -> int:
    """Return by how much the causes of an explanation changed, with what the compared step leaves out."""
    changed_ns = sum(one.delta_ns for one in found.causes if one.cause in entry.causes)
    is_left_out = entry.code == _RARE_STALLS and found.step.compared == "typical"
    return changed_ns + ((entry.delta_ns or 0) if is_left_out else 0)


def _covers(fix: RecordedFix, causes: Collection[str]) -> bool:
    return bool(_list_covered(fix, causes))


def _list_covered(fix: RecordedFix, causes: Collection[str]) -> set[str]:
    """Return the causes of an axis of which the fix addresses another part."""
    axes = {cause.rpartition("/")[0] for cause in fix.causes if cause.startswith("communication/")}
    return {cause for cause in causes if cause.rpartition("/")[0] in axes}


def _add(recognized: list[_Recognized], found: _Recognized) -> None:
    """Add a fix, or further evidence for it."""
    for one in recognized:
        if one.fix.id == found.fix.id:
            one.texts += found.texts
            one.alternatives = [name for name in one.alternatives if name in found.alternatives]
            one.causes |= found.causes
            one.precisions = one.precisions or found.precisions
            return
    recognized.append(found)


@cache
def _list_evidence() -> tuple[tuple[str, frozenset[str]], ...]:
    tables = read_toml("compare/applied_fixes.toml")["evidence"]
    return tuple((table["explanation"], frozenset(table["fixes"])) for table in tables)


def _measure_applied(one: _Recognized, found: ChangeEvidence, *, is_joint: bool) -> AppliedFix:
    """Put bound, replayed and measured gain side by side, of the step that the bound is about."""
    fix, step = one.fix, found.step
    ends_ns = (step.base_mean_ns, step.base_typical_ns)
    is_mean = fix.whole_ns is not None and _is_nearer(fix.whole_ns, *ends_ns)
    if step.compared == "mean" and (fix.whole_ns is None or not _is_nearer(fix.whole_ns, *reversed(ends_ns))):
        is_mean = True
    lengths = ((step.base_typical_ns, step.head_typical_ns), (step.base_mean_ns, step.head_mean_ns))
    ratios = ((step.ratio_low, step.ratio_high), (step.mean_ratio_low, step.mean_ratio_high))
    (base_ns, head_ns), (low, high) = lengths[is_mean], ratios[is_mean]
    measured_ns = base_ns - head_ns
    next_wall, next_ns = _find_next_wall(found)
    return AppliedFix(
        id=fix.id,
        title=fix.title,
        wall=fix.wall,
        evidence=tuple(one.texts),
        alternatives=tuple(one.alternatives),
        window="mean" if is_mean else "typical",
        base_ns=base_ns,
        head_ns=head_ns,
        bound_ns=fix.bound_ns,
        replayed_ns=fix.replayed_ns,
        measured_ns=measured_ns,
        low_ns=None if high is None else round(base_ns * (1 - high)),
        high_ns=None if low is None else round(base_ns * (1 - low)),
        causes_ns=-sum(delta.delta_ns for delta in found.causes if delta.cause in one.causes),
        share=measured_ns / fix.bound_ns if fix.bound_ns and not is_joint else None,
        is_joint=is_joint,
        assumption=fix.assumption,
        expected_next_wall=fix.next_wall,
        next_wall=next_wall,
        next_wall_ns=next_ns,
        expected_ns=fix.expected_ns,
        causes=tuple(sorted(one.causes)),
        precisions=one.precisions,
    )


def _is_nearer(whole_ns: int, near_ns: int, far_ns: int) -> bool:
    """Return whether a step is surely nearer to one length than to another."""
    return abs(whole_ns - near_ns) + SAME_WHOLE_SHARE * whole_ns < abs(whole_ns - far_ns)


def _find_next_wall(found: ChangeEvidence) -> tuple[Wall, int]:
    """Return the largest loss of head if it may be the next wall, else compute, with its time."""
    by_wall = {one.wall: one.head_ns for one in found.walls}
    largest = max(_LOSSES, key=lambda wall: (by_wall.get(wall, 0), wall))
    is_wall = by_wall.get(largest, 0) >= NEXT_WALL_OF_FIX_SHARE * found.step.head_ns
    chosen = largest if is_wall and by_wall.get(largest) else Wall.COMPUTE
    return chosen, by_wall.get(chosen, 0)

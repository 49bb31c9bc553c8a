"""Recommendations as a record keeps them: bound, replay and assumption of each."""

from collections.abc import Mapping, Sequence
from typing import Any

from wallscope.model.advice import Fix
from wallscope.model.profile import RecordedFix

_MOST_FIXES = 40
_WITH_VALUES = frozenset({"megatron-bridge", "megatron-lm", "environment"})


def record_fixes(fixes: Sequence[Fix]) -> tuple[RecordedFix, ...]:
    """Return recommendations as they are recorded, in their order."""
    return tuple(
        RecordedFix(
            id=one.id,
            title=one.title,
            wall=one.wall,
            causes=one.causes,
            settings=tuple(
                (setting.key, setting.value) for setting in one.settings if setting.system in _WITH_VALUES
            ),
            whole_ns=(whole_ns := _find_whole_ns(one.recoverable_ns, one.speedup_ceiling)),
            bound_ns=_find_bound_ns(one, whole_ns),
            expected_ns=None if one.most_speedup is None else one.recoverable_ns,
            replayed_ns=None if one.replay is None else max(one.replay.won_ns, 0),
            next_wall=one.next_wall,
            assumption=one.assumption,
            is_blocked=one.blocked,
        )
        for one in fixes[:_MOST_FIXES]
    )


def _find_bound_ns(fix: Fix, whole_ns: int | None) -> int | None:
    """Return by how much a fix makes the step shorter at most, which assumed rates do not bound."""
    if fix.most_speedup is None or whole_ns is None:
        return fix.recoverable_ns
    return round(whole_ns * (1 - 1 / fix.most_speedup))


def read_fixes(answer: Mapping[str, Any]) -> tuple[RecordedFix, ...]:
    """Return the recommendations of an answer in JSON, none if they are those of another version."""
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415  # heavy, and only answers need it

    try:
        return record_fixes(TypeAdapter(tuple[Fix, ...]).validate_python(answer.get("fixes") or ()))
    except ValidationError:
        return ()


def _find_whole_ns(bound_ns: int | None, speedup: float | None) -> int | None:
    """Return the time that a bound makes shorter, from its speedup.

    >>> _find_whole_ns(20, 1.25), _find_whole_ns(None, None), _find_whole_ns(0, 1.0)
    (100, None, None)
    """
    if not bound_ns or speedup is None or speedup <= 1:
        return None
    return round(bound_ns * speedup / (speedup - 1))

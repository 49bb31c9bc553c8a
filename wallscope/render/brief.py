"""Brief answers as text of few words, and as JSON without spaces."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from functools import singledispatch
from itertools import starmap
from typing import Any, Final

from wallscope import units
from wallscope.model.brief import (
    AnalysisBrief,
    BreakdownBrief,
    Brief,
    CheckBrief,
    ComparisonBrief,
    NextCall,
    Recommendation,
    Scalar,
    TableBrief,
    TextBrief,
    WhatIfBrief,
)
from wallscope.render.texts import spell_out
from wallscope.units import spell_surrogates

_NAMES: Final = {"played_operations": "replayed_operations", "error_median": "replay_error"}
DIGITS_COUNT: Final = 5
"""Digits of shares and ratios in the JSON of brief answers; times are whole."""


def write_brief_json(brief: Brief) -> str:
    """Write a brief answer as one line of JSON, ASCII alone; what is unknown or empty is left out."""
    command = NextCall(brief.next.command)
    return (
        json.dumps(
            pack_brief(dataclasses.replace(brief, next=command)), separators=(",", ":"), allow_nan=False
        )
        + "\n"
    )


def pack_brief(brief: Brief) -> dict[str, Any]:
    """Return a brief answer as plain values of JSON; what is unknown or empty is left out."""
    packed: dict[str, Any] = _pack(brief)
    return packed


def _pack(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: _pack(entry) for name, entry in fields if entry not in (None, (), {})}
    if isinstance(value, Mapping):
        return {key: _pack(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_pack(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS_COUNT}g}")
    return spell_surrogates(value) if isinstance(value, str) else value


def write_brief(brief: Brief) -> str:
    """Write a brief answer as text: a line for each thing, no drawing, no alignment."""
    return "".join(f"{spell_out(line)}\n" for line in _list_lines(brief))


def _list_lines(brief: Brief) -> Iterator[str]:
    yield brief.subject
    yield f"verdict: {brief.verdict}"
    if brief.numbers:
        yield f"numbers: {'; '.join(starmap(write_named_number, brief.numbers.items()))}"
    yield from _list_rows(brief)
    if brief.omitted:
        yield f"{units.number(brief.omitted)} more: raise --max-rows"
    if brief.confidence is not None:
        yield f"confidence: {brief.confidence}"
    for entry in brief.unknown:
        cure = "" if entry.cure is None else f" → {entry.cure}"
        yield f"unknown: {entry.what}, because: {entry.because}{cure}"
    yield f"next: {brief.next.command}"


def write_named_number(evidence: str, value: float) -> str:
    """Write a number in the unit that its place in the full answer says.

    >>> write_named_number("/ranks/0/typical/step_ns", 51_084_442)
    'typical step 51.1 ms'
    >>> write_named_number("/diagnosis/walls/host/share", 0.1471)
    'host 14.7 %'
    >>> write_named_number("/ranks/0/typical/walls/host", 7_509_201)
    'host 7.5 ms'
    >>> write_named_number("/step/ratio", 1.13632)
    'ratio 1.136'
    """
    *above, name = evidence.split("/")
    name = _NAMES.get(name, name) if "answers" not in above else f"replayed_{name}"
    name = f"typical_{name}" if above[-1] == "typical" else name
    if name in {"share", "mean_share"}:
        return f"{above[-1]} {units.percent(value)}"
    if name.endswith("_ns") or above[-1] == "walls":
        return f"{name.removesuffix('_ns').replace('_', ' ')} {units.duration(int(value))}"
    words = name.replace("_", " ")
    if "error" in name:
        return f"{words} {units.percent(value)}"
    return f"{words} {value:.4g}" if isinstance(value, float) else f"{words} {units.number(value)}"


@singledispatch
def _list_rows(brief: Brief) -> Iterator[str]:
    raise TypeError(brief)


@_list_rows.register
def _(brief: AnalysisBrief) -> Iterator[str]:
    if brief.recommendations:
        yield "recommendations (upper bound on speedup, not additive):"
    for place, entry in enumerate(brief.recommendations, start=1):
        yield f"{place}. {_write_recommendation(entry)}"


@_list_rows.register
def _(brief: BreakdownBrief) -> Iterator[str]:
    for cause in brief.causes:
        yield f"{cause.cause} {units.duration(cause.typical_ns)} ({units.percent(cause.share)})"


@_list_rows.register
def _(brief: WhatIfBrief) -> Iterator[str]:
    for answer in brief.answers:
        time = f"{units.duration(answer.step_ns)}, {answer.speedup:.2f}x"
        yield f"{answer.option}: {time}, then {answer.next_wall}-bound"


@_list_rows.register
def _(brief: ComparisonBrief) -> Iterator[str]:
    for change in brief.changes:
        sides = units.change(change.base_ns, change.head_ns)
        yield f"{change.cause} {units.signed_duration(change.delta_ns)} ({sides})"


@_list_rows.register
def _(brief: CheckBrief) -> Iterator[str]:
    for check in brief.checks:
        cure = "" if check.unblock is None else f" → {check.unblock}"
        yield f"{check.level}: {check.id} ({check.feature}): {check.text}{cure}"


@_list_rows.register
def _(brief: TextBrief) -> Iterator[str]:
    for section in brief.sections:
        yield f"{section.heading}:"
        yield from (f"  {line}" for line in section.lines)


@_list_rows.register
def _(brief: TableBrief) -> Iterator[str]:
    for row in brief.rows:
        yield "; ".join(starmap(_write_cell, row.items()))


def _write_cell(name: str, value: Scalar) -> str:
    if name == "start_ns" and isinstance(value, int):
        return f"start {units.seconds(value)} s"  # as Nsight shows it, and `wallscope at` takes it
    if name == "recorded_utc_ns" and isinstance(value, int):
        return f"recorded {units.utc(value)}"
    if name.endswith("_ns") and isinstance(value, int | float):
        return write_named_number(f"/{name}", round(value))
    return f"{name} {_write_plain(value)}"


def _write_plain(value: Scalar) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_recommendation(entry: Recommendation) -> str:
    worth = "no bound known" if entry.speedup_ceiling is None else f"up to {entry.speedup_ceiling:.2f}x"
    worth += f" ({entry.assumes})" if entry.assumes else ""
    more = f"  +{units.number(entry.more_settings)}" if entry.more_settings else ""
    settings = f"; set {' · '.join(entry.settings)}{more}" if entry.settings else ""
    blocked = "".join(f"; blocked: {line}" for line in entry.blocked_by)
    held = f"; preconditions {entry.preconditions}" if entry.preconditions else ""
    return f"{entry.id}: {entry.title}; {worth}{held}{settings}{blocked}"

"""Names of a capture inside sentences, each between marks: a model sees where the words of others are.

A name that is a value of its own key needs no marks. A single word of small letters gets none: such names
are also words of our sentences, and one word instructs nothing.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import takewhile
from typing import Any, Final, TypeVar

import polars as pl

from wallscope.model.brief import (
    NAME_BEGINS,
    NAME_ENDS,
    Brief,
    BriefCheck,
    BriefText,
    CutText,
    Recommendation,
    Unknown,
)
from wallscope.render.texts import drop_namespaces, shorten_kernel_name, shorten_name, spell_out

_NO_MARKS = str.maketrans({NAME_BEGINS: "<", NAME_ENDS: ">"})
_PLAIN_WORD = re.compile(r"[a-z]{1,30}")
_VERSION = re.compile(r"_v\d+")
_SHORTEST, _LEAST_CUT = 4, 32
"""Letters of a name that is marked, and of the least that is shown of a name that is cut on its own."""
_NAMING: Final = {"name", "path", "cause", "causes", "next_cause", "gpu", "call", "ended_by"}
"""Fields of answers, and columns of tables, whose texts come from a capture or hold such a text."""
_OURS: Final = {"fixes", "dismissed", "settings", "members", "counters"}
"""Fields below which all names are ours."""
_SENTENCES: Final[Mapping[type, tuple[str, ...]]] = {
    Brief: ("subject", "verdict", "confidence"),
    Unknown: ("because", "cure"),
    Recommendation: ("title", "settings", "blocked_by", "check_first", "assumes"),
    BriefCheck: ("text", "unblock"),
    BriefText: ("lines",),
}
"""Where a brief answer has sentences; all other texts are identifiers, or names alone."""
_BriefT = TypeVar("_BriefT", bound=Brief)


def mark_names(brief: _BriefT, *answers: object) -> _BriefT:
    """Return the brief answer with the names of its full answers between marks in each sentence.

    Args:
        brief: the brief answer.
        answers: what it was selected from: dataclasses of answers, tables, or names.
    """
    names = {form for answer in answers for name in _list_names(answer, "") for form in _list_forms(name)}
    wanted = sorted((name for name in names if _is_marked(name)), key=len, reverse=True)
    marked: _BriefT = _mark_name(brief, _Marker(wanted))
    return marked


class _Marker:
    """Marks names in a text, the longest first.

    A name that was cut on its own is marked as far as the text goes on like it. What is left of a name
    where a sentence was cut is known from the whole sentence.
    """

    def __init__(self, names: list[str]) -> None:
        self._begun: dict[str, list[str]] = {}
        for name in names:
            if len(name) > _LEAST_CUT:
                self._begun.setdefault(name[:_LEAST_CUT], []).append(name)
        whole = "|".join([*(rf"{re.escape(name)}(?!\w)" for name in names), *map(re.escape, self._begun)])
        self._whole = re.compile(rf"(?<!\w)(?:{whole})") if names else None

    def __call__(self, text: str) -> str:
        if not isinstance(text, CutText):
            parts = self._split(text)
            return "".join(f"{NAME_BEGINS}{part}{NAME_ENDS}" if named else part for part, named in parts)
        left, marked = text.kept, ""
        for part, is_name in self._split(text.whole):
            kept = part[:left]
            left -= len(kept)
            marked += f"{NAME_BEGINS}{kept}{NAME_ENDS}" if is_name and kept else kept
        return marked + text[text.kept :]

    def _split(self, text: str) -> Iterator[tuple[str, bool]]:
        """Split a text into its names and what stands between them, each with whether it is a name."""
        safe, end = text.translate(_NO_MARKS), 0
        while self._whole is not None and (found := self._whole.search(safe, end)) is not None:
            begin, last = found.span()
            for name in self._begun.get(found[0], ()):
                alike = takewhile(lambda pair: pair[0] == pair[1], zip(name, safe[begin:], strict=False))
                last = max(last, begin + sum(1 for _ in alike))
            yield safe[end:begin], False
            yield safe[begin:last], True
            end = last
        yield safe[end:], False


def _list_names(answer: object, field: str) -> Iterator[str]:
    """List the texts at or below a field that a capture may have put there."""
    if isinstance(answer, str):
        yield from (answer,) if field in _NAMING or not field else ()
    else:
        for name, part in _split_at_names(answer, field):
            yield from _list_names(part, name)


def _split_at_names(answer: object, field: str) -> Iterator[tuple[str, object]]:
    """List what an answer consists of, each with the field or column that it is in."""
    if isinstance(answer, pl.DataFrame):
        texts = [name for name, kind in answer.schema.items() if kind == pl.String]
        yield from ((name, text) for name in texts for text in answer[name].drop_nulls().unique())
    elif isinstance(answer, Mapping):
        yield from ((field, part) for part in answer.values())
    elif isinstance(answer, list | tuple | set | frozenset):
        yield from ((field, part) for part in answer)
    elif is_dataclass(answer):
        named = [one.name for one in fields(answer) if one.name not in _OURS]
        yield from ((name, getattr(answer, name)) for name in named)


def _list_forms(name: str) -> Iterator[str]:
    """List the ways in which sentences write a name: whole, its parts, shortened."""
    shown = spell_out(" ".join(name.split())).translate(_NO_MARKS)
    *_, about = shown.split("/", 2) if shown.count("/") > 1 else ("",)  # a cause says what it is about last
    for text in (shown, *shown.split(" / "), about):
        whole = text.strip()
        yield from (whole, _VERSION.sub("", whole))
        if whole:
            yield from (shorten_name(whole), shorten_kernel_name(whole), drop_namespaces(whole))


def _is_marked(name: str) -> bool:
    return len(name) >= _SHORTEST and _PLAIN_WORD.fullmatch(name) is None


def _mark_name(value: Any, mark: _Marker) -> Any:
    """Return a part of a brief answer with marks in its sentences."""
    if isinstance(value, tuple):
        return tuple(_mark_name(one, mark) for one in value)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    sentences = {name for kind, names in _SENTENCES.items() if isinstance(value, kind) for name in names}
    changed = {}
    for one in fields(value):
        held = getattr(value, one.name)
        changed[one.name] = _mark_sentences(held, mark) if one.name in sentences else _mark_name(held, mark)
    return replace(value, **changed)


def _mark_sentences(held: Any, mark: _Marker) -> Any:
    if isinstance(held, tuple):
        return tuple(_mark_sentences(one, mark) for one in held)
    return mark(held) if isinstance(held, str) else held

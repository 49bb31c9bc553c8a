"""Names to classes: which kernels compute, which communicate, and what they do.

The patterns are data (`kernels.toml` beside this file). A user's file of the same form is asked
first. Patterns are Rust regular expressions, run by polars in linear time.
"""

import tomllib
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.arrays.columns import filled
from wallscope.errors import KernelRulesError
from wallscope.model.frames import KERNEL_KINDS
from wallscope.model.kinds import (
    Backend,
    Collective,
    ComputeCategory,
    CopyDirection,
    OperationClass,
    OperationKind,
)
from wallscope.text_memo import TextMemo

_KEYS = {"pattern", "category", "operation", "backend", "why"}
_LONGEST_PATTERN = 2_000
_Choice = TypeVar("_Choice", ComputeCategory, Collective, Backend)


@dataclass(frozen=True, slots=True)
class KernelRule:
    """Kernels whose name matches `pattern` compute (`backend` is `None`) or communicate."""

    pattern: str
    category: ComputeCategory | Collective
    backend: Backend | None


@cache
def shipped_rules() -> tuple[KernelRule, ...]:
    """The patterns that travel with the package; the first that matches decides."""
    text = (files("wallscope.timeline") / "kernels.toml").read_text(encoding="utf-8")
    return _rules(text, "kernels.toml")


def rules_with(path: Path | None) -> tuple[KernelRule, ...]:
    """The shipped patterns behind those of the user's file, if there is one.

    Raises:
        KernelRulesError: the file cannot be read, or a rule in it is wrong.
    """
    if path is None:
        return shipped_rules()
    try:
        if path.exists() and not path.is_file():
            raise KernelRulesError(f"{path} — is no regular file — name a TOML file of rules")
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise KernelRulesError(f"{path} — cannot be read: {reason} — name a TOML file of rules") from error
    own = _rules(text, str(path))
    for row, rule in enumerate(own, start=1):
        _check_pattern(rule.pattern, f"{path} — rule {row}")
    return own + shipped_rules()


def _rules(text: str, origin: str) -> tuple[KernelRule, ...]:
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise KernelRulesError(f"{origin} — is no TOML: {error} — mend that line") from error
    tables = document.get("kernel")
    if set(document) != {"kernel"} or not isinstance(tables, list):
        raise KernelRulesError(f"{origin} — holds no rules — write one [[kernel]] table for each pattern")
    return tuple(_rule(table, f"{origin} — rule {row}") for row, table in enumerate(tables, start=1))


def _rule(table: object, where: str) -> KernelRule:
    if not isinstance(table, dict) or not all(isinstance(value, str) for value in table.values()):
        raise KernelRulesError(f"{where} is no table of strings — see `wallscope analyze --help`")
    if unknown := sorted(set(table) - _KEYS):
        raise KernelRulesError(f"{where} has the unknown key {unknown[0]!r} — use {', '.join(sorted(_KEYS))}")
    pattern = table.get("pattern", "")
    if not pattern or len(pattern) > _LONGEST_PATTERN:
        raise KernelRulesError(f"{where} has no pattern of 1 to {_LONGEST_PATTERN:,} characters — add one")
    if ("category" in table) == ("operation" in table):
        raise KernelRulesError(
            f"{where} has not one of category (it computes) and operation (it communicates) — give it one"
        )
    if "category" in table:
        if "backend" in table:
            raise KernelRulesError(f"{where} computes and has a backend — leave one of them out")
        return KernelRule(pattern, _choice(ComputeCategory, table["category"], where), None)
    backend = _choice(Backend, table.get("backend", ""), where)
    return KernelRule(pattern, _choice(Collective, table["operation"], where), backend)


def _check_pattern(pattern: str, where: str) -> None:
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError as error:
        raise KernelRulesError(f"{where} has no valid pattern: {pattern!r} — mend it") from error


def _choice(choices: type[_Choice], value: str, where: str) -> _Choice:
    try:
        return choices(value)
    except ValueError:
        raise KernelRulesError(f"{where}: {value!r} is none of {', '.join(choices)} — pick one") from None


def kernel_kinds(names: pl.DataFrame, rules: tuple[KernelRule, ...]) -> pl.DataFrame:
    """Class and category of each name (`NAMES` to `KERNEL_KINDS`); the first rule that matches decides.

    A name that no rule knows is compute of category `other`, with `matched` false.
    """
    told: pl.DataFrame = _kinds(rules)[_deciding(rules).of(names["text"].to_list())]
    told.insert_column(0, names["name"])
    return told if names["name"].is_sorted() else told.sort("name")


@lru_cache(maxsize=4)
def _deciding(rules: tuple[KernelRule, ...]) -> TextMemo:
    """The place of the rule that decides on each text, behind the last for one that no rule knows."""

    def asked(texts: pl.Series) -> npt.NDArray[np.int64]:
        text = pl.col("text")
        hits = texts.to_frame("text").select(
            *(text.str.contains(rule.pattern).alias(str(place)) for place, rule in enumerate(rules)),
            **{str(len(rules)): pl.repeat(value=True, n=pl.len())},
        )
        deciding: npt.NDArray[np.int64] = hits.to_numpy().argmax(axis=1)
        return deciding

    return TextMemo(asked)


@lru_cache(maxsize=4)
def _kinds(rules: tuple[KernelRule, ...]) -> pl.DataFrame:
    """What each rule tells of a name, and behind them what is told of one that no rule knows."""
    communicating, computing = OperationClass.COMMUNICATION, OperationClass.COMPUTE
    return pl.DataFrame(
        {
            "class": [*(communicating if rule.backend else computing for rule in rules), computing],
            "category": [*(rule.category for rule in rules), ComputeCategory.OTHER],
            "backend": [*(rule.backend for rule in rules), None],
            "matched": [*(True for _ in rules), False],
        },
        schema={name: dtype for name, dtype in KERNEL_KINDS.items() if name != "name"},
    )


def classified(operations: pl.DataFrame, copies: pl.DataFrame, kinds: pl.DataFrame) -> pl.DataFrame:
    """Operations with class and category (`OPERATIONS`, `COPIES`, `KERNEL_KINDS` to `CLASSIFIED`).

    Copies between devices communicate; other copies and fills are copies; a row of graph-mode
    tracing is an opaque graph.
    """
    told = kinds if kinds["name"].is_sorted() else kinds.sort("name")
    row = filled(operations["name"], len(told)).astype(np.uint32)
    kind = filled(operations["kind"])
    row[kind == _GRAPH] = len(told) + 1
    row[np.isin(kind, _COPYING)] = len(told) + len(_OTHERS) - 1
    moved, direction = copies["op"].to_numpy(), filled(copies["direction"], len(CopyDirection))
    row[moved] = direction.astype(np.uint32) + len(told) + 2
    return operations.hstack(pl.concat([told.drop("name"), _OTHERS])[row].get_columns())


def _others() -> pl.DataFrame:
    """What is told of a kernel without a name, a graph, copies of each direction and of an unknown one."""
    rows: list[tuple[str | None, ...]] = [(None, None, None), (OperationClass.OPAQUE_GRAPH, "graph", None)]
    for direction in CopyDirection:
        is_peer = direction is CopyDirection.PEER
        peer = (OperationClass.COMMUNICATION, Collective.SEND_RECV, Backend.PEER_COPY)
        rows.append(peer if is_peer else (OperationClass.COPY, direction, None))
    rows.append((OperationClass.COPY, None, None))
    schema = {name: dtype for name, dtype in KERNEL_KINDS.items() if name not in {"name", "matched"}}
    return pl.DataFrame(rows, schema=schema, orient="row").with_columns(matched=pl.lit(value=True))


_OTHERS = _others()
_GRAPH, *_COPYING = map(
    list(OperationKind).index, (OperationKind.GRAPH, OperationKind.COPY, OperationKind.FILL)
)

"""What questions can be about in a stretch: names, what each stands for, and the nearest to a wrong one."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

import polars as pl

from wallscope.errors import OptionError
from wallscope.model.kinds import CallRole, OperationClass
from wallscope.timeline.stretch import Stretch

LAUNCH, THINK, COMMUNICATION, COMPUTE, COPIES = "launch", "think", "communication", "compute", "copies"
DRAINED, FRAMEWORK = "host/queue-drained", "host/framework"
LAUNCH_LATENCY, SYNCHRONISATION = "host/launch-latency", "host/synchronisation"
HAND_OVERS = ("compute/kernel-gap", "compute/hand-over")
_LAUNCHING = {str(CallRole.LAUNCH), str(CallRole.GRAPH)}
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Target:
    """Operations and pieces of threads that a name stands for, and lags."""

    ops: frozenset[int] = frozenset()
    rows: frozenset[int] = frozenset()
    is_latency: bool = False
    is_hand_over: bool = False
    is_return: bool = False


def targets(stretch: Stretch) -> dict[str, Target]:
    """What can be scaled in a stretch, by name."""
    own = stretch.operations
    is_communication = pl.col("class") == OperationClass.COMMUNICATION
    is_compute = pl.col("class") == OperationClass.COMPUTE
    communication, compute = own.filter(is_communication), own.filter(is_compute)
    found = {
        COMMUNICATION: Target(_ops(communication)),
        COMPUTE: Target(_ops(compute)),
        COPIES: Target(_ops(own.filter(pl.col("class") == OperationClass.COPY))),
    }
    for (cause,), part in communication.partition_by("cause", as_dict=True).items():
        found[f"communication:{str(cause).split('/')[1]}"] = Target(_ops(part))
    for (kind,), part in communication.partition_by("category", as_dict=True).items():
        found[f"collective:{kind}"] = Target(_ops(part))
    for (category,), part in compute.partition_by("category", as_dict=True).items():
        found[f"category:{category}"] = Target(_ops(part))
    pieces = pl.DataFrame(
        {"cause": stretch.causes.cast(pl.String), "role": stretch.roles()},
        schema={"cause": pl.String, "role": pl.String},
    ).with_row_index("row")
    is_thinking = (pl.col("cause") == FRAMEWORK) | pl.col("cause").str.starts_with(DRAINED)
    found[LAUNCH] = Target(rows=_rows(pieces, pl.col("role").is_in(sorted(_LAUNCHING))), is_latency=True)
    found[THINK] = Target(rows=_rows(pieces, is_thinking))
    causes: dict[str, Target] = {}
    for (cause,), part in own.partition_by("cause", as_dict=True).items():
        causes[str(cause)] = Target(_ops(part))
    waiting = _waiting(stretch)
    for cause, rows in pieces.group_by("cause").agg("row").sort("cause").iter_rows():
        held = causes.get(cause, Target())
        causes[cause] = Target(held.ops, frozenset(rows) - waiting, is_return=cause == SYNCHRONISATION)
    causes[LAUNCH_LATENCY] = Target(is_latency=True)
    causes |= {cause: Target(is_hand_over=True) for cause in HAND_OVERS}
    return {
        name: target
        for name, target in (found | causes).items()
        if target.ops or target.rows or target.is_latency or target.is_hand_over or target.is_return
    }


def find(name: str, known: Iterable[str], option: str) -> str:
    """A name that is known, in letters of any case, or the only one that ends in it.

    Raises:
        OptionError: it is none; says the nearest known ones.
    """
    names = list(dict.fromkeys(known))
    of_lower = {one.lower(): one for one in names}
    if name.lower() in of_lower:
        return of_lower[name.lower()]
    last = [one for one in names if re.split(r"[./: ]", one)[-1].lower() == name.lower()]
    if len(last) == 1:
        return last[0]
    near = get_close_matches(name.lower(), of_lower, n=3, cutoff=0.5)
    ends = [one for one in of_lower if name.lower() in one][:3]
    told = list(dict.fromkeys([*near, *ends]))[:_SHOWN]
    there = [of_lower[one] for one in told] or names[:_SHOWN]
    word = "the nearest are" if told else "it has"
    raise OptionError(
        f"{option} {name} — is nothing in these steps — {word}: {', '.join(there) or 'nothing'}"
    )


def _ops(frame: pl.DataFrame) -> frozenset[int]:
    return frozenset(frame["op"].to_list())


def _rows(pieces: pl.DataFrame, which: pl.Expr) -> frozenset[int]:
    return frozenset(pieces.filter(which)["row"].to_list())


def _waiting(stretch: Stretch) -> frozenset[int]:
    """The pieces in which a call blocks: they end when what they wait for does."""
    awaited = stretch.replay.order.awaited
    return frozenset(row for row, one in awaited.items() if not one.is_releasing)

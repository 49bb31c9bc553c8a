"""What questions can be about in a stretch: names, what each stands for, and the nearest to a wrong one.

A range of the program captured into CUDA graphs: one launch for all that a thread launches in it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from operator import itemgetter

import numpy as np

from wallscope.columns import Rows, coded, place
from wallscope.errors import OptionError
from wallscope.grouping import parts
from wallscope.model.kinds import CallRole, OperationClass
from wallscope.replay.graph import Role
from wallscope.replay.window import ReplayWindow

LAUNCH, THINK, COMMUNICATION, COMPUTE, COPIES = "launch", "think", "communication", "compute", "copies"
DRAINED, FRAMEWORK = "host/queue-drained", "host/framework"
LAUNCH_LATENCY, SYNCHRONISATION = "host/launch-latency", "host/synchronisation"
KERNEL_GAP = "compute/kernel-gap"
HAND_OVERS = (KERNEL_GAP, "compute/hand-over")
_LAUNCHING = (CallRole.LAUNCH, CallRole.GRAPH)
_SHOWN = 6


def _no_rows() -> Rows:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Operations, by number, and pieces of threads that a name stands for, and lags."""

    ops: Rows = field(default_factory=_no_rows)
    rows: Rows = field(default_factory=_no_rows)
    is_latency: bool = False
    is_hand_over: bool = False
    is_return: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it stands for anything."""
        is_lag = self.is_latency or self.is_hand_over or self.is_return
        return bool(self.ops.size or self.rows.size or is_lag)


@dataclass(frozen=True, slots=True)
class Rules:
    """What goes with a cause, where the kinds of answers differ so far.

    Attributes:
        framework_refills: `host/framework` is the host time after a call that drained the queue too.
        blocking_calls_stay: no segment of a blocking call goes with its cause; else only the one at whose
            end it waits does not.
        recompute_has_host_time: the host time between the calls of recomputed work goes with it.
        returns_count_alone: `host/synchronisation` is there for the return latencies of blocking calls, even
            where no segment has that cause.
    """

    framework_refills: bool
    blocking_calls_stay: bool
    recompute_has_host_time: bool
    returns_count_alone: bool


def targets(window: ReplayWindow, rules: Rules) -> dict[str, Target]:
    """Return what can be scaled in a window, by name."""
    own = window.operations
    op = own["op"].to_numpy().astype(np.int64)
    of_class = [
        np.flatnonzero((own["class"] == kind).to_numpy())
        for kind in (OperationClass.COMMUNICATION, OperationClass.COMPUTE, OperationClass.COPY)
    ]
    communication, compute, _ = of_class
    found = {
        name: Target(op[held]) for name, held in zip((COMMUNICATION, COMPUTE, COPIES), of_class, strict=True)
    }
    cause, causes_of = coded(own["cause"])
    category, categories = coded(own["category"])
    categories.append(str(None))
    for code, held in parts(cause[communication]):
        found[f"communication:{causes_of[code].split('/')[1]}"] = Target(op[communication[held]])
    for code, held in parts(category[communication]):
        found[f"collective:{categories[code]}"] = Target(op[communication[held]])
    for code, held in parts(category[compute]):
        found[f"category:{categories[code]}"] = Target(op[compute[held]])
    of_piece, causes_of_pieces = coded(window.causes)
    thinks = [one == FRAMEWORK or one.startswith(DRAINED) for one in causes_of_pieces]
    launches = np.isin(window.role, [place(role) for role in _LAUNCHING])
    found[LAUNCH] = Target(rows=np.flatnonzero(launches), is_latency=True)
    found[THINK] = Target(rows=np.flatnonzero(np.array(thinks, np.bool_)[of_piece]))
    causes = {causes_of[code]: Target(op[held]) for code, held in parts(cause)}
    goes = np.ones(of_piece.size, np.bool_)
    stays = (
        window.pieces.inside(window.waits.blocking) if rules.blocking_calls_stay else waiting_pieces(window)
    )
    goes[stays] = False
    for code, rows in sorted(parts(of_piece), key=itemgetter(0)):
        name = causes_of_pieces[code]
        ops = causes.get(name, Target()).ops
        causes[name] = Target(ops, rows[goes[rows]], is_return=name == SYNCHRONISATION)
    if rules.framework_refills:
        rows = found[THINK].rows
        causes[FRAMEWORK] = Target(causes.get(FRAMEWORK, Target()).ops, rows[goes[rows]])
    if rules.returns_count_alone:
        causes.setdefault(SYNCHRONISATION, Target(is_return=True))
    causes[LAUNCH_LATENCY] = Target(is_latency=True)
    causes |= {cause: Target(is_hand_over=True) for cause in HAND_OVERS}
    return {name: target for name, target in (found | causes).items() if target.is_there}


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


def waiting_pieces(window: ReplayWindow) -> Rows:
    """The pieces in which a call blocks: they end when what they wait for does."""
    return np.flatnonzero(window.graph.role == Role.BLOCKING)

"""The targets of questions, and the changes of a replay window for each question."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from operator import itemgetter

import numpy as np
import polars as pl

from wallscope.attribution.host_waits import DRIVER_LOCK, list_locked_calls
from wallscope.columns import (
    Flags,
    Rows,
    are_among,
    as_integers,
    encode_column,
    encode_member,
    iterate_by_first,
    mark_numbers,
)
from wallscope.errors import OptionError
from wallscope.model.cause_catalogue import (
    COMPUTE_HAND_OVER,
    COMPUTE_KERNEL_GAP,
    HOST_FRAMEWORK,
    HOST_LAUNCH_LATENCY,
    HOST_SMALL_COPY,
    HOST_SYNCHRONISATION,
    MEMORY_ALLOCATOR,
    MEMORY_DEVICE_COPY,
    MEMORY_FILL,
    MEMORY_MIGRATION,
    MEMORY_OFFLOAD,
    MEMORY_READBACK,
    MEMORY_RECOMPUTE,
    MEMORY_STAGING,
    REFILL,
    TRANSFER,
    UNSPLIT,
    WAIT,
    is_cause,
    is_part,
)
from wallscope.model.enums import CallRole, OperationClass
from wallscope.model.whatif import LAUNCH, THINK, Question
from wallscope.records import dataclass
from wallscope.replay.edits import (
    GraphEdit,
    capture_graphs,
    find_next_in_stream,
    find_thinking_before,
    leave_out_share,
)
from wallscope.replay.graph import Role
from wallscope.replay.windows import ReplayWindow, SimulatedSteps
from wallscope.thresholds.causes import SIDE_BY_SIDE_RATIO
from wallscope.thresholds.verdict import SHOWN_OVERLAP_TAX_SHARE
from wallscope.trace.intervals import Spans, covered_ns, order_spans, union
from wallscope.trace.names import normalize_names
from wallscope.units import duration, number

COMMUNICATION, COMPUTE, COPIES = "communication", "compute", "copies"
DRAINED, FRAMEWORK = "host/queue-drained", HOST_FRAMEWORK
LAUNCH_LATENCY, SYNCHRONISATION = HOST_LAUNCH_LATENCY, HOST_SYNCHRONISATION
KERNEL_GAP, STAGING = COMPUTE_KERNEL_GAP, MEMORY_STAGING
HAND_OVERS = (KERNEL_GAP, COMPUTE_HAND_OVER)
_LAUNCHING = (CallRole.LAUNCH, CallRole.GRAPH)
_SHOWN = 6


def _no_rows() -> Rows:
    return np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """Operations (by number), host segments and latencies that a name stands for."""

    ops: Rows = field(default_factory=_no_rows)
    rows: Rows = field(default_factory=_no_rows)
    is_latency: bool = False
    is_hand_over: bool = False
    is_return: bool = False

    @property
    def is_there(self) -> bool:
        """Whether it contains anything."""
        is_lag = self.is_latency or self.is_hand_over or self.is_return
        return bool(self.ops.size or self.rows.size or is_lag)


def list_targets(window: ReplayWindow) -> dict[str, Target]:
    """Return what can be scaled in a window, by name.

    The segment of a blocking call at whose end it waits does not belong to its cause. `host/synchronisation`
    is also the return latency of blocking calls, even if no segment has that cause.
    """
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
    cause, causes_of = encode_column(own["cause"])
    category, categories = encode_column(own["category"])
    categories.append(str(None))
    for code, held in iterate_by_first(cause[communication]):
        found[f"communication:{causes_of[code].split('/')[1]}"] = Target(op[communication[held]])
    for code, held in iterate_by_first(category[communication]):
        found[f"collective:{categories[code]}"] = Target(op[communication[held]])
    for code, held in iterate_by_first(category[compute]):
        found[f"category:{categories[code]}"] = Target(op[compute[held]])
    of_segment, causes_of_segments = encode_column(window.causes)
    thinks = [one == FRAMEWORK or one.startswith(DRAINED) for one in causes_of_segments]
    launches = np.isin(window.role, [encode_member(role) for role in _LAUNCHING])
    found[LAUNCH] = Target(rows=np.flatnonzero(launches), is_latency=True)
    found[THINK] = Target(rows=np.flatnonzero(np.array(thinks, np.bool_)[of_segment]))
    causes = {causes_of[code]: Target(op[held]) for code, held in iterate_by_first(cause)}
    goes = np.ones(of_segment.size, np.bool_)
    goes[find_waiting_segments(window)] = False
    for code, rows in sorted(iterate_by_first(of_segment), key=itemgetter(0)):
        name = causes_of_segments[code]
        ops = causes.get(name, Target()).ops
        if name.startswith(DRAINED):
            found[name.replace(f"{DRAINED}/", REFILL)] = Target(rows=rows)
        causes[name] = Target(ops, rows[goes[rows]], is_return=name == SYNCHRONISATION)
    causes.setdefault(SYNCHRONISATION, Target(is_return=True))
    parts = {
        f"{name.removesuffix(UNSPLIT)}{TRANSFER}": causes[name] for name in causes if name.endswith(UNSPLIT)
    }
    causes |= parts if window.graph.member.size else {}
    causes[LAUNCH_LATENCY] = Target(is_latency=True)
    causes |= {cause: Target(is_hand_over=True) for cause in HAND_OVERS}
    locked = set(list_locked_calls(window.waits, window.call_role).tolist())
    causes[DRIVER_LOCK] = Target(rows=window.segments.inside(locked))
    blocked = window.segments.inside(window.waits.blocking)
    name_of, call_names = encode_column(window.call_name.gather(window.graph.call[blocked]))
    for code, held in iterate_by_first(name_of):
        found[f"{WAIT}{call_names[code]}"] = Target(rows=blocked[held])
    return {name: target for name, target in (found | causes).items() if target.is_there}


def find_target(name: str, known: Iterable[str], option: str) -> str:
    """Return the known name, whatever its case, or the only one with this ending.

    Raises:
        OptionError: there is none; the message lists the nearest known ones.
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
    nearest = list(dict.fromkeys([*near, *ends]))[:_SHOWN]
    there = [of_lower[one] for one in nearest] or names[:_SHOWN]
    word = "the nearest names are" if nearest else "they have"
    if option == "--without" and not ends:
        there, word = names, f"ask `--scale {name}=0`, or one of"
    raise OptionError(f"{option} {name} — is not in these steps — {word}: {', '.join(there) or 'nothing'}")


def find_waiting_segments(window: ReplayWindow) -> Rows:
    """The segments in which a call blocks: they end when the awaited operation does."""
    return np.flatnonzero(window.graph.role == Role.BLOCKING)


WITHOUT = ("allocator", "synchronisation", "recompute", "offload", "jitter")
_ALLOCATOR, _RECOMPUTE, _OFFLOAD = MEMORY_ALLOCATOR, MEMORY_RECOMPUTE, MEMORY_OFFLOAD
_OF_NAME = {"offload": _OFFLOAD}
_MOVING = (
    "communication/",
    MEMORY_STAGING,
    MEMORY_READBACK,
    MEMORY_OFFLOAD,
    MEMORY_MIGRATION,
    MEMORY_DEVICE_COPY,
    MEMORY_FILL,
    HOST_SMALL_COPY,
)


OverlapTaxes = Callable[[int], float | None]
"""The slowdown of a rank's compute, by its id, that overlaps communication; `None` if unknown."""


class Changes:
    """Applies questions to drafts; their targets are looked up once."""

    def __init__(self, window: SimulatedSteps, taxes: OverlapTaxes) -> None:
        self._window, self._taxes = window, taxes
        self.targets = list_targets(window)

    @cached_property
    def _folded(self) -> dict[str, str]:
        """The names of ranges, each without its running numbers."""
        range_texts = self._window.ranges["text"].unique(maintain_order=True).to_list()
        texts = [text for text in range_texts if text is not None]
        return dict(zip(texts, normalize_names(pl.Series(texts, dtype=pl.String)).to_list(), strict=True))

    @property
    def _range_names(self) -> list[str]:
        """The names of ranges: folded, and unchanged."""
        return [*dict.fromkeys(self._folded.values()), *self._folded]

    def resolve(self, question: Question) -> Question:
        """Return the question with its target in the known spelling.

        Raises:
            OptionError: nothing has that name here.
        """
        match question.kind:
            case "scale":
                name = self._find_scaled(question.target)
            case "without" if is_cause(question.target):
                return Question("scale", question.target, 0.0)
            case "without":
                name = find_target(question.target, WITHOUT, "--without")
            case "graph" if "*" in question.target and self.has(question):
                name = question.target
            case "graph":
                name = find_target(question.target, self._range_names, "--graph")
            case "hide" | "overlap":
                name = self._find_moving(_OF_NAME.get(question.target, question.target), f"--{question.kind}")
        return Question(question.kind, name, question.share)

    def _find_scaled(self, name: str) -> str:
        """Return the target of a question that scales it: any cause, also if no replayed step has it."""
        return name if is_cause(name) else find_target(name, self.targets, "--scale")

    def _find_moving(self, name: str, option: str) -> str:
        """Return the communication or the copies that a question moves; also if no replayed step has them."""
        if name not in self.targets and is_cause(name) and name.startswith(_MOVING):
            return name
        if is_cause(name) and not name.startswith(_MOVING):
            raise OptionError(
                f"{option} {name} — is neither communication nor copies — write --scale {name}=0"
            )
        return find_target(name, [one for one in self.targets if self._moves(one)], option)

    def list_ways(self, questions: tuple[Question, ...]) -> tuple[tuple[Question, ...], ...]:
        """Return in which ways questions can be applied; the one that wins most is their answer.

        A call that drains the queue may go, or the host time behind it. Communication and copies that go
        may take no time, or nothing may wait for them.
        """
        both = [self._list_ways_of_one(one) for one in questions]
        return tuple(dict.fromkeys(tuple(ways[place] for ways in both) for place in (0, -1)))

    def _list_ways_of_one(self, question: Question) -> tuple[Question, ...]:
        name = question.target
        if question.kind != "scale":
            return (question,)
        if name.startswith(DRAINED):
            call = name.removeprefix(f"{DRAINED}/")
            return tuple(Question("scale", f"{part}{call}", question.share) for part in (WAIT, REFILL))
        if not question.share and name in self.targets and self._moves(name):
            return question, Question("hide", name)
        return (question,)

    def has(self, question: Question) -> bool:
        """Return whether the target of a question exists under this exact name."""
        match question.kind:
            case "scale":
                return question.target in self.targets
            case "without":
                return bool(self._lost(question.target))
            case "graph":
                return any(fnmatchcase(name, question.target) for name in [*self._range_names, ""])
            case "hide" | "overlap":
                return question.target in self.targets and self._moves(question.target)

    def _lost(self, name: str) -> object:
        """Return the existing targets of `without`."""
        match name:
            case "synchronisation":
                return self._window.segments.inside(self._window.waits.blocking).size
            case "jitter":
                return self.targets.get(COMMUNICATION)
            case _:
                return self.targets.get(f"memory/{name}")

    def put(self, question: Question, draft: GraphEdit) -> tuple[str, ...]:
        """Apply a question; return what was changed and assumed."""
        match question.kind:
            case "scale":
                return self._scaled(question.target, question.share or 0.0, draft)
            case "without":
                return self._without(question.target, draft)
            case "graph":
                return capture_graphs(question.target, self._window, draft, self._folded)
            case "hide":
                return self._moved(question.target, draft, is_hidden=True)
            case "overlap":
                return self._moved(question.target, draft, is_hidden=False)

    def _moves(self, name: str) -> bool:
        """Return whether a target is only communication or copies."""
        is_own = are_among(self._window.operations["op"].to_numpy(), self.targets[name].ops)
        return bool(is_own.any()) and bool(self._is_moving[is_own].all())

    @cached_property
    def _is_moving(self) -> Flags:
        """Whether each operation of the window is communication or a copy."""
        kinds = [OperationClass.COMMUNICATION, OperationClass.COPY]
        return self._window.operations["class"].is_in(kinds).to_numpy()

    def _scaled(self, name: str, share: float, draft: GraphEdit) -> tuple[str, ...]:
        if share == 0 and name == _ALLOCATOR:
            return self._without_allocator(draft)
        if share == 0 and name == _RECOMPUTE:
            return self._without_recompute(draft)
        if name.startswith(WAIT):
            return self._unblocked(draft, name.removeprefix(WAIT), share)
        if name == DRIVER_LOCK:
            return self._without_lock(draft, share)
        if name not in self.targets:
            return (_OF_PEERS,) if is_part(name) else _NONE
        target = self.targets[name]
        notes = self._relieve(target, share, draft) if share < 1 else ()
        notes = (*notes, *self._describe_side_by_side(target))
        if name == THINK:
            notes = (*notes, *self._list_other_host_time())
        draft.scale_operations(target.ops, share)
        draft.scale_segments(target.rows, share)
        draft.scale_lags(
            latency=share if target.is_latency else 1.0,
            dependency=share if target.is_hand_over else 1.0,
            back=share if target.is_return else 1.0,
        )
        return notes

    def _list_other_host_time(self) -> Iterator[str]:
        """Say which host time outside CUDA calls has a known cause, and so is not what the program thinks."""
        outside = self._window.causes.filter(pl.Series(np.asarray(self._window.segments.call) < 0))
        known = sorted({one for one in outside.unique() if one != FRAMEWORK and not one.startswith(DRAINED)})
        if known:
            yield f"host time with a cause of its own stays ({', '.join(known)}), so scale that cause too"

    @cached_property
    def _moving_and_computing(self) -> tuple[Rows, Rows]:
        """The rows of the operations that communicate, and of those that compute."""
        of_class = as_integers(self._window.operations["class"])
        communication, compute = (
            np.flatnonzero(of_class == encode_member(one))
            for one in (OperationClass.COMMUNICATION, OperationClass.COMPUTE)
        )
        return communication, compute

    @cached_property
    def _computing(self) -> frozenset[int]:
        """The numbers of the operations that compute."""
        return frozenset(self._window.operations["op"].to_numpy()[self._moving_and_computing[1]].tolist())

    @cached_property
    def _stream_of(self) -> dict[int, int]:
        """The stream of each operation."""
        op, stream = self._window.operations["op"], self._window.operations["stream"]
        return dict(zip(op.to_list(), stream.to_list(), strict=True))

    @cached_property
    def _next_in_stream(self) -> dict[int, int]:
        return find_next_in_stream(self._window)

    def _relieve(self, target: Target, share: float, draft: GraphEdit) -> tuple[str, ...]:
        """Make compute as fast as alone where it overlapped removed communication."""
        own, notes = self._window.operations, list[str]()
        moving, computing = self._moving_and_computing
        op, rank, start_ns, end_ns = (
            own[name].to_numpy() for name in ("op", "rank_id", "start_ns", "end_ns")
        )
        goes = are_among(op[moving], target.ops)
        for one in np.unique(rank[moving[goes]]).tolist():
            tax = self._taxes(one)
            if tax is not None and tax < 1 + SHOWN_OVERLAP_TAX_SHARE:
                continue
            rows = computing[rank[computing] == one]
            work = Spans(start_ns[rows], end_ns[rows])
            is_own = rank[moving] == one
            all_ns, left_ns = (
                covered_ns(union(order_spans(start_ns[held], end_ns[held])), work)
                for held in (moving[is_own], moving[is_own & ~goes])
            )
            freed_ns = (1 - share) * (all_ns - left_ns)
            if tax is None:
                notes += [NO_TAX] if freed_ns.any() else []
                continue
            relief = (1 - 1 / tax) * freed_ns / np.maximum(work.end_ns - work.start_ns, 1)
            draft.scale_operations(op[rows].astype(np.int64), 1 - relief)
            notes.append(f"overlapping compute takes {tax:.2f} times as long as alone (measured here)")
        return tuple(notes)

    def _describe_side_by_side(self, target: Target) -> Iterator[str]:
        """Say what is assumed of kernels of other streams that run at the same time as changed ones."""
        own, computing = self._window.operations, self._moving_and_computing[1]
        op, rank, start_ns, end_ns = (
            own[name].to_numpy()[computing] for name in ("op", "rank_id", "start_ns", "end_ns")
        )
        changes, beside_ns = are_among(op, target.ops), 0
        for one in np.unique(rank[changes]).tolist():
            left, changed = ((rank == one) & goes for goes in (~changes, changes))
            others = union(order_spans(start_ns[left], end_ns[left]))
            beside_ns += int(covered_ns(others, Spans(start_ns[changed], end_ns[changed])).sum())
        if beside_ns > (SIDE_BY_SIDE_RATIO - 1) * int((end_ns - start_ns)[changes].sum()):
            yield (
                "kernels that overlap these take as long as in the capture, because their mutual slowdown is"
                " unknown"
            )

    def _without(self, name: str, draft: GraphEdit) -> tuple[str, ...]:
        match name:
            case "allocator":
                return self._without_allocator(draft)
            case "synchronisation":
                return self._unblocked(draft)
            case "recompute":
                return self._without_recompute(draft, with_host_time=True)
            case "offload":
                return self._scaled(_OFFLOAD, 0.0, draft) if _OFFLOAD in self.targets else _NONE
            case _:
                return self._without_jitter(draft)

    def _without_allocator(self, draft: GraphEdit) -> tuple[str, ...]:
        target = self.targets.get(_ALLOCATOR, Target())
        draft.scale_segments(target.rows, 0)
        draft.unblock(self._window.releasing)
        return () if target.rows.size else _NONE

    def _unblocked(self, draft: GraphEdit, name: str | None = None, share: float = 0.0) -> tuple[str, ...]:
        """Remove blocking calls, all or those with a name, except a share of them."""
        segments = self._window.segments
        if name is None:
            rows = segments.inside(self._window.waits.blocking)
        else:
            rows = self.targets.get(f"{WAIT}{name}", Target()).rows
        named = set(self._window.graph.call[rows].tolist())
        calls = leave_out_share(named, share)
        if not named:
            return _NONE
        if not calls:
            return ("all blocking calls stay, and their number cannot grow",)
        draft.unblock(calls)
        draft.scale_segments(segments.inside(calls), 0)
        return (
            (
                f"{number(len(calls))} blocking calls are removed, assuming that the host does not need"
                " the results that they wait for"
            ),
        )

    def _without_lock(self, draft: GraphEdit, share: float) -> tuple[str, ...]:
        """Let calls return at once that wait for another thread in the driver, except a share of them."""
        rows = self.targets.get(DRIVER_LOCK, Target()).rows
        calls = leave_out_share(set(self._window.graph.call[rows].tolist()), share)
        rows = rows[are_among(self._window.graph.call[rows], np.array(sorted(calls), np.int64))]
        draft.unblock(calls)
        draft.scale_segments(rows[self._window.graph.role[rows] != Role.HELD], 0)
        return () if rows.size else _NONE

    def _without_recompute(self, draft: GraphEdit, *, with_host_time: bool = False) -> tuple[str, ...]:
        """Remove recomputed work and its launches, and the host time between them if it goes too."""
        own, operations = self.targets.get(_RECOMPUTE, Target()).ops, self._window.operations
        issuing = operations["call"].to_numpy()[are_among(operations["op"].to_numpy(), own)]
        calls = set(issuing.tolist()) - {-1}
        draft.scale_operations(own, 0)
        draft.scale_segments(self._window.segments.inside(calls), 0)
        if with_host_time:
            draft.scale_segments(find_thinking_before(self._window, calls), 0)
        return ("recomputed activations must stay in memory",) if own.size else _NONE

    def _without_jitter(self, draft: GraphEdit) -> tuple[str, ...]:
        """Set each communication operation to the median of similar ones in the replayed steps."""
        window = self._window
        places = np.flatnonzero((window.replayed["class"] == OperationClass.COMMUNICATION).to_numpy())
        own = window.replayed[places]
        issued_ns = window.waits.calls.start_ns[own["call"].to_numpy()]
        step = np.searchsorted(window.steps["issue_start_ns"].to_numpy(), issued_ns, side="right")
        like = ["rank_id", "stream", "name"]
        medians = (
            own.select("op", *like, step=pl.Series(step))
            .with_columns(
                ordinal=pl.int_range(pl.len()).over(["step", *like]),
                time_ns=pl.Series(window.graph.operation_ns[places]),
            )
            .with_columns(middle_ns=pl.col("time_ns").median().over([*like, "ordinal"]))
            .with_columns(pl.col("middle_ns").round().cast(pl.Int64))
        )
        draft.set_operations(medians["op"].to_numpy(), medians["middle_ns"].to_numpy())
        most_ns = int((medians["time_ns"] - medians["middle_ns"]).abs().to_numpy().max(initial=0))
        note = f"the largest deviation of a collective from its median was {duration(most_ns)}"
        return (note,) if len(medians) else _NONE

    def _moved(self, name: str, draft: GraphEdit, *, is_hidden: bool) -> tuple[str, ...]:
        """Let operations overlap others of their stream; hidden ones also do not delay other work.

        The next operation of a stream waits for what the moved one waited for. The step does not end before
        the moved operations end. A hidden copy of a batch waits for no kernel, because its buffer differs
        from that of the previous batch, and no call waits for it.
        """
        if name not in self.targets:
            return _NONE
        target = self.targets[name]
        moved, behind = set(target.ops.tolist()), self._next_in_stream
        passed = _Passed(moved, self._window.graph.position_of, self._stream_of, draft)
        for op, held_by in draft.followers(target.ops).items():
            if op in moved:
                continue
            is_free = [is_hidden or behind.get(one) == op for one in held_by]
            free = {one for one, is_so in zip(held_by, is_free, strict=True) if is_so}
            kept = [one for one in draft.producers(op) if one not in free]
            draft.wait(op, [*kept, *passed.before(free)])
        staging = target.ops[are_among(target.ops, self.targets.get(STAGING, Target()).ops)]
        staged = set(staging.tolist())
        if is_hidden and staging.size:
            draft.unblock(self._find_calls_waiting_for(staging))
        for op in moved if not is_hidden else moved & staged:
            before = [one for one in draft.producers(op) if behind.get(one) == op]
            reads = set() if op in staged else {one for one in before if one in self._computing}
            is_false = [one for one in before if one not in reads and one not in moved]
            if is_false and op in self._window.graph.position_of:
                draft.wait(op, [one for one in draft.producers(op) if one not in is_false])
        self._end_with(moved, draft)
        kind = (
            "only the end of the step waits for them"
            if is_hidden
            else "only event waits and the end of the step depend on them"
        )
        return (f"{number(len(moved))} operations change: {kind}",)

    def _find_calls_waiting_for(self, ops: Rows) -> set[int]:
        """Return the blocking calls that wait only for some operations."""
        graph = self._window.graph
        positions = graph.positions(ops)
        is_own = mark_numbers(positions[positions >= 0], graph.end_ns.size)[graph.awaited]
        segment = np.arange(graph.role.size).repeat(np.diff(graph.awaited_ptr))
        others = np.bincount(segment[~is_own], minlength=graph.role.size)
        own = np.bincount(segment[is_own], minlength=graph.role.size)
        waits = (graph.role == Role.BLOCKING) & (own > 0) & (others == 0)
        return set(graph.call[waits].tolist()) - {-1}

    def _end_with(self, moved: set[int], draft: GraphEdit) -> None:
        """Make each step end when its last moved operation has ended."""
        own, steps = self._window.operations, self._window.steps
        op, stream, start_ns = (own[name].to_numpy() for name in ("op", "stream", "start_ns"))
        rows = np.flatnonzero(are_among(op, np.fromiter(moved, np.int64, len(moved))))  # in order of start
        edges = (np.searchsorted(start_ns[rows], steps[side].to_numpy()) for side in ("start_ns", "end_ns"))
        for first, behind, one in zip(*map(np.ndarray.tolist, edges), steps["behind"], strict=True):
            inside = rows[first:behind]
            last = dict(zip(stream[inside].tolist(), op[inside].tolist(), strict=True))
            if last:
                draft.wait(one, [*draft.producers(one), *last.values()])


_NONE = ("these steps do not contain it",)
_OF_PEERS = "waiting for peers ends when they arrive: shorten what delays them"
NO_TAX = "compute that overlaps communication is assumed to be as fast as alone"


class _Passed:
    """Return the dependencies of operations that are skipped.

    Only the last of each stream counts, because it waits for those before it in its stream.
    """

    def __init__(
        self, through: set[int], places: Mapping[int, int], stream: Mapping[int, int], draft: GraphEdit
    ) -> None:
        self._through, self._draft, self._places, self._stream = through, draft, places, stream
        self._lasts: dict[int, dict[int, int]] = {}

    def before(self, ops: set[int]) -> list[int]:
        """Return the dependencies of some operations that are not skipped."""
        found: dict[int, int] = {}
        for op in ops & self._places.keys():
            self._add(self._before(op), found)
        return list(found.values())

    def _before(self, op: int) -> dict[int, int]:
        """Return the dependencies of one by stream; as a loop, because chains can have thousands."""
        open_ops = [op]
        while open_ops:
            producers = self._draft.producers(open_ops[-1])
            passed = [one for one in producers if one in self._through and one in self._places]
            unknown = [one for one in passed if one not in self._lasts]
            if unknown:
                open_ops += unknown
                continue
            found: dict[int, int] = {}
            for one in passed:
                self._add(self._lasts[one], found)
            for one in producers:
                if one not in self._through:
                    self._add({self._stream[one]: one}, found)
            self._lasts[open_ops.pop()] = found
        return self._lasts[op]

    def _add(self, more: dict[int, int], found: dict[int, int]) -> None:
        for stream, op in more.items():
            if stream not in found or self._places[found[stream]] < self._places[op]:
                found[stream] = op

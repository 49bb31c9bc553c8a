"""A change of a replay graph while questions are put into it, one after the other.

From questions to changes of a stretch.
"""

from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np
import polars as pl

from wallscope.columns import are_among
from wallscope.errors import OptionError
from wallscope.model.kinds import OperationClass
from wallscope.model.whatif import Question
from wallscope.replay.edits import Draft, graph, next_in_stream, thinking_before
from wallscope.replay.targets import COMMUNICATION, DRAINED, Rules, Target, find, targets
from wallscope.replay.window import ReplayWindow, Stretch
from wallscope.trace.names import folded
from wallscope.units import duration, number

WITHOUT = ("allocator", "synchronisation", "recompute", "offload", "jitter")
_ALLOCATOR, _RECOMPUTE, _OFFLOAD = "memory/allocator", "memory/recompute", "memory/offload"
_OF_NAME = {"offload": _OFFLOAD}


class Changes:
    """Puts questions into drafts; what they can be about is looked up once.

    Only what is scaled can be asked of a window that is not the `Stretch` of a rank.
    """

    def __init__(self, window: ReplayWindow, rules: Rules) -> None:
        self._window, self._rules = window, rules
        self.targets = targets(window, rules)

    @property
    def _stretch(self) -> Stretch:
        if not isinstance(self._window, Stretch):
            raise TypeError("only the steps of one rank can be asked this")
        return self._window

    @cached_property
    def _folded(self) -> dict[str, str]:
        """The names of ranges, each with what it is without its running numbers."""
        told = self._stretch.ranges["text"].unique(maintain_order=True).to_list()
        texts = [text for text in told if text is not None]
        return dict(zip(texts, folded(pl.Series(texts, dtype=pl.String)).to_list(), strict=True))

    @property
    def _range_names(self) -> list[str]:
        """The names that ranges go by: folded, and as they are."""
        return [*dict.fromkeys(self._folded.values()), *self._folded]

    def known(self, question: Question) -> Question:
        """The question with its target spelled as it is known.

        Raises:
            OptionError: nothing bears that name here.
        """
        match question.kind:
            case "scale":
                name = find(question.target, self.targets, "--scale")
                if name.startswith(DRAINED) and question.share:
                    raise OptionError(f"--scale {name} — a wait is there or not — write {name}=0")
            case "without":
                name = find(question.target, WITHOUT, "--without")
            case "graph" if "*" in question.target and self.has(question):
                name = question.target
            case "graph":
                name = find(question.target, self._range_names, "--graph")
            case "hide" | "overlap":
                moving = [one for one in self.targets if self._moves(one)]
                wanted = _OF_NAME.get(question.target, question.target)
                name = find(wanted, moving, f"--{question.kind}")
        return Question(question.kind, name, question.share)

    def has(self, question: Question) -> bool:
        """Whether there is what a question is about, by the very name that it bears."""
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
        """What there is of something that may be gone."""
        match name:
            case "synchronisation":
                return self._window.pieces.inside(self._window.waits.blocking).size
            case "jitter":
                return self.targets.get(COMMUNICATION)
            case _:
                return self.targets.get(f"memory/{name}")

    def put(self, question: Question, draft: Draft) -> tuple[str, ...]:
        """Change what a question is about; returns what was changed and assumed."""
        match question.kind:
            case "scale":
                return self._scaled(question.target, question.share or 0.0, draft)
            case "without":
                return self._without(question.target, draft)
            case "graph":
                return graph(question.target, self._stretch, draft, self._folded)
            case "hide":
                return self._moved(self.targets[question.target], draft, is_hidden=True)
            case "overlap":
                return self._moved(self.targets[question.target], draft, is_hidden=False)

    def _moves(self, name: str) -> bool:
        """Whether a target is communication or copies alone."""
        own, ops = self._window.operations, self.targets[name].ops
        moving = (own["class"] == OperationClass.COMMUNICATION) | (own["class"] == OperationClass.COPY)
        is_own = are_among(own["op"].to_numpy(), ops)
        return bool(is_own.any()) and bool(moving.to_numpy()[is_own].all())

    def _scaled(self, name: str, share: float, draft: Draft) -> tuple[str, ...]:
        if share == 0 and name in {_ALLOCATOR, _RECOMPUTE}:
            return self._without(name.split("/")[1], draft)
        if name.startswith(DRAINED):
            return self._unblocked(draft, name.removeprefix(f"{DRAINED}/"))
        target = self.targets.get(name, Target())
        draft.scale_operations(target.ops, share)
        draft.scale_segments(target.rows, share)
        draft.scale_lags(
            latency=share if target.is_latency else 1.0,
            dependency=share if target.is_hand_over else 1.0,
            back=share if target.is_return else 1.0,
        )
        return ()

    def _without(self, name: str, draft: Draft) -> tuple[str, ...]:
        match name:
            case "allocator":
                return self._without_allocator(draft)
            case "synchronisation":
                return self._unblocked(draft)
            case "recompute":
                return self._without_recompute(draft)
            case "offload":
                return self._scaled(_OFFLOAD, 0.0, draft) if _OFFLOAD in self.targets else _NONE
            case _:
                return self._without_jitter(draft)

    def _without_allocator(self, draft: Draft) -> tuple[str, ...]:
        target = self.targets.get(_ALLOCATOR, Target())
        draft.scale_segments(target.rows, 0)
        draft.unblock(self._window.releasing)
        return () if target.rows.size else _NONE

    def _unblocked(self, draft: Draft, name: str | None = None) -> tuple[str, ...]:
        """Let blocking calls, those of a name alone, not be made."""
        names, pieces = self._window.call_name, self._window.pieces
        own = {pieces.call[row] for row in pieces.inside(self._window.waits.blocking).tolist()}
        calls = {call for call in own if name is None or names[call] == name}
        draft.unblock(calls)
        draft.scale_segments(pieces.inside(calls), 0)
        if not calls:
            return _NONE
        return (f"{number(len(calls))} blocking calls are not made: nothing may need what they waited for",)

    def _without_recompute(self, draft: Draft) -> tuple[str, ...]:
        """Let work that is done again not be done, nor launched, nor prepared by the host."""
        own, operations = self.targets.get(_RECOMPUTE, Target()).ops, self._window.operations
        issuing = operations["call"].to_numpy()[are_among(operations["op"].to_numpy(), own)]
        calls = set(issuing.tolist()) - {-1}
        draft.scale_operations(own, 0)
        draft.scale_segments(self._window.pieces.inside(calls), 0)
        if self._rules.recompute_has_host_time:
            draft.scale_segments(thinking_before(self._window, calls), 0)
        return ("memory has to hold what is no longer computed again",) if own.size else _NONE

    def _without_jitter(self, draft: Draft) -> tuple[str, ...]:
        """Let each communication operation take the median of its like in the steps that are played."""
        stretch = self._stretch
        places = np.flatnonzero((stretch.played["class"] == OperationClass.COMMUNICATION).to_numpy())
        own = stretch.played[places]
        issued_ns = stretch.waits.calls.start_ns[own["call"].to_numpy()]
        step = np.searchsorted(stretch.steps["issue_start_ns"].to_numpy(), issued_ns, side="right")
        like = ["rank_id", "stream", "name"]
        told = (
            own.select("op", *like, step=pl.Series(step))
            .with_columns(
                ordinal=pl.int_range(pl.len()).over(["step", *like]),
                time_ns=pl.Series(stretch.graph.operation_ns[places]),
            )
            .with_columns(middle_ns=pl.col("time_ns").median().over([*like, "ordinal"]))
            .with_columns(pl.col("middle_ns").round().cast(pl.Int64))
        )
        draft.set_operations(told["op"].to_numpy(), told["middle_ns"].to_numpy())
        most_ns = int((told["time_ns"] - told["middle_ns"]).abs().to_numpy().max(initial=0))
        return (f"the one farthest from its median was {duration(most_ns)} off",) if len(told) else _NONE

    def _moved(self, target: Target, draft: Draft, *, is_hidden: bool) -> tuple[str, ...]:
        """Let operations run beside what stands in their stream; hidden ones hold nothing else up either.

        What stands behind one in its stream waits for what that one waited for; the step does not end
        before they are through.
        """
        moved, behind = set(target.ops.tolist()), next_in_stream(self._stretch)
        is_computing = dict(
            self._stretch.operations.select(
                "op", pl.col("class").cast(pl.String) == str(OperationClass.COMPUTE)
            ).iter_rows()
        )
        passed = _Passed(moved, self._stretch, draft)
        for op, held_by in draft.followers(target.ops).items():
            if op in moved:
                continue
            is_free = [is_hidden or behind.get(one) == op for one in held_by]
            free = {one for one, is_so in zip(held_by, is_free, strict=True) if is_so}
            kept = [one for one in draft.producers(op) if one not in free]
            draft.wait(op, [*kept, *passed.before(free)])
        for op in moved if not is_hidden else ():
            before = [one for one in draft.producers(op) if behind.get(one) == op]
            is_false = [one for one in before if not is_computing.get(one) and one not in moved]
            if is_false and op in self._stretch.graph.position_of:
                draft.wait(op, [one for one in draft.producers(op) if one not in is_false])
        self._end_with(moved, draft)
        kind = (
            "nothing waits for them before the step ends"
            if is_hidden
            else ("only waits by events hold on to them, and the end of the step")
        )
        return (f"{number(len(moved))} operations are moved: {kind}",)

    def _end_with(self, moved: set[int], draft: Draft) -> None:
        """Let each step end when the last operations that were moved in it have ended."""
        ends = self._stretch.operations.filter(pl.col("op").is_in(list(moved))).sort("start_ns")
        for start_ns, end_ns, op in self._stretch.steps.select("start_ns", "end_ns", "behind").iter_rows():
            own = ends.filter(pl.col("start_ns").is_between(start_ns, end_ns, closed="left"))
            last = own.unique("stream", keep="last", maintain_order=True)["op"].to_list()
            if last:
                draft.wait(op, [*draft.producers(op), *last])


_NONE = ("there is none of it in these steps",)


class _Passed:
    """What operations that are passed over waited for themselves.

    Of each stream the last alone: what stands before it in its stream it waits for.
    """

    def __init__(self, through: set[int], stretch: Stretch, draft: Draft) -> None:
        self._through, self._draft = through, draft
        self._places = stretch.graph.position_of
        self._stream = dict(stretch.operations.select("op", "stream").iter_rows())
        self._lasts: dict[int, dict[int, int]] = {}

    def before(self, ops: set[int]) -> list[int]:
        """What some of them waited for, which are not passed over."""
        found: dict[int, int] = {}
        for op in ops & self._places.keys():
            self._add(self._before(op), found)
        return list(found.values())

    def _before(self, op: int) -> dict[int, int]:
        """What one waited for, by stream; in a loop of its own, as one may wait for thousands in a row."""
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

"""Finds which call ends a training step, counts the steps, and moves the capture from phase to phase."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any
from weakref import ref

from _wallscope_profilers import make_profiler
from _wallscope_record import write_record

_now = time.perf_counter_ns
_ZERO_GRAD, _OPTIMIZER = 1, 2
_SOON = 64
"""An optimizer that stepped once, and not in so many calls since, does not belong to the loop."""
_BEAT_NS = 2_000_000_000


class OptimizerCalls:
    """The calls of one optimizer during the warm-up."""

    def __init__(self, optimizer: Any, order: int) -> None:
        self._optimizer, self.order, self.name = ref(optimizer), order, type(optimizer).__name__
        self.count, self.last, self.longest_gap = 0, 0, 0
        self.ends_ns: list[int] = []

    def are_of(self, optimizer: Any) -> bool:
        """Whether they are those of this optimizer: ids are used again."""
        return self._optimizer() is optimizer


class StepCounter:
    """The steps of this process. A step lasts from the end of one optimizer step to the end of the next."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = json.loads(os.environ["WALLSCOPE_CAPTURE"])
        self.profiler = make_profiler(self.options)
        self._set_skip(self.options["skip"])
        self.phase = "warm-up"
        self.is_mute = False
        self.done = 0
        self.calls = 0
        self.precedence, self.source = 0, ""
        self.optimizers: dict[int, OptimizerCalls] = {}
        self.anchor: OptimizerCalls | None = None
        self.ends_ns: list[int] = []
        self.skipped: list[int] = []
        self.notes: list[str] = []
        self.errors: list[str] = []
        self.is_early = False
        self._beat_ns = 0
        self._is_registered = False

    def _set_skip(self, skip: int) -> None:
        self.skip = skip
        self.first = skip + self.profiler.lead
        """The number of steps before the first that is captured whole."""
        self.last = self.first + int(self.options["steps"])
        self.stop = self.last + self.profiler.tail
        """The number of steps after which the profiler stops."""

    @property
    def counts_zero_grad(self) -> bool:
        """Whether no better end of a step is known."""
        return self.precedence <= _ZERO_GRAD and not self.is_mute

    # --- which call ends a step -------------------------------------------------------------------
    def count_optimizer(self, optimizer: Any) -> None:
        """Count a step of an optimizer; what is recorded into a CUDA graph is not one."""
        self.calls += 1
        if self.is_mute or self.phase == "over" or self.precedence > _OPTIMIZER or _is_recording_graph():
            return
        self._enter(_OPTIMIZER, "optimizer")
        self._follow(optimizer)

    def count_zeroing(self, optimizer: Any) -> None:
        """Count a step by `zero_grad`, where the optimizer's own step is compiled and cannot be seen."""
        if self.phase != "over" and not _is_recording_graph():
            self._enter(_ZERO_GRAD, "zero_grad")
            self._follow(optimizer)

    def count_left_out(self, optimizer: Any) -> None:
        """Count a step that the scaler of gradients left out, because they were not finite."""
        if self.is_mute or self.precedence > _OPTIMIZER:
            return
        self._enter(_OPTIMIZER, "optimizer")
        if self.anchor is None or self.anchor.are_of(optimizer):
            self.skipped.append(self.done)
        self.count_optimizer(optimizer)

    def claim_steps(self, name: str, precedence: int) -> None:
        """Leave the optimizers that a function calls out of account: they may step several times in it."""
        if not self.is_mute and self.phase != "over":
            self._enter(precedence, name)

    def count_return(self, name: str, precedence: int) -> None:
        """Count a function that runs one step."""
        if self.is_mute or self.phase == "over":
            return
        self._enter(precedence, name)
        if self.precedence == precedence and self.source == name:
            self._end_step(_now())

    def _enter(self, precedence: int, source: str) -> None:
        """During the warm-up, start to count anew by what is a better end of a step."""
        if precedence > self.precedence and self.phase == "warm-up":
            self.precedence, self.source = precedence, source
            self.optimizers, self.anchor, self.done, self.ends_ns, self.skipped = {}, None, 0, [], []

    def _follow(self, optimizer: Any) -> None:
        """End a step if this is the optimizer that steps least often; of equals, that which came last."""
        now = _now()
        known = self.optimizers.get(id(optimizer))
        if known is None or not known.are_of(optimizer):
            known = self.optimizers[id(optimizer)] = OptimizerCalls(optimizer, len(self.optimizers))
            if self.phase != "warm-up":
                self.notes.append(f"the optimizer {known.name} stepped first after {self.done} steps")
        if known.count:
            known.longest_gap = max(known.longest_gap, self.calls - known.last)
        known.count += 1
        known.last = self.calls
        if self.phase == "warm-up":
            anchor = known
            if len(self.optimizers) > 1:
                self._drop_stopped()
                anchor = min(self.optimizers.values(), key=lambda one: (one.count, -one.order))
            if anchor is not self.anchor:
                self.anchor = anchor
                self.ends_ns = anchor.ends_ns
                self.done = len(self.ends_ns)
            if known is not anchor:
                known.ends_ns.append(now)
        if known is self.anchor:
            self._end_step(now)

    def _drop_stopped(self) -> None:
        for key, one in list(self.optimizers.items()):
            if self.calls - one.last > max(_SOON, 4 * one.longest_gap):
                del self.optimizers[key]
                self.notes.append(f"the optimizer {one.name} stopped after {one.count} steps")

    # --- what happens there -----------------------------------------------------------------------
    def _end_step(self, now: int) -> None:
        self.ends_ns.append(now)
        self.done += 1
        try:
            self._advance(now)
        except Exception as error:
            self.fail(error)

    def _advance(self, now: int) -> None:
        if self.phase == "capture":
            if self.done < self.stop:
                self.profiler.mark_step(self.done, is_captured=self.first <= self.done < self.last)
            else:
                self._finish()
        elif self.phase == "warm-up":
            self._warm_up(now)
        elif self.phase == "after":
            self._time_after(now)

    def _warm_up(self, now: int) -> None:
        if self.done == 1:
            self._register_end()
        if self.done >= self.skip:
            self._set_skip(self.done)  # later, if the optimizer that was counted first stopped
            self._drain("start")
            self.profiler.start()
            self.phase = "capture"
            write_record(self)
            self.profiler.mark_step(self.done, is_captured=False)
        elif self.done == max(self.skip // 2, 1):
            self._drain("middle")
        elif now - self._beat_ns > _BEAT_NS:
            self._write_beat(now)

    def _time_after(self, now: int) -> None:
        if self.done == self.stop + 1:  # the step in which the report was written
            self._drain("after the report")
        elif self.done > self.stop + int(self.options["after"]):
            self._close()
        elif now - self._beat_ns > _BEAT_NS:
            self._write_beat(now)

    def _drain(self, what: str) -> None:
        """Let the last step end when its work on the GPU does: times between two such ends are exact."""
        self.profiler.drain(what)
        self.ends_ns[-1] = _now()

    def _write_beat(self, now: int) -> None:
        self._beat_ns = now
        write_record(self)

    def _finish(self) -> None:
        self.profiler.stop()
        self.phase = "after"
        write_record(self)

    def _close(self) -> None:
        self._drain("end")
        self.phase = "over"
        write_record(self)
        if self.options["end"]:
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            os._exit(0)

    def fail(self, error: Exception) -> None:
        """Leave the program alone from here on, and say why."""
        self.errors.append(f"{type(error).__name__}: {error}")
        self.phase = "over"
        sys.stderr.write(f"wallscope: the capture failed, and the program goes on: {error}\n")
        write_record(self)

    def _register_end(self) -> None:
        """Stop the capture if the program ends in it; a process of multiprocessing leaves another way."""
        self._write_beat(_now())
        if self._is_registered:
            return
        self._is_registered = True
        import atexit

        atexit.register(self.program_ends)
        processes = sys.modules.get("multiprocessing.process")
        if processes is not None and processes.parent_process() is not None:
            from multiprocessing.util import Finalize

            Finalize(None, self.program_ends, exitpriority=100)

    def program_ends(self) -> None:
        """Stop what is being captured, and keep it."""
        if self.is_mute or not self.done:
            return
        if self.phase == "capture":
            self.is_early = True
            try:
                self._finish()
            except Exception as error:  # Ctrl-C ends nsys too, which then keeps what it has
                self.notes.append("the profiler had stopped before: %s" % error)
                self.phase = "after"
                write_record(self)
        elif self.phase != "over":
            write_record(self)


def _is_recording_graph() -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    return (
        cuda is not None
        and getattr(cuda, "is_initialized", bool)()
        and bool(getattr(cuda, "is_current_stream_capturing", bool)())
    )

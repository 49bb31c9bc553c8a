"""Start-up of a program in a capture without steps: calls that it makes once, and the time around them.

Until its first kernel runs, a program creates contexts and streams, allocates memory and loads libraries.
Later it may still load modules, as at the first launch of a kernel. None of this recurs in a steady state.
"""

import numpy as np
import polars as pl

from wallscope.columns import Codes, Flags, Rows, as_integers, encode_member, mark_numbers
from wallscope.model.capture import Capture
from wallscope.model.enums import CallRole, OperationKind
from wallscope.records import dataclass
from wallscope.thresholds.causes import FIRST_LAUNCH_NS, FIRST_LAUNCH_RATIO
from wallscope.trace.intervals import Times

_ONCE = (
    r"^(?:cu(?:da)?|hip)(?:Init|InitDevice|SetDevice|Ctx(?:Create|SetCurrent)|DevicePrimaryCtxRetain"
    r"|Module(?:Load|GetFunction)|Library(?:Load|GetKernel|GetModule)|Link(?:Create|Complete)|GetProcAddress"
    r"|GetFuncBySymbol|FuncLoad|StreamCreate)"
)
"""Calls that create contexts and streams, or load code."""


@dataclass(frozen=True, slots=True)
class StartUp:
    """When a rank's start-up ends, and which calls belong to one at any time: bool[call]."""

    until_ns: int
    is_once: Flags

    def mark_slices(self, start_ns: Times, call: Codes) -> Flags:
        """Return which slices on threads belong to it; `call` is that of each slice, -1 without one."""
        is_once = np.append(self.is_once, np.False_)
        found: Flags = (start_ns < self.until_ns) | is_once[call]
        return found


def find_start_up(operations: pl.DataFrame, capture: Capture, process: int) -> StartUp | None:
    """Return the start-up of a rank, `None` if no call shows one.

    Args:
        operations: `OPERATIONS` of the rank.
        capture: its calls and their names.
        process: of the rank.
    """
    calls, op_call = capture.calls, operations["call"].to_numpy()
    of_thread = capture.threads["process"].to_numpy() == process
    is_own = of_thread[calls["thread"].to_numpy()]
    names = capture.call_names.filter(pl.col("text").str.contains(_ONCE))["name"]
    is_once = is_own & calls["name"].is_in(names.implode()).to_numpy()
    is_kernel = as_integers(operations["kind"]) == encode_member(OperationKind.KERNEL)
    kernels = operations.filter(pl.Series(is_kernel))
    if kernels.is_empty() or calls.is_empty():
        return None
    is_long = _mark_first_launches(kernels, calls)
    first_ns, kernel_ns = int(operations["start_ns"][0]), int(kernels["start_ns"][0])
    start_ns = calls["start_ns"].to_numpy()
    is_before = is_own & (start_ns >= first_ns) & (start_ns < kernel_ns)
    is_first = is_before & mark_numbers(_find_first_allocations(calls, is_own), len(calls))
    is_issuing = mark_numbers(op_call[op_call >= 0], len(calls))
    is_shown = (is_before & is_once).any() or is_first.any()
    return StartUp(kernel_ns if is_shown else first_ns, (is_once & ~is_issuing) | is_long)


def _find_first_allocations(calls: pl.DataFrame, is_own: Flags) -> Rows:
    """Return the first call of each name that allocates in a process."""
    own = calls.filter(pl.Series(is_own) & (pl.col("role") == CallRole.ALLOC)).sort("start_ns")
    return own.unique("name", keep="first")["call"].to_numpy().astype(np.int64)


def _mark_first_launches(kernels: pl.DataFrame, calls: pl.DataFrame) -> Flags:
    """Return which calls launch a kernel for the first time and take much longer than launches do."""
    issued = kernels.filter(pl.col("call") >= 0)
    first = issued.unique("name", keep="first", maintain_order=True)["call"].to_numpy()
    length_ns = (calls["end_ns"] - calls["start_ns"]).to_numpy()
    found = np.zeros(len(calls), np.bool_)
    if first.size:
        usual_ns = float(np.median(length_ns[issued["call"].to_numpy()]))
        found[first[length_ns[first] >= max(FIRST_LAUNCH_NS, FIRST_LAUNCH_RATIO * usual_ns)]] = True
    return found

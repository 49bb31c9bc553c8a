"""What explains a change: fixes that were undone or made, settings and versions that changed, rare stalls.

A setting explains a cause only where the cause surely changed. One that goes with no such change is listed
among what differs, and what changed without one is called not explained. Rare stalls of one side change the
mean of all steps, not the typical step.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from fractions import Fraction

import numpy as np
import polars as pl

from wallscope.compare.comparability import HIDDEN, is_opaque
from wallscope.compare.kernel_changes import explain_kernels
from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep, deciding_steps, lengths_ns
from wallscope.model.cause_catalogue import (
    COMPUTE_ATTENTION,
    COMPUTE_CONVOLUTION,
    COMPUTE_DISPATCHER_LOCAL,
    COMPUTE_ELEMENTWISE,
    COMPUTE_GEMM,
    COMPUTE_GROUPED_GEMM,
    COMPUTE_NORM,
    COMPUTE_OPTIMIZER,
    COMPUTE_REDUCTION,
    DRAINED,
    HOST_CHECKPOINT,
    HOST_DATA_LOADING,
    HOST_FRAMEWORK,
    HOST_GARBAGE_COLLECTION,
    HOST_LAUNCH_CALL,
    HOST_LAUNCH_LATENCY,
    HOST_OTHER_CALL,
    MEMORY_ALLOCATOR,
    MEMORY_DEVICE_COPY,
    MEMORY_OFFLOAD,
    MEMORY_RECOMPUTE,
    MEMORY_STAGING,
    describe_cause,
)
from wallscope.model.comparison import (
    CauseDelta,
    CommunicationChange,
    Deltas,
    Explanation,
    Mismatch,
    OperationChange,
    StepChange,
)
from wallscope.model.enums import CopyDirection, Wall
from wallscope.model.profile import Profile, ProfiledInput
from wallscope.records import dataclass
from wallscope.thresholds.causes import BULK_COPY_BYTES
from wallscope.thresholds.steps import RARE_STALL_SHARE
from wallscope.thresholds.verdict import (
    EXPLAINED_SHARE,
    HIDDEN_CHANGE_SHARE,
    MORE_SLOW_STEPS_COUNT,
    MORE_SLOW_STEPS_SHARE,
    MORE_VOLUME_RATIO,
    OTHER_COPIES_RATIO,
    SHOWN_JOINT_SHARE,
)
from wallscope.trace.step_variation import find_stall_period, measure_rare_excess, select_longest
from wallscope.units import duration, percent, signed_duration

SLOW_STEPS = "slow-steps"
_OVERLAPPED_PATH = "layer_#f-layer_#b"
_LAUNCHING = (HOST_LAUNCH_CALL, HOST_LAUNCH_LATENCY, HOST_FRAMEWORK)


def explain_changes(
    base: TypicalStep,
    head: TypicalStep,
    traffic: Sequence[CommunicationChange],
    found: Sequence[Mismatch],
    step: StepChange,
) -> tuple[Explanation, ...]:
    """Return what is recognized, fixes first, each by the size of its change; nothing of like sides."""
    opaque = [*_opaque(base, head)]
    fixes = [
        *_overlap(base, head, traffic),
        *_graphs(base, head, found),
        *explain_kernels(base, head),
        *_explain_transport(base, head, found),
    ]
    rest = [*_drains(base, head), *_volume(base, head, traffic), *_slow_steps(step)]
    return (
        *opaque,
        *sorted(fixes, key=_size_of_explanation, reverse=True),
        *sorted(rest, key=_size_of_explanation, reverse=True),
    )


def _size_of_explanation(entry: Explanation) -> int:
    return abs(entry.delta_ns or 0)


def _opaque(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain graphs traced as a whole on one side: its kernels are unknown, so walls cannot be compared."""
    if is_opaque(base) == is_opaque(head):
        return
    side = "head" if is_opaque(head) else "base"
    text = (
        f"Kernels of {side} are hidden in CUDA graphs traced as a whole, so the step can be compared and its"
        " walls cannot: capture both with --cuda-graph-trace=node"
    )
    yield Explanation("opaque-graphs", text, None)


def _overlap(
    base: TypicalStep, head: TypicalStep, traffic: Sequence[CommunicationChange]
) -> Iterator[Explanation]:
    for row in traffic:
        if row.base_hidden_share is None or row.head_hidden_share is None:
            continue
        if abs(row.head_hidden_share - row.base_hidden_share) < HIDDEN_CHANGE_SHARE:
            continue
        is_lost = row.head_hidden_share < row.base_hidden_share
        text = (
            f"Compute hides {'less' if is_lost else 'more'} of the {row.axis} communication:"
            f" {percent(row.base_hidden_share)} → {percent(row.head_hidden_share)}"
        )
        gone = [side for side in (base, head) if not any(_OVERLAPPED_PATH in key.path for key in side.ran)]
        if row.axis == "ep" and len(gone) == 1:
            side = "head" if gone[0] is head else "base"
            text += f"; EP overlap is off in {side} (no {_OVERLAPPED_PATH} ranges)"
        code = f"{row.axis}-overlap-{'lost' if is_lost else 'gained'}"
        yield Explanation(
            code, text, row.delta_ns, _list_causes_of_sides(base, head, f"communication/{row.axis}/")
        )


def _list_causes_of_sides(base: TypicalStep, head: TypicalStep, *prefixes: str) -> tuple[str, ...]:
    """Return the causes of either side that begin so."""
    return tuple(sorted(cause for cause in {*base.causes, *head.causes} if cause.startswith(prefixes)))


def _graphs(base: TypicalStep, head: TypicalStep, found: Sequence[Mismatch]) -> Iterator[Explanation]:
    for entry in found:
        if entry.what == "CUDA graphs" and "none" in {entry.base, entry.head}:
            is_gone = entry.head == "none"
            side = "base" if is_gone else "head"
            delta_ns = _sum(head, _is_launching) - _sum(base, _is_launching)
            text = f"CUDA graphs run only in {side}"
            if delta_ns:
                text += "; the change is that of launches on the host"
            code = f"cuda-graphs-{'gone' if is_gone else 'new'}"
            yield Explanation(code, text, delta_ns or None, _list_causes_of_sides(base, head, *_LAUNCHING))


def _is_launching(cause: str, _: Key) -> bool:
    return cause in _LAUNCHING


def _explain_transport(
    base: TypicalStep, head: TypicalStep, found: Sequence[Mismatch]
) -> Iterator[Explanation]:
    for entry in found:
        if entry.what == "EP transport" and HIDDEN not in {entry.base, entry.head}:
            delta_ns = _sum(head, _is_dispatching) - _sum(base, _is_dispatching)
            text = f"The token dispatcher went from {entry.base} to {entry.head}"
            causes = _list_causes_of_sides(base, head, "communication/ep/", COMPUTE_DISPATCHER_LOCAL)
            yield Explanation("dispatcher-changed", text, delta_ns, causes)


def _is_dispatching(cause: str, _: Key) -> bool:
    return cause.startswith("communication/ep/") or cause == COMPUTE_DISPATCHER_LOCAL


def _drains(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain calls that drain the queue on one side alone, or with fewer or more reads of results."""
    drains = [{cause for cause in step.causes if cause.startswith(DRAINED)} for step in (base, head)]
    yield from _reads(base, head, drains[0] & drains[1])
    for cause in sorted(drains[0] ^ drains[1]):
        delta_ns = head.causes.get(cause, 0) - base.causes.get(cause, 0)
        if abs(delta_ns) >= EXPLAINED_SHARE * base.step_ns:
            side = "head" if delta_ns > 0 else "base"
            text = f"The GPU is idle after {cause.rpartition('/')[2]} only in {side}"
            yield Explanation(f"queue-drain-{'new' if delta_ns > 0 else 'gone'}", text, delta_ns, (cause,))


def _reads(base: TypicalStep, head: TypicalStep, drains: Collection[str]) -> Iterator[Explanation]:
    """Explain the queue that is drained by fewer or more small copies to the host, in proportion to them."""
    counts = [
        sum((ran.count for key, ran in step.ran.items() if _is_small_read(key, ran)), Fraction())
        for step in (base, head)
    ]
    if not all(counts) or max(counts) <= OTHER_COPIES_RATIO * min(counts):
        return
    for cause in sorted(drains):
        before_ns, after_ns = base.causes[cause], head.causes[cause]
        change_ns = after_ns - before_ns
        by_count_ns = before_ns * (counts[1] - counts[0]) / counts[0]
        if abs(change_ns) >= EXPLAINED_SHARE * base.step_ns and 2 * change_ns / by_count_ns >= 1:
            text = (
                f"Reads of results went from {float(counts[0]):.0f} to {float(counts[1]):.0f} per step:"
                f" {describe_cause(cause)} {duration(before_ns)} → {duration(after_ns)}"
            )
            code = f"queue-drain-{'more' if change_ns > 0 else 'fewer'}"
            yield Explanation(code, text, change_ns, (cause,))


def _is_small_read(key: Key, ran: OperationWork) -> bool:
    """Return whether operations are copies to the host that are too small to be data."""
    return (
        key.category == CopyDirection.DEVICE_TO_HOST
        and ran.bytes is not None
        and ran.bytes < BULK_COPY_BYTES * ran.count
    )


def _volume(
    base: TypicalStep, head: TypicalStep, traffic: Sequence[CommunicationChange]
) -> Iterator[Explanation]:
    for row in traffic:
        if not row.base_bytes or not row.head_bytes:
            continue
        ratio = row.head_bytes / row.base_bytes
        if max(ratio, 1 / ratio) > MORE_VOLUME_RATIO:
            text = f"{row.axis} communication moves {ratio:.2f}x as many bytes as in base"
            causes = _list_causes_of_sides(base, head, f"communication/{row.axis}/")
            yield Explanation(f"{row.axis}-volume", text, row.delta_ns, causes)


def _slow_steps(step: StepChange) -> Iterator[Explanation]:
    """Explain slow steps that the typical step leaves out, unless it includes most of them."""
    shares = (step.base_slow_steps / step.base_steps, step.head_slow_steps / step.head_steps)
    more = abs(step.head_slow_steps - step.base_slow_steps)
    if abs(shares[1] - shares[0]) < MORE_SLOW_STEPS_SHARE or more < MORE_SLOW_STEPS_COUNT:
        return
    beyond = (step.head_mean_ns - step.head_typical_ns) - (step.base_mean_ns - step.base_typical_ns)
    if beyond * (shares[1] - shares[0]) <= 0:
        return
    left_out = ", which the typical step leaves out" if step.compared == "typical" else ""
    text = (
        f"Slow steps (over 1.25x the median){left_out}: {step.base_slow_steps} of"
        f" {step.base_steps} in base, {step.head_slow_steps} of {step.head_steps} in head"
    )
    yield Explanation(SLOW_STEPS, text, beyond)


def _sum(step: TypicalStep, is_meant: Callable[[str, Key], bool]) -> int:
    return sum(time_ns for (cause, key), time_ns in step.owned.items() if is_meant(cause, key))


_COMMUNICATION = ("communication/",)
_HOST_CALLS = (HOST_LAUNCH_CALL, HOST_LAUNCH_LATENCY, HOST_FRAMEWORK, HOST_OTHER_CALL)
_PRODUCTS = (COMPUTE_GEMM, COMPUTE_GROUPED_GEMM, COMPUTE_CONVOLUTION, COMPUTE_ATTENTION)
_POINTWISE = (COMPUTE_ELEMENTWISE, COMPUTE_NORM, COMPUTE_REDUCTION)
_CONCERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), causes)
    for pattern, causes in (
        (
            r"num_?workers|prefetch|data_?load|pin_memory|persistent_workers|OMP_NUM",
            (HOST_DATA_LOADING, MEMORY_STAGING),
        ),
        (
            r"dispatch|expert|\bmoe|_moe_|hybridep|hybrid_ep|NVSHMEM|MNNVL",
            ("communication/ep/", COMPUTE_DISPATCHER_LOCAL),
        ),
        (r"tensor_model|tp_comm|sequence_parallel", ("communication/tp/",)),
        (r"pipeline|microbatch_group", ("communication/pp/",)),
        (r"context_parallel|cp_comm", ("communication/cp/",)),
        (
            r"grad_reduce|param_gather|distributed_optimizer|\bddp|fsdp|zero|bucket",
            ("communication/dp-", MEMORY_DEVICE_COPY),
        ),
        (r"recompute|checkpoint_activ|gradient_checkpoint", (MEMORY_RECOMPUTE,)),
        (r"offload", (MEMORY_OFFLOAD,)),
        (r"ALLOC_CONF", (MEMORY_ALLOCATOR,)),
        (r"cuda_?graph", _HOST_CALLS),
        (r"LAUNCH_BLOCKING|MODULE_LOADING", ("host/",)),
        (r"MAX_CONNECTIONS", (*_COMMUNICATION, *_HOST_CALLS)),
        (r"attn|attention|flash", (COMPUTE_ATTENTION,)),
        (r"grouped_(?:mlp|gemm)", (COMPUTE_GROUPED_GEMM,)),
        (r"fp8|fp4|bf16|fp16|amp\b|autocast|precision|dtype|tf32", _PRODUCTS),
        (r"compile|inductor|fusion|fused|jit", (*_POINTWISE, COMPUTE_OPTIMIZER)),
        (r"optimizer|adam", (COMPUTE_OPTIMIZER, COMPUTE_ELEMENTWISE)),
        (r"NORM", (COMPUTE_NORM,)),
        (r"manual_gc|\bgc", (HOST_GARBAGE_COLLECTION,)),
        (r"save_interval|checkpoint", (HOST_CHECKPOINT,)),
        (r"NCCL|overlap|comm", _COMMUNICATION),
    )
)
"""Which causes a setting concerns, by a part of its name: the first that fits counts."""
_LIBRARIES = frozenset({"gemm", "grouped-gemm", "convolution", "attention"})
_VERSIONS = ("CUDA version of the driver", "NVIDIA driver", "profiler version")


def compare_environments(base: ProfiledInput | None, head: ProfiledInput | None) -> tuple[Mismatch, ...]:
    """Return the variables that differ, of environments that both captures hold."""
    if base is None or head is None or not base.environment or not head.environment:
        return ()
    ours, theirs = dict(base.environment), dict(head.environment)
    return tuple(
        Mismatch(name, ours.get(name, "not set"), theirs.get(name, "not set"), "changed", is_setting=True)
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    )


def join_settings(
    found: Sequence[Mismatch],
    causes: Sequence[CauseDelta],
    operations: Sequence[OperationChange],
    step_ns: int,
) -> tuple[Explanation, ...]:
    """Return the settings and versions that go with causes that surely changed, the largest change first.

    `step_ns` is the typical step of base. Settings that concern the same causes are one explanation.
    """
    least_ns = SHOWN_JOINT_SHARE * step_ns
    changed = [row for row in causes if _is_certain(row) and abs(row.delta_ns) >= least_ns]
    groups: dict[tuple[str, ...], list[Mismatch]] = defaultdict(list)
    for entry in found:
        if (prefixes := _find_concerned(entry)) is not None:
            groups[prefixes].append(entry)
    joined = []
    for prefixes, settings in groups.items():
        own = [row for row in changed if row.cause.startswith(prefixes)]
        if own:
            listed = ", ".join(f"{entry.what} {entry.base} → {entry.head}" for entry in settings)
            largest = max(own, key=lambda row: abs(row.delta_ns))
            amount = f" {signed_duration(largest.delta_ns)}" if len(own) > 1 else ""
            text = f"{listed}: {describe_cause(largest.cause)}{amount}"
            delta_ns = sum(row.delta_ns for row in own)
            joined.append(Explanation("setting-changed", text, delta_ns, tuple(row.cause for row in own)))
    joined += _join_versions(found, operations, least_ns)
    return tuple(sorted(joined, key=lambda entry: -abs(entry.delta_ns or 0)))


def _is_certain(row: CauseDelta) -> bool:
    return row.low_ns is not None and row.high_ns is not None and not row.low_ns <= 0 <= row.high_ns


def _find_concerned(entry: Mismatch) -> tuple[str, ...] | None:
    """Return the beginnings of the causes that a setting concerns; `None` if it is unknown or none."""
    if not entry.is_setting or entry.severity != "changed":
        return None
    for pattern, causes in _CONCERNS:
        if pattern.search(entry.what) or pattern.search(entry.what.lower()):
            return causes
    return None


def _join_versions(
    found: Sequence[Mismatch], operations: Sequence[OperationChange], least_ns: float
) -> Iterator[Explanation]:
    """Join another version of CUDA to kernels of its libraries that replaced others."""
    versions = [entry for entry in found if entry.what in _VERSIONS[:2]]
    replaced = [
        row
        for row in operations
        if row.kind == "replaced" and row.category in _LIBRARIES and abs(row.delta_ns) >= least_ns
    ]
    if versions and replaced:
        listed = ", ".join(f"{entry.what} {entry.base} → {entry.head}" for entry in versions)
        kinds = ", ".join(sorted({row.category for row in replaced}))
        text = f"{listed}: libraries run other kernels of {kinds}"
        causes = tuple(sorted({f"compute/{row.category}" for row in replaced}))
        yield Explanation("version-changed", text, sum(row.delta_ns for row in replaced), causes)


_STEP_KEYS = ["input", "step"]
_COMPUTE = f"{Wall.COMPUTE}/"


@dataclass(frozen=True, slots=True)
class _Stalls:
    """What a cause takes on few steps of the runs of a side.

    `step_ns` is the time beyond its median as a mean over all steps, `share` the same as a share of all time.
    """

    step_ns: Fraction
    share: float
    stalled_count: int
    period: int | None


@dataclass(frozen=True, slots=True)
class _RunStalls:
    """The same of one run, in ns."""

    total_ns: int
    stalled_count: int
    period: int | None


def add_rare_stalls(
    explanations: Sequence[Explanation],
    base: Sequence[Profile],
    head: Sequence[Profile],
    of_mean: Deltas | None = None,
) -> tuple[Explanation, ...]:
    """Return explanations with those by rare stalls.

    They replace the number of slow steps if they explain most of the change that slow steps make. In the mean
    (`of_mean`: its deltas) they are part of the change of their cause, and explain it if they go its way.
    """
    stalls = _explain_stalls(base, head)
    if of_mean is not None:
        changed = {row.cause: row.delta_ns for row in of_mean.causes}
        stalls = tuple(one for one in stalls if (one.delta_ns or 0) * changed.get(one.causes[0], 0) > 0)
    stalled_ns = abs(sum(one.delta_ns or 0 for one in stalls))
    kept = [one for one in explanations if one.code != SLOW_STEPS or 2 * stalled_ns < abs(one.delta_ns or 0)]
    return (*kept, *stalls)


def _explain_stalls(base: Sequence[Profile], head: Sequence[Profile]) -> tuple[Explanation, ...]:
    """Return the causes whose rare stalls differ by a material share of all time of base, the largest first.

    Steps that also compute more are other work and not stalled.
    """
    ours, theirs = _measure_stalls(base), _measure_stalls(head)
    none = _Stalls(Fraction(), 0.0, 0, None)
    lengths = [lengths_ns(deciding_steps(profile)) for profile in base]
    least_ns = RARE_STALL_SHARE * sum(int(own.sum()) for own in lengths) / max(sum(map(len, lengths)), 1)
    found = []
    for cause in sorted({*ours, *theirs}):
        before, after = ours.get(cause, none), theirs.get(cause, none)
        delta_ns = after.step_ns - before.step_ns
        if abs(delta_ns) >= least_ns:
            found.append(_write_stalls(cause, before, after, round(delta_ns)))
    return tuple(sorted(found, key=lambda one: -abs(one.delta_ns or 0)))


def _write_stalls(cause: str, base: _Stalls, head: _Stalls, delta_ns: int) -> Explanation:
    is_more = delta_ns > 0
    text = (
        f"Some steps stall for {describe_cause(cause)}: {_write_sides(base, head)}."
        f" That is {duration(abs(delta_ns))} {'more' if is_more else 'less'} per step on average"
    )
    return Explanation(f"rare-stalls-{'more' if is_more else 'fewer'}", text, delta_ns, (cause,))


def _write_sides(base: _Stalls, head: _Stalls) -> str:
    """Write what rare stalls take; a side without rare ones may have frequent ones, so it has no number."""
    sides = [(name, side) for name, side in (("base", base), ("head", head)) if side.stalled_count]
    texts = [f"{_write_side(side)} in {name}" for name, side in sides]
    return f"{texts[0]} only" if len(texts) == 1 else ", ".join(texts)


def _write_side(side: _Stalls) -> str:
    often = "" if side.period is None else f" (the longest every {side.period} steps)"
    return f"{percent(side.share)} of all time{often}"


def _measure_stalls(profiles: Sequence[Profile]) -> dict[str, _Stalls]:
    """Return the rare stalls of each cause over all steps that decide, each run by its own medians."""
    stalls: dict[str, list[_RunStalls]] = {}
    all_ns = count = 0
    for profile in profiles:
        steps = deciding_steps(profile)
        all_ns, count = all_ns + int(lengths_ns(steps).sum()), count + len(steps)
        for cause, own in _measure_run_stalls(profile, steps).items():
            stalls.setdefault(cause, []).append(own)
    found = {}
    for cause, runs in stalls.items():
        total_ns, stalled = sum(run.total_ns for run in runs), sum(run.stalled_count for run in runs)
        periods = {run.period for run in runs}
        period = periods.pop() if len(periods) == 1 else None
        found[cause] = _Stalls(Fraction(total_ns, count), total_ns / all_ns, stalled, period)
    return found


def _measure_run_stalls(profile: Profile, steps: pl.DataFrame) -> dict[str, _RunStalls]:
    length_ns, number = lengths_ns(steps), steps["step"].to_numpy().astype(np.int64)
    sums = profile.owned.group_by("cause", *_STEP_KEYS).agg(pl.col("owned_ns").sum())
    excess_of = {}
    for (cause,), own in sorted(sums.partition_by("cause", as_dict=True, include_key=False).items()):
        time_ns = steps.join(own, on=_STEP_KEYS, how="left", maintain_order="left")["owned_ns"].fill_null(0)
        excess_ns = measure_rare_excess(time_ns.to_numpy(), length_ns)
        if excess_ns.any():
            excess_of[str(cause)] = excess_ns
    works_more = np.zeros(len(steps), np.bool_)
    for cause, excess_ns in excess_of.items():
        works_more |= cause.startswith(_COMPUTE) & (excess_ns > 0)
    found = {}
    for cause, excess_ns in excess_of.items():
        rows = np.flatnonzero(np.where(works_more, 0, excess_ns))
        if rows.size and not cause.startswith(_COMPUTE):
            period = find_stall_period(number[select_longest(excess_ns, rows)])
            found[cause] = _RunStalls(int(excess_ns[rows].sum()), rows.size, period)
    return found

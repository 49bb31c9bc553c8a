"""Settings, environment and versions that changed, joined to the causes that they explain.

A setting explains a cause only where the cause surely changed. One that goes with no such change is listed
among what differs, and what changed without one is called not explained.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.comparison import CauseDelta, Explanation, Mismatch, OperationChange
from wallscope.model.profile import ProfiledInput
from wallscope.thresholds.verdict import SHOWN_JOINT_SHARE
from wallscope.units import signed_duration

_COMMUNICATION = ("communication/",)
_HOST = ("host/launch-call", "host/launch-latency", "host/framework", "host/other-call")
_PRODUCTS = ("compute/gemm", "compute/grouped-gemm", "compute/convolution", "compute/attention")
_POINTWISE = ("compute/elementwise", "compute/norm", "compute/reduction")
_CONCERNS: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (re.compile(pattern), causes)
    for pattern, causes in (
        (
            r"num_?workers|prefetch|data_?load|pin_memory|persistent_workers|OMP_NUM",
            ("host/data-loading", "memory/staging"),
        ),
        (
            r"dispatch|expert|\bmoe|_moe_|hybridep|hybrid_ep|NVSHMEM|MNNVL",
            ("communication/ep/", "compute/dispatcher-local"),
        ),
        (r"tensor_model|tp_comm|sequence_parallel", ("communication/tp/",)),
        (r"pipeline|microbatch_group", ("communication/pp/",)),
        (r"context_parallel|cp_comm", ("communication/cp/",)),
        (
            r"grad_reduce|param_gather|distributed_optimizer|\bddp|fsdp|zero|bucket",
            ("communication/dp-", "memory/device-copy"),
        ),
        (r"recompute|checkpoint_activ|gradient_checkpoint", ("memory/recompute",)),
        (r"offload", ("memory/offload",)),
        (r"ALLOC_CONF", ("memory/allocator",)),
        (r"cuda_?graph", _HOST),
        (r"LAUNCH_BLOCKING|MODULE_LOADING", ("host/",)),
        (r"MAX_CONNECTIONS", (*_COMMUNICATION, *_HOST)),
        (r"attn|attention|flash", ("compute/attention",)),
        (r"grouped_(?:mlp|gemm)", ("compute/grouped-gemm",)),
        (r"fp8|fp4|bf16|fp16|amp\b|autocast|precision|dtype|tf32", _PRODUCTS),
        (r"compile|inductor|fusion|fused|jit", (*_POINTWISE, "compute/optimizer")),
        (r"optimizer|adam", ("compute/optimizer", "compute/elementwise")),
        (r"NORM", ("compute/norm",)),
        (r"manual_gc|\bgc", ("host/garbage-collection",)),
        (r"save_interval|checkpoint", ("host/checkpoint",)),
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
        Mismatch(name, ours.get(name, "not set"), theirs.get(name, "not set"), "changed")
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
            text = f"{listed}: {describe_cause(largest.cause)} {signed_duration(largest.delta_ns)}"
            delta_ns = sum(row.delta_ns for row in own)
            joined.append(Explanation("setting-changed", text, delta_ns, tuple(row.cause for row in own)))
    joined += _join_versions(found, operations, least_ns)
    return tuple(sorted(joined, key=lambda entry: -abs(entry.delta_ns or 0)))


def _is_certain(row: CauseDelta) -> bool:
    return row.low_ns is not None and row.high_ns is not None and not row.low_ns <= 0 <= row.high_ns


def _find_concerned(entry: Mismatch) -> tuple[str, ...] | None:
    """Return the beginnings of the causes that a setting concerns; `None` if it is unknown or none."""
    if entry.severity != "changed" or " " in entry.what:
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

"""What kernels and copies show of a change: precision, fusion, compilation, optimizer, input, copies.

Each rule compares what runs on both sides, by structure: categories, ranges, counts, and parts of names that
a compiler or a library always gives. So one is recognized in any program, and none without its kernels.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction

import polars as pl

from wallscope.compare.typical_steps import Key, OperationWork, TypicalStep, total_work
from wallscope.model.cause_catalogue import (
    COMPUTE_ELEMENTWISE,
    COMPUTE_OPTIMIZER,
    HOST_DATA_LOADING,
    MEMORY_STAGING,
    describe_cause,
    find_wall,
)
from wallscope.model.comparison import Explanation
from wallscope.model.enums import ComputeCategory, CopyDirection, Precision, Wall
from wallscope.thresholds.verdict import (
    EXPLAINED_SHARE,
    FEWER_KERNELS_RATIO,
    FEWEST_COMPILED_KERNELS_COUNT,
    MAIN_PRECISION_SHARE,
    MORE_KERNELS_RATIO,
    OTHER_COPIES_RATIO,
    SHOWN_JOINT_SHARE,
)
from wallscope.trace.kernel_classes import infer_precisions, shorten_kernel
from wallscope.units import plural, signed_duration, size

_FUSED = ("fused", "triton_poi", "triton_red", "triton_per", "cudnn_generated")
_TRITON = "triton_"
_LOW_PRECISIONS = frozenset({Precision.FP8, Precision.MXFP8, Precision.NVFP4, Precision.INT8})
_PRECISE = (
    ComputeCategory.GEMM,
    ComputeCategory.GROUPED_GEMM,
    ComputeCategory.CONVOLUTION,
    ComputeCategory.ATTENTION,
)
_WORDS = {
    ComputeCategory.GEMM: "matrix multiplication",
    ComputeCategory.GROUPED_GEMM: "grouped matrix multiplication",
}
POINTWISE = (ComputeCategory.ELEMENTWISE, ComputeCategory.NORM, ComputeCategory.REDUCTION)
"""Categories of kernels that a compiler fuses."""
_SOFTMAX = re.compile(r"(?i)softmax")
_MOST_FUSED_OF_A_SOFTMAX = 2  # FlashAttention: one kernel forward and three backward, for two of softmax
_OPTIMIZER_RANGE = re.compile(r"(?i)optimi[sz]er")
_LOADING = (HOST_DATA_LOADING, MEMORY_STAGING)
_COPIES = {
    CopyDirection.DEVICE_TO_DEVICE: "Copies inside the device",
    CopyDirection.HOST_TO_DEVICE: "Copies to the device",
    CopyDirection.DEVICE_TO_HOST: "Copies to the host",
    CopyDirection.FILL: "Fills of device memory",
}
_HOST = "host"


def explain_kernels(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain what the kernels and copies of both sides show to have changed."""
    fused = [*_fusion(base, head)]
    yield from fused
    if not fused:
        yield from _compilation(base, head)
    yield from _explain_precision(base, head)
    yield from _attention(base, head)
    yield from _optimizer(base, head)
    pipeline = [*_preprocessing(base, head)]
    yield from pipeline
    yield from _copies(base, head, (CopyDirection.HOST_TO_DEVICE,) if pipeline else ())


def _fusion(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain fused kernels of one side alone, where the other has more elementwise ones instead."""
    delta_ns = _owned_ns(head, _is_elementwise) - _owned_ns(base, _is_elementwise)
    for code, side, ours, theirs in (
        ("fusion-lost", "base", base, head),
        ("fusion-gained", "head", head, base),
    ):
        fewer, more = (sum_work(step, _is_elementwise).count for step in (ours, theirs))
        names = {key.name for key in theirs.ran}
        gone = sorted(
            {
                key.name
                for key in ours.ran
                if key.name not in names and any(part in key.name for part in _FUSED)
            }
        )
        if gone and more > MORE_KERNELS_RATIO * fewer:
            text = (
                f"{plural(len(gone), 'fused kernel')} in {side} only ({gone[0][:60]}), and"
                f" {float(fewer):.0f} elementwise kernels per step there, {float(more):.0f} on the other side"
            )
            yield Explanation(code, text, delta_ns, (COMPUTE_ELEMENTWISE,))


def _is_elementwise(key: Key) -> bool:
    return key.category == ComputeCategory.ELEMENTWISE


def _compilation(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain kernels that a compiler made on one side alone, where it has fewer others of their kind."""
    compiled = [sum_work(step, _is_compiled) for step in (base, head)]
    names = [{key.name for key in step.ran if _is_compiled(key)} for step in (base, head)]
    if all(names) or max(map(len, names)) < FEWEST_COMPILED_KERNELS_COUNT:
        return
    is_new = bool(names[1])

    def is_other(key: Key) -> bool:
        return key.category in POINTWISE and not _is_compiled(key)

    others = [sum_work(step, is_other) for step in (base, head)]
    eager, mixed = others if is_new else others[::-1]
    if mixed.count >= eager.count:
        return
    made = compiled[is_new]
    text = (
        f"Compiled kernels (Triton, as torch.compile makes them) run in {'head' if is_new else 'base'} only:"
        f" {float(made.count):.0f} per step, with {float(mixed.count):.0f} other elementwise, norm and"
        f" reduction kernels instead of {float(eager.count):.0f}"
    )
    delta_ns = _owned_ns(head, _is_pointwise) - _owned_ns(base, _is_pointwise)
    causes = tuple(f"compute/{category}" for category in POINTWISE)
    yield Explanation(f"compiled-kernels-{'new' if is_new else 'gone'}", text, delta_ns, causes)


def _is_compiled(key: Key) -> bool:
    return key.name.startswith(_TRITON)


def find_fusion(base: TypicalStep, head: TypicalStep) -> Callable[[Key], bool]:
    """Return which operations one side fuses, so that their number says little of the work.

    It fuses pointwise operations if it has all fused kernels of the other, and more. Fused attention counts
    with them. It fuses the optimizer if that runs far fewer kernels, and elementwise ones if these are fewer.
    """
    ours, theirs = (
        {key.name for key in step.ran if _is_compiled(key) or any(part in key.name for part in _FUSED)}
        for step in (base, head)
    )
    has_attention, has_update = any(_attention(base, head)), any(_optimizer(base, head))
    has_pointwise = has_attention or ours < theirs or theirs < ours
    fewer = [
        sum_work(head, is_meant).count - sum_work(base, is_meant).count
        for is_meant in (_is_optimizing, _is_elementwise)
    ]
    has_parts = has_update and fewer[0] * fewer[1] > 0

    def is_fused(key: Key) -> bool:
        return (
            (has_pointwise and _is_pointwise(key))
            or (has_attention and _is_attention(key))
            or (has_update and _is_optimizing(key))
            or (has_parts and _is_elementwise(key))
        )

    return is_fused


def _is_pointwise(key: Key) -> bool:
    return key.category in POINTWISE


def _explain_precision(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain categories of kernels that run in another precision, together where they changed alike."""
    sides = [_list_precisions(step) for step in (base, head)]
    changes: dict[tuple[tuple[str, ...], tuple[str, ...]], list[ComputeCategory]] = defaultdict(list)
    for category in _PRECISE:
        ours, theirs = (side.get(category, ()) for side in sides)
        if ours and theirs and ours != theirs:
            changes[ours, theirs].append(category)
    for (ours, theirs), categories in changes.items():
        lows = [not _LOW_PRECISIONS.isdisjoint(side) for side in (ours, theirs)]
        code = (
            "precision-changed" if lows[0] == lows[1] else f"low-precision-{'lost' if lows[0] else 'gained'}"
        )
        names = [_WORDS.get(category, str(category)) for category in categories]
        listed = f"{', '.join(names[:-1])} and {names[-1]}" if names[1:] else names[0]
        causes = tuple(f"compute/{category}" for category in categories)
        delta_ns = sum(head.causes.get(cause, 0) - base.causes.get(cause, 0) for cause in causes)
        text = f"{listed[0].upper()}{listed[1:]} went from {' and '.join(ours)} to {' and '.join(theirs)}"
        yield Explanation(code, text, delta_ns, causes, theirs)


def _list_precisions(step: TypicalStep) -> dict[str, tuple[str, ...]]:
    """Return in which precisions most of the work of each category runs, by its kernels' names."""
    keys = [key for key in step.ran if key.category in _PRECISE]
    names = pl.DataFrame({"name": range(len(keys)), "text": [key.name for key in keys]})
    inferred = infer_precisions(names)["precision"].to_list() if keys else []
    sums: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for key, precision in zip(keys, inferred, strict=True):
        sums[key.category][key.precision or precision] += step.ran[key].work_ns
    return {category: _name_main(parts) for category, parts in sums.items()}


def _name_main(parts: dict[str, Fraction]) -> tuple[str, ...]:
    """Name the precisions that have a large part of the work, the largest first; empty if unknown."""
    whole = sum(parts.values(), Fraction())
    main = [name for name, part in parts.items() if whole and part >= MAIN_PRECISION_SHARE * whole]
    if not main or Precision.UNKNOWN in main:
        return ()
    return tuple(sorted(main, key=lambda name: (-parts[name], name)))


def _attention(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain attention of one side that runs in more fused kernels, where the other has softmax kernels."""
    fused, parts = (
        [sum_work(step, is_meant).count for step in (base, head)] for is_meant in (_is_attention, _is_softmax)
    )
    is_fused = fused[1] > fused[0]
    split, joined = parts if is_fused else parts[::-1]
    more = abs(fused[1] - fused[0])
    if (
        not more
        or split <= FEWER_KERNELS_RATIO * joined
        or more > _MOST_FUSED_OF_A_SOFTMAX * (split - joined)
    ):
        return
    text = (
        f"Attention runs {float(fused[0]):.0f} → {float(fused[1]):.0f} fused kernels per step, with"
        f" {float(parts[0]):.0f} → {float(parts[1]):.0f} softmax kernels"
    )
    causes = tuple(f"compute/{category}" for category in (*POINTWISE, ComputeCategory.ATTENTION))
    delta_ns = _owned_ns(head, _is_of_attention) - _owned_ns(base, _is_of_attention)
    yield Explanation(f"attention-{'fused' if is_fused else 'split'}", text, delta_ns, causes)


def _is_attention(key: Key) -> bool:
    return key.category == ComputeCategory.ATTENTION


def _is_softmax(key: Key) -> bool:
    return _SOFTMAX.search(key.name) is not None and _is_pointwise(key)


def _is_of_attention(key: Key) -> bool:
    return _is_attention(key) or _is_pointwise(key)


def _optimizer(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain an optimizer that runs far fewer or more kernels: fused, or by tensor."""
    counts = [sum_work(step, _is_optimizing).count for step in (base, head)]
    less, more = sorted(counts)
    if not less or more < FEWER_KERNELS_RATIO * less:
        return
    delta_ns = _owned_ns(head, _is_optimizing) - _owned_ns(base, _is_optimizing)
    is_fused = counts[1] < counts[0]
    text = (
        f"The optimizer runs {float(counts[0]):.0f} → {float(counts[1]):.0f} kernels per step:"
        f" {'fused into fewer' if is_fused else 'fused no more'}"
    )
    yield Explanation(f"optimizer-{'fused' if is_fused else 'split'}", text, delta_ns, (COMPUTE_OPTIMIZER,))


def _is_optimizing(key: Key) -> bool:
    in_range = _OPTIMIZER_RANGE.search(key.path) is not None
    return key.category == ComputeCategory.OPTIMIZER or (in_range and _is_pointwise(key))


def _preprocessing(base: TypicalStep, head: TypicalStep) -> Iterator[Explanation]:
    """Explain input that is prepared on the GPU on one side alone, with what became of loading it."""
    runs = [bool(sum_work(step, _is_preprocessing).count) for step in (base, head)]
    if runs[0] == runs[1]:
        return
    causes = (*_LOADING, f"compute/{ComputeCategory.PREPROCESSING}")
    changes = [(cause, head.causes.get(cause, 0) - base.causes.get(cause, 0)) for cause in causes]
    least_ns = SHOWN_JOINT_SHARE * base.step_ns
    parts = [
        f"{describe_cause(cause)} {signed_duration(change_ns)}"
        for cause, change_ns in changes
        if abs(change_ns) >= least_ns
    ]
    first = max(
        (key for key in (head if runs[1] else base).ran if _is_preprocessing(key)),
        key=lambda key: ((head if runs[1] else base).ran[key].work_ns, key.name),
    )
    library = "DALI" if "dali" in first.name.lower() else shorten_kernel(first.name)
    text = f"Input is prepared on the GPU ({library}) in {'head' if runs[1] else 'base'} only"
    text += f": {', '.join(parts)}" if parts else ""
    code = f"gpu-preprocessing-{'new' if runs[1] else 'gone'}"
    yield Explanation(code, text, sum(change_ns for _, change_ns in changes), causes)


def _is_preprocessing(key: Key) -> bool:
    return key.category == ComputeCategory.PREPROCESSING


def _copies(
    base: TypicalStep, head: TypicalStep, explained: tuple[CopyDirection, ...]
) -> Iterator[Explanation]:
    """Explain copies that are fewer or more, or that move other amounts, where the step shows it."""
    for direction, what in _COPIES.items():

        def is_meant(key: Key, direction: CopyDirection = direction) -> bool:
            return key.category == direction

        ours, theirs = (sum_work(step, is_meant) for step in (base, head))
        delta_ns = _owned_ns(head, is_meant) - _owned_ns(base, is_meant)
        if direction in explained or abs(delta_ns) < EXPLAINED_SHARE * base.step_ns:
            continue
        if not (_is_other(ours.count, theirs.count) or _is_other(ours.bytes, theirs.bytes)):
            continue
        amounts = ""
        if ours.bytes is not None and theirs.bytes is not None:
            amounts = f" ({size(round(ours.bytes))} → {size(round(theirs.bytes))})"
        code = f"{direction}-{'more' if _is_more(ours, theirs) else 'fewer'}"
        before, after = _write_kernel_count(ours.count), _write_kernel_count(theirs.count)
        text = (
            f"{what}: {before} per step as before"
            if before == after
            else f"{what} went from {before} to {after} per step"
        )
        text += amounts
        yield Explanation(code, text, delta_ns, _causes_of(is_meant, base, head))


def _is_more(ours: OperationWork, theirs: OperationWork) -> bool:
    if _is_other(ours.count, theirs.count):
        return theirs.count > ours.count
    return (theirs.bytes or 0) > (ours.bytes or 0)


def _is_other(ours: Fraction | None, theirs: Fraction | None) -> bool:
    if ours is None or theirs is None:
        return False
    less, more = sorted((ours, theirs))
    return more > OTHER_COPIES_RATIO * less


def _write_kernel_count(count: Fraction) -> str:
    return f"{float(count):,.0f}" if count >= 10 or count == int(count) else f"{float(count):.1f}"


def _causes_of(is_meant: Callable[[Key], bool], *steps: TypicalStep) -> tuple[str, ...]:
    """Return the causes of the memory wall that some operations are attributed."""
    return tuple(
        sorted(
            {
                cause
                for step in steps
                for cause, key in step.owned
                if is_meant(key) and find_wall(cause) == Wall.MEMORY
            }
        )
    )


def sum_work(step: TypicalStep, is_meant: Callable[[Key], bool]) -> OperationWork:
    """Return what some kinds of operations did together in the typical step."""
    return total_work([ran for key, ran in step.ran.items() if is_meant(key)])


def _owned_ns(step: TypicalStep, is_meant: Callable[[Key], bool]) -> int:
    return sum(
        time_ns
        for (cause, key), time_ns in step.owned.items()
        if key.category != _HOST and find_wall(cause) != Wall.HOST and is_meant(key)
    )

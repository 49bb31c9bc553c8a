"""What every command begins with: an export is read, its operations are named, and its time is divided."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from wallscope.attribution.attribute import collect_evidence, identify_operations
from wallscope.attribution.prepared import Prepared, Trace
from wallscope.attribution.totals import measure_budgets
from wallscope.kineto.any_capture import read_any_capture
from wallscope.model.capture import Capture, Options, Progress
from wallscope.process_tuning import release_memory, run_both
from wallscope.trace.dependencies import resolve_dependencies
from wallscope.trace.kernel_classes import (
    KernelRule,
    classify_kernels,
    classify_operations,
    load_kernel_rules,
)
from wallscope.trace.parallel_axes import RangePaths
from wallscope.trace.ranges import RangeTree, nest_ranges, project_ranges
from wallscope.trace.step_markers import check_pattern, label_ranges
from wallscope.trace.steps import select_ranks, select_windows, split_steps
from wallscope.trace.thread_timeline import HostCalls
from wallscope.trace.unrecognized import find_communication_evidence, infer_communication

if TYPE_CHECKING:
    from wallscope.summary.lookups import GapLookup


def prepare(path: Path, options: Options, progress: Progress, *, keeps_slices: bool = False) -> Prepared:
    """Read an export as far as its time can be accounted for: every command begins with this.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    trace = _read_whole(path, options, progress)
    release_memory()
    progress("classifying operations by purpose")
    ranges, capture, operations = trace.range_tree, trace.capture, trace.operations
    around = RangePaths(trace.projected, ranges.tree, ranges.paths, ranges.names)
    facts = identify_operations(operations, trace.steps.windows, capture, around, options.streams)
    evidence = collect_evidence(
        operations,
        capture,
        trace.waits,
        facts,
        ranges,
        trace.projected,
        may_communicate=trace.may_communicate is not None,
        has_steps=trace.steps.unit == "step",
        is_undivided=trace.steps.kind == "whole-trace",
    )
    release_memory()
    return Prepared(trace, facts, evidence, keeps_slices).restrict_to_selection()


def read_trace(path: Path, options: Options, progress: Progress) -> Trace:
    """Read an export, name its operations, find the range of each, and divide the capture into windows.

    Steps are searched in the whole capture, or in the selected ranks alone where the steps of the others are
    none of theirs; then the windows are selected. A rank without a selected window is left out.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    return _read_whole(path, options, progress).restrict_to_selection()


def _read_whole(path: Path, options: Options, progress: Progress) -> Trace:
    """Return the trace of all ranks."""
    rules = load_kernel_rules(options.kernels)
    capture = read_any_capture(path, progress, options.reader, with_python=options.python_functions)

    divided, waits = run_both(
        lambda: _begin_trace(capture, rules, options, progress), lambda: resolve_dependencies(capture)
    )
    return divided(waits=waits)


def _begin_trace(
    capture: Capture, rules: tuple[KernelRule, ...], options: Options, progress: Progress
) -> partial[Trace]:
    """Return the trace of a capture but for its dependencies, which nothing of this needs."""
    progress("naming kernels")
    kinds = classify_kernels(capture.names, rules)
    operations = classify_operations(capture.operations, capture.copies, kinds)
    progress("nesting ranges, resolving dependencies")
    tree, paths, names = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    operations = infer_communication(operations, capture, tree)
    may_communicate = find_communication_evidence(operations, capture)
    ranges = label_ranges(tree, capture.range_names, capture.threads, paths, names)
    check_pattern(options.step_range, ranges)
    projected = project_ranges(capture.operations, capture.calls, tree, capture.threads)
    progress("finding steps")
    ranks, host = capture.ranks, HostCalls(capture.calls, capture.call_names, capture.threads)
    shown = select_ranks(ranks, options.selection)["rank_id"]
    divide = partial(split_steps, host=host, ranges=ranges, pattern=options.step_range, shown=shown)
    steps = divide(operations, ranks)
    is_shown = pl.col("rank_id").is_in(shown.implode())
    if len(shown) < len(ranks) and not steps.marks_any(shown):
        operations, ranks = operations.filter(is_shown), ranks.filter(is_shown)
        steps = divide(operations, ranks)
    own_windows = select_windows(steps.windows.filter(is_shown), options.selection)
    windows = measure_budgets(operations, select_windows(steps.windows, options.selection))
    return partial(
        Trace,
        capture=replace(capture, ranks=ranks.filter(pl.col("rank_id").is_in(windows["rank_id"].implode()))),
        operations=operations,
        steps=steps,
        windows=windows,
        projected=projected,
        range_tree=RangeTree(ranges, paths, names),
        selection=options.selection,
        shown=frozenset(own_windows["rank_id"].unique()),
        left_out=len(shown) - own_windows["rank_id"].n_unique(),
        may_communicate=may_communicate,
    )


def look_up_gaps(path: Path, options: Options, progress: Progress) -> "GapLookup":
    """Read one export and attribute its time, ready to be asked for gaps and moments.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    from wallscope.summary.lookups import GapLookup  # noqa: PLC0415  # for one command

    prepared = prepare(path, options, progress)
    progress("attributing time to causes")
    trace = prepared.trace
    return GapLookup(trace, prepared.slices())


def tabulate_steps(path: Path, options: Options, progress: Progress) -> pl.DataFrame:
    """Read one export and list the steps of all ranks with their device budget and walls.

    Raises:
        WallscopeError: one of its children, each with a line for the user.
    """
    from wallscope.summary.tables import build_step_table  # noqa: PLC0415  # for tables alone

    prepared = prepare(path, options, progress)
    progress("attributing time to causes")
    return build_step_table(prepared.trace, prepared.slices())

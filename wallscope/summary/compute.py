"""Summarize the compute of a rank: kernel categories, use of the GPU, and throughput."""

from collections.abc import Collection, Iterator

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.attribution.totals import CATEGORIES, TypicalWork
from wallscope.columns import Flags, Rows, as_integers, find_places, order_by_group, sum_by_group
from wallscope.model.analysis import Anchor, ComputeWork, KernelWork, Rank
from wallscope.model.capture import Capture, Gpu
from wallscope.model.cause_catalogue import UNATTRIBUTED_PROFILER
from wallscope.model.diagnosis import LoggedSteps, Peak, StepFacts, Throughput, WallInflation
from wallscope.model.enums import Backend, Collective, ComputeCategory, OperationClass, Precision, Wall
from wallscope.model.rank_summaries import (
    SPELLED,
    ComputeDetails,
    GpuMetrics,
    LaunchShapes,
    MetricMean,
    PrecisionWork,
    SmallMultiplications,
)
from wallscope.summary.kernel_work import (
    CountedFlops,
    count_category_flops,
    count_step_flops,
    list_kernel_rates,
    list_leading_kernels,
    sum_category_precisions,
)
from wallscope.thresholds.causes import (
    FEWEST_SMALL_RUN_COUNT,
    KNOWN_PRECISION_SHARE,
    LEAST_COUNTED_SHARE,
    LOW_OCCUPANCY_SHARE,
    SMALL_GEMM_NS,
)
from wallscope.thresholds.verdict import MATERIAL_SHARE
from wallscope.trace.gpu_limits import estimate_occupancy, find_theoretical
from wallscope.trace.gpu_peaks import find_peak
from wallscope.trace.intervals import Spans, covered_ns, order_spans, union
from wallscope.trace.kernel_classes import infer_precisions, mark_training
from wallscope.trace.names import TextMemo, mark_changes
from wallscope.trace.unrecognized import mark_unknown_kernels


def sum_compute_work(work: TypicalWork, kernel_flops: pl.DataFrame | None = None) -> tuple[ComputeWork, ...]:
    """Return durations added up by category in the typical step, the largest first: work, not time."""
    rows = work.rows_of(OperationClass.COMPUTE)
    category = work.columns.category[rows]
    done = count_category_flops(work, kernel_flops)
    work_ns = sum_by_group(category, work.columns.inside_ns[rows], len(CATEGORIES))
    begun = np.bincount(category[work.columns.begins[rows]], minlength=len(CATEGORIES))
    all_ns = int(work_ns.sum())
    listed = [(-int(work_ns[place]), CATEGORIES[place], int(begun[place])) for place in np.unique(category)]
    return tuple(
        ComputeWork(
            ComputeCategory(category),
            work.mean(-negative_ns),
            -negative_ns / all_ns if all_ns else 0.0,
            work.mean(count),
            _rate(done.get(category)),
            None if category not in done else done[category].share,
        )
        for negative_ns, category, count in sorted(listed)
    )


def _rate(counted: CountedFlops | None) -> float | None:
    return counted.flops * 1e9 / counted.work_ns if counted is not None and counted.work_ns else None


def find_training_kernels(work: TypicalWork, names: pl.DataFrame) -> bool:
    """Return whether kernels of a backward pass or of an optimizer run (`NAMES`)."""
    used = np.unique(work.columns.name[work.rows_of(OperationClass.COMPUTE)])
    return bool(mark_training(names["text"][find_places(used[used >= 0], names["name"].to_numpy())]).any())


def find_unmatched_kernels(work: TypicalWork, names: pl.DataFrame, step_ns: int) -> tuple[KernelWork, ...]:
    """Return unrecognized kernels whose work exceeds 1 % of the typical step, the largest first."""
    if not step_ns:
        return ()
    rows = np.flatnonzero(mark_unknown_kernels(work.operations))
    name = work.columns.name[rows]
    work_ns = sum_by_group(name, work.columns.inside_ns[rows], len(names))
    begun = np.bincount(name[work.columns.begins[rows]], minlength=len(names))
    texts = names["text"]
    listed = [
        (-int(work_ns[place]), KernelWork(texts[place], work.mean(int(begun[place])), mean_ns, share))
        for place in np.flatnonzero(work_ns).tolist()
        if (share := (mean_ns := work.mean(int(work_ns[place]))) / step_ns) > MATERIAL_SHARE
    ]
    return tuple(kernel for _, kernel in sorted(listed, key=lambda entry: (entry[0], entry[1].name)))


_MANY = np.iinfo(np.int64).max
_GEMM, _GROUPED, _ATTENTION, _ELEMENTWISE, _QUANTIZE = (
    CATEGORIES.index(category)
    for category in (
        ComputeCategory.GEMM,
        ComputeCategory.GROUPED_GEMM,
        ComputeCategory.ATTENTION,
        ComputeCategory.ELEMENTWISE,
        ComputeCategory.QUANTIZE,
    )
)
_IS_MULTIPLYING, _IS_MADE_FOR_LOW_OCCUPANCY, _IS_EXPERTS = (
    np.isin(CATEGORIES, chosen)
    for chosen in (
        (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM),
        (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.ATTENTION),
        (ComputeCategory.GROUPED_GEMM, Collective.ALL_TO_ALL, Collective.DISPATCH, Collective.COMBINE),
    )
)
_EXPERT_BACKENDS = {Backend.DEEP_EP, Backend.HYBRID_EP, Backend.NCCL_EP}
_UNFUSED, _CASTS, _FUSED_PERMUTE, _LOOSE_PERMUTE, _FUSED_ROUTER, _LOOSE_ROUTER = (1 << n for n in range(6))
_PATTERNS = {
    _UNFUSED: r"at::native::|EigenMetaKernel|op_generic_tensor|op_tensor|cudnn::ops::|julia_\w*broadcast",
    _CASTS: r"(bfloat16|float16|float8\w*?)(tofloat32)?_copy_kernel"
    r"|copy_kernel.*(LoadWithCast|StoreWithCast)|(LoadWithCast|StoreWithCast).*copy_kernel"
    r"|\b(cast|convert)_kernel",
    _FUSED_PERMUTE: r"(?i)_?(un)?permute_(kernel|with_mask|bwd|rows)|moe_(un)?permute|_row_id_map"
    r"|sort_chunks_by|hybrid_ep::\w*permute",
    _LOOSE_PERMUTE: r"(?i)index_?select|index_?put|index_elementwise|_scatter_gather"
    r"|masked_?(scatter|select)|nonzero|DeviceSelect",
    _FUSED_ROUTER: r"(?i)fused_topk|fused_score_for|fused_moe_aux_loss|topk_?softmax|topkGating|grouped_topk",
    _LOOSE_ROUTER: r"gatherTopK|radixSelect|bitonicSort|sbtopk|mbtopk|radixtopk",
}
"""Properties that a kernel name can show, one bit each."""
_OF_EXPERTS = _FUSED_PERMUTE | _FUSED_ROUTER


def _match_marks(texts: pl.Series) -> npt.NDArray[np.int64]:
    """Return the properties of kernel names: the sum of the bits whose patterns match."""
    marks = np.zeros(len(texts), np.int64)
    for mark, pattern in _PATTERNS.items():
        marks[texts.str.contains(pattern).to_numpy()] |= mark
    return marks


_MARKED = TextMemo(_match_marks)


def summarize_compute(work: TypicalWork, capture: Capture, gpu: Gpu | None) -> ComputeDetails | None:
    """Return what the compute kernels of one rank consist of; `None` if none ran in its typical step.

    `gpu` is the GPU of the rank.
    """
    rows = work.rows_of(OperationClass.COMPUTE)
    total_ns = work.total_ns(rows)
    if not total_ns:
        return None
    columns, texts = work.columns, capture.names["text"].to_list()
    precision_of_name = as_integers(infer_precisions(capture.names)["precision"]).astype(np.int64)
    marks, category = _MARKED.of(capture.names["text"]), columns.category[rows]
    is_marked = marks[columns.name[rows]]
    counted = count_step_flops(work, capture.kernel_flops)
    is_elementwise, is_grouped = category == _ELEMENTWISE, category == _GROUPED
    ran = np.flatnonzero(np.bincount(columns.name[columns.name >= 0], minlength=len(texts)))
    has_experts = bool((marks[ran] & _OF_EXPERTS).any()) or _has_experts(work)

    def share(which: Flags) -> float:
        return work.total_ns(rows[which]) / total_ns

    def is_fused(fused: int, loose: int) -> bool | None:
        """Return whether a dispatcher part is one kernel; single operations count only with experts."""
        if (is_marked & fused).any():
            return True
        return False if has_experts and (is_marked & loose).any() else None

    return ComputeDetails(
        work_ns=work.mean(total_ns),
        precisions=_sum_by_precision(work, rows, precision_of_name),
        grouped_kernels=work.mean(int(columns.begins[rows[is_grouped]].sum())),
        grouped_share=share(is_grouped),
        small_multiplications=_small_multiplications(work, rows, total_ns),
        unfused_elementwise_share=share(is_elementwise & (is_marked & _UNFUSED > 0)),
        quantize_share=share(category == _QUANTIZE),
        cast_share=share(is_elementwise & (is_marked & _CASTS > 0)),
        permute_fused=is_fused(_FUSED_PERMUTE, _LOOSE_PERMUTE),
        router_fused=is_fused(_FUSED_ROUTER, _LOOSE_ROUTER),
        launch_shapes=_launch_shapes(work, rows, capture, gpu),
        category_precisions=sum_category_precisions(work, rows, precision_of_name),
        leading_kernels=list_leading_kernels(work, rows, capture.names, precision_of_name),
        flops=counted.flops if counted is not None and counted.share == 1 else None,
        known_flops=None if counted is None else counted.flops,
        flops_share=None if counted is None else counted.share,
        kernel_rates=list_kernel_rates(work, capture.kernel_flops, capture.names, gpu),
    )


def _sum_by_precision(work: TypicalWork, computing: Rows, of_name: Rows) -> tuple[PrecisionWork, ...]:
    """Return the work of GEMMs by precision, including unknown, the most work first.

    `of_name` is the index in `Precision` of each kernel name.
    """
    columns = work.columns
    rows = computing[_IS_MULTIPLYING[columns.category[computing]]]
    each = list(Precision)
    precision = of_name[columns.name[rows]]
    work_ns = sum_by_group(precision, columns.inside_ns[rows], len(each))
    begun = np.bincount(precision[columns.begins[rows]], minlength=len(each))
    all_ns = int(work_ns.sum())
    return tuple(
        PrecisionWork(
            each[place],
            work.mean(-negative_ns),
            -negative_ns / all_ns if all_ns else 0.0,
            work.mean(int(begun[place])),
        )
        for negative_ns, place in sorted((-int(work_ns[place]), place) for place in np.unique(precision))
    )


def _small_multiplications(work: TypicalWork, computing: Rows, total_ns: int) -> SmallMultiplications:
    """Return runs of consecutive short kernels with one name on their stream, sorted by start."""
    columns, stream = work.columns, work.operations["stream"].to_numpy()
    begun = computing[columns.begins[computing]]
    rows = begun[order_by_group(stream[begun])]
    is_small = (columns.category[rows] == _GEMM) & (
        columns.end_ns[rows] - columns.start_ns[rows] < SMALL_GEMM_NS
    )
    run = np.cumsum(mark_changes(stream[rows], columns.name[rows], is_small)) - 1
    count = np.bincount(run[is_small], minlength=rows.size)
    runs = count >= FEWEST_SMALL_RUN_COUNT
    work_ns = int(columns.inside_ns[rows[is_small & runs[run]]].sum())
    return SmallMultiplications(
        work.mean(int(runs.sum())), work.mean(int(count[runs].sum())), work.mean(work_ns), work_ns / total_ns
    )


def _has_experts(work: TypicalWork) -> bool:
    """Return whether only models with experts need this library or category."""
    if _IS_EXPERTS[work.columns.category].any():
        return True
    return not _EXPERT_BACKENDS.isdisjoint(work.operations["backend"].unique().to_list())


def _launch_shapes(work: TypicalWork, computing: Rows, capture: Capture, gpu: Gpu | None) -> LaunchShapes:
    sm_count, kernels = None if gpu is None else gpu.sm_count, capture.kernels
    columns, total_ns = work.columns, work.total_ns(computing)
    place = find_places(columns.op[computing], kernels["op"].to_numpy())
    rows, own = computing[place >= 0], kernels[place[place >= 0]]
    recorded_per_sm, achieved = _look_up_occupancy(capture.kernel_occupancy, own)
    fitting = estimate_occupancy(own, None if gpu is None else gpu.architecture, sm_count)
    occupancy, tail = fitting.occupancy, fitting.tail
    occupancy = np.where(np.isnan(occupancy), find_theoretical(own, recorded_per_sm, achieved), occupancy)
    inside_ns, is_known = columns.inside_ns[rows], ~np.isnan(occupancy)
    is_other = ~_IS_MADE_FOR_LOW_OCCUPANCY[columns.category[rows]]
    is_low = is_other & (occupancy < LOW_OCCUPANCY_SHARE)
    tail_ns = np.nan_to_num(tail[is_known]) * inside_ns[is_known]
    has_tails = not np.isnan(tail[is_known]).all()
    blocks = as_integers(own["blocks"], _MANY)
    per_sm: npt.NDArray[np.float64] = (
        recorded_per_sm if sm_count is None else np.where(blocks == _MANY, np.nan, blocks / sm_count)
    )
    has_grids = not np.isnan(per_sm).all()
    is_small = per_sm < 1
    small = rows[is_small]
    unfilled_ns = inside_ns[is_small] * (1 - per_sm[is_small])

    def average(shares: npt.NDArray[np.float64]) -> float | None:
        """Return the mean by work of the known shares, without GEMM and attention."""
        counted = is_other & ~np.isnan(shares)
        counted_ns = int(inside_ns[counted].sum())
        return _total(shares[counted] * inside_ns[counted]) / counted_ns if counted_ns else None

    return LaunchShapes(
        known_share=int(inside_ns[is_known].sum()) / total_ns,
        small_grid_kernels=work.mean(int(columns.begins[small].sum())) if has_grids else None,
        small_grid_share=work.total_ns(small) / total_ns if has_grids else None,
        tail_share=_total(tail_ns) / total_ns if has_tails else None,
        occupancy=average(occupancy),
        low_occupancy_share=int(inside_ns[is_low].sum()) / total_ns if is_known.any() else None,
        unfilled_share=_total(unfilled_ns) / total_ns if has_grids else None,
        achieved_occupancy=average(achieved),
    )


def _look_up_occupancy(
    recorded: pl.DataFrame | None, kernels: pl.DataFrame
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return blocks for each multiprocessor, and occupancy, as the profiler recorded them (`KERNELS`)."""
    if recorded is None:
        return np.full(len(kernels), np.nan), np.full(len(kernels), np.nan)
    found = kernels.select("op").join(recorded, on="op", how="left", maintain_order="left")
    return found["blocks_per_sm"].to_numpy(), found["achieved"].to_numpy()


def _total(values: npt.NDArray[np.float64]) -> float:
    """Sum in the order that polars uses, so that the last digits equal those of other sums of shares."""
    return float(pl.Series(values).sum())


_PERCENT = 100


def average_gpu_metrics(steps: Spans, capture: Capture, rank_id: int, gpu: int | None) -> GpuMetrics | None:
    """Return the GPU metrics sampled on a rank's GPU (Nsight's id); `None` without samples in its steps."""
    found = select_gpu_samples(steps, capture, gpu)
    if found is None:
        return None
    gpu, placed = found
    by_name = {
        text: (mean, count)
        for text, mean, count in placed.group_by("text")
        .agg(pl.col("value").mean(), count=pl.len())
        .iter_rows()
    }
    moments = placed.select("begin_ns", "at_ns").unique("at_ns").sort("at_ns")
    spans = Spans(moments["begin_ns"].to_numpy(), moments["at_ns"].to_numpy())
    return GpuMetrics(
        gpu=gpu,
        samples=len(moments),
        exclusive_share=_exclusive_share(spans, capture, rank_id, gpu),
        means=tuple(
            MetricMean(metric, by_name[text][0] / _PERCENT, by_name[text][1])
            for text, metric in SPELLED.items()
            if text in by_name
        ),
    )


def select_gpu_samples(steps: Spans, capture: Capture, gpu: int | None) -> tuple[int, pl.DataFrame] | None:
    """Return a GPU (Nsight's id), and its samples of known metrics with `text` and `begin_ns` in the steps.

    If the id is unknown, an export of a single GPU is unambiguous. `None` without samples in the steps.
    """
    gpu = find_sampled_gpu(capture, gpu)
    if gpu is None:
        return None
    placed = _select_samples_inside(list_gpu_samples(capture, gpu), steps)
    return None if placed.is_empty() else (gpu, placed)


def find_sampled_gpu(capture: Capture, gpu: int | None) -> int | None:
    """Return the GPU of a rank (Nsight's id) whose metrics may be sampled; `None` if none are, or unknown."""
    if gpu is None and len(capture.export.gpus) == 1:
        gpu = capture.export.gpus[0].id
    return None if capture.samples.is_empty() else gpu


def list_gpu_samples(capture: Capture, gpu: int, wanted: Collection[str] = SPELLED) -> pl.DataFrame:
    """Return the samples of some metrics of a GPU by their names: `text`, `value`, `begin_ns`, `at_ns`.

    A sample begins at the end of the previous one, but lasts at most the usual period. After a hole in the
    sampling it covers only its own period.
    """
    samples = capture.samples.filter((pl.col("gpu") == gpu) & pl.col("at_ns").is_not_null()).join(
        capture.metric_names, left_on="metric", right_on="name"
    )
    own = samples.filter(pl.col("text").is_in(list(wanted)))
    at_ns = own["at_ns"].unique().sort()
    if len(at_ns) < 2:
        return own.clear().with_columns(begin_ns=pl.lit(0, pl.Int64))
    lasted_ns = np.diff(at_ns.to_numpy())
    usual_ns = int(np.median(lasted_ns))
    begin_ns = at_ns.to_numpy() - np.minimum(np.append(usual_ns, lasted_ns), usual_ns)
    return own.join(pl.DataFrame({"at_ns": at_ns, "begin_ns": begin_ns}), on="at_ns")


def _select_samples_inside(samples: pl.DataFrame, steps: Spans) -> pl.DataFrame:
    """Return the samples that lie completely in one step."""
    begin_ns, at_ns = samples["begin_ns"].to_numpy(), samples["at_ns"].to_numpy()
    step = np.searchsorted(steps.start_ns, begin_ns, side="right") - 1
    return samples.filter(pl.Series((step >= 0) & (at_ns <= steps.end_ns[step])))


def _exclusive_share(samples: Spans, capture: Capture, rank_id: int, gpu: int) -> float | None:
    """Return the share of samples without operations of other ranks on the GPU."""
    gpu_of_rank = capture.ranks.select("rank_id", on="gpu")
    others = capture.operations.filter(pl.col("rank_id") != rank_id).join(
        gpu_of_rank, on="rank_id", how="left"
    )
    shared = _touched(samples, others.filter(pl.col("on") == gpu))
    unclear = _touched(samples, others.filter(pl.col("on").is_null()))
    if bool((unclear & ~shared).any()):
        return None
    return 1 - float(shared.mean())


def _touched(samples: Spans, operations: pl.DataFrame) -> Flags:
    """Return whether any of the operations ran during each sample."""
    busy = union(order_spans(operations["start_ns"].to_numpy(), operations["end_ns"].to_numpy()))
    is_touched: Flags = covered_ns(busy, samples) > 0
    return is_touched


def measure_throughput(rank: Rank, anchor: Anchor, facts: StepFacts, gpu: Gpu | None) -> Throughput | None:
    """Return the throughput of one rank; `None` if its inputs are missing or windows may not be steps.

    `gpu` is the GPU of the rank.
    """
    step_ns = rank.typical.step_ns
    details, flops, share = rank.compute_details, facts.flops, None
    if flops is None and details is not None and (details.flops_share or 0) >= LEAST_COUNTED_SHARE:
        flops, share = details.known_flops, details.flops_share
    if (facts == StepFacts() and flops is None) or anchor.unit != "step" or step_ns == 0:
        return None
    per_s = 1e9 / step_ns
    flops_per_s = None if flops is None else flops * per_s
    logged = facts.logged
    logged_flops_per_s = None if logged is None else logged.flops_per_s
    is_without_flops = flops_per_s is None and logged_flops_per_s is None
    most = None if is_without_flops else find_leading_peak(details, gpu)
    return Throughput(
        step_ns=step_ns,
        unprofiled_step_ns=facts.unprofiled_step_ns,
        perturbation=step_ns / facts.unprofiled_step_ns if facts.unprofiled_step_ns else None,
        tokens_per_s=None if facts.tokens is None else facts.tokens * per_s,
        flops_per_s=flops_per_s,
        peak=most,
        mfu=flops_per_s / most.flops_per_s if flops_per_s is not None and most is not None else None,
        flops_source=None if flops is None else "shapes" if facts.flops is None else "user",
        flops_share=share,
        logged=logged,
        logged_mfu=_find_logged_mfu(logged, most),
        inflation=tuple(_list_inflation(rank, facts.unprofiled_step_ns)),
    )


def _find_logged_mfu(logged: LoggedSteps | None, most: Peak | None) -> float | None:
    """Return the MFU that a log states, else its FLOPs as a share of the peak of the GPU."""
    if logged is None or logged.mfu is not None:
        return None if logged is None else logged.mfu
    return None if logged.flops_per_s is None or most is None else logged.flops_per_s / most.flops_per_s


def _list_inflation(rank: Rank, unprofiled_step_ns: int | None) -> Iterator[WallInflation]:
    """Say of each wall whether the capture inflates it; nothing without a usable unprofiled step.

    The device times its kernels, so compute is as long without the profiler. Host time beyond the unprofiled
    step is the profiler's, under a cause of its own. What host time does not explain may be in other walls,
    which have calls of the host and waits for peers in them.
    """
    typical = rank.typical
    if unprofiled_step_ns is None or unprofiled_step_ns < typical.budget.compute:
        return
    longer_ns = max(typical.step_ns - unprofiled_step_ns, 0)
    if longer_ns < MATERIAL_SHARE * typical.step_ns:
        longer_ns = 0
    moved_ns = sum(one.typical_ns for one in rank.causes if one.cause == UNATTRIBUTED_PROFILER)
    host_ns = min(moved_ns, longer_ns)
    for wall, captured_ns in zip(Wall, typical.walls.parts(), strict=True):
        if wall is Wall.COMPUTE or not longer_ns:
            yield WallInflation(wall, "no", 0)
        elif wall is Wall.HOST:
            yield WallInflation(wall, "yes" if host_ns else "no", host_ns)
        else:
            own_ns = captured_ns - moved_ns if wall is Wall.UNATTRIBUTED else captured_ns
            most_ns = max(min(own_ns, longer_ns - host_ns), 0)
            yield WallInflation(wall, "possible" if most_ns else "no", most_ns)


def find_leading_peak(details: ComputeDetails | None, gpu: Gpu | None) -> Peak | None:
    """Return the peak rate of the precision that most GEMM work uses, if kernel names show it."""
    if details is None or gpu is None:
        return None
    first = next(iter(details.precisions), None)
    if first is None or first.precision is Precision.UNKNOWN or first.share < KNOWN_PRECISION_SHARE:
        return None
    return find_peak(gpu, first.precision)

"""What is inside the compute of a rank: precision, grouping, fusion, and how grids fit the GPU.

All of it is work, added-up durations of compute kernels in the typical step, and shares of that work.
"""

import polars as pl

from wallscope.model.capture import Capture, Gpu
from wallscope.model.compute import ComputeDetails, LaunchShapes, PrecisionWork, SmallMultiplications
from wallscope.model.kinds import Backend, Collective, ComputeCategory, OperationClass, Precision
from wallscope.timeline.occupancy import with_occupancy
from wallscope.timeline.precision import precisions
from wallscope.walls.typical import TypicalWork

_SMALL_NS = 50_000
_FEWEST_IN_A_RUN = 4
_LOW_OCCUPANCY = 0.25
_GEMM, _GROUPED = str(ComputeCategory.GEMM), str(ComputeCategory.GROUPED_GEMM)
_MADE_FOR_LOW_OCCUPANCY = [_GEMM, _GROUPED, str(ComputeCategory.ATTENTION)]
_EXPERT_BACKENDS = [str(backend) for backend in (Backend.DEEP_EP, Backend.HYBRID_EP, Backend.NCCL_EP)]
_EXPERT_COLLECTIVES = [
    str(operation) for operation in (Collective.ALL_TO_ALL, Collective.DISPATCH, Collective.COMBINE)
]
_UNFUSED = r"at::native::|EigenMetaKernel|op_generic_tensor|op_tensor|cudnn::ops::"
_CASTS = (
    r"(bfloat16|float16|float8\w*?)(tofloat32)?_copy_kernel|copy_kernel.*(LoadWithCast|StoreWithCast)"
    r"|(LoadWithCast|StoreWithCast).*copy_kernel|\b(cast|convert)_kernel"
)
_FUSED_PERMUTE = (
    r"(?i)_?(un)?permute_(kernel|with_mask|bwd|rows)|moe_(un)?permute|_row_id_map|sort_chunks_by"
    r"|hybrid_ep::\w*permute"
)
_LOOSE_PERMUTE = (
    r"(?i)index_?select|index_?put|index_elementwise|_scatter_gather|masked_?(scatter|select)|nonzero"
    r"|DeviceSelect"
)
_FUSED_ROUTER = r"(?i)fused_topk|fused_score_for|fused_moe_aux_loss|topk_?softmax|topkGating|grouped_topk"
_LOOSE_ROUTER = r"gatherTopK|radixSelect|bitonicSort|sbtopk|mbtopk|radixtopk"


def compute_details(work: TypicalWork, capture: Capture, gpu: Gpu | None) -> ComputeDetails | None:
    """What the compute kernels of one rank are made of; `None` where none ran in its typical step.

    `gpu` is the one that the rank ran on.
    """
    named = work.operations.join(capture.names, on="name", how="left", maintain_order="left")
    computing = named.filter(pl.col("class") == OperationClass.COMPUTE)
    total_ns = int(computing["inside_ns"].sum())
    if not total_ns:
        return None
    grouped = computing.filter(pl.col("category") == _GROUPED)
    is_elementwise = pl.col("category") == ComputeCategory.ELEMENTWISE
    text = pl.col("text")

    def share(*which: pl.Expr) -> float:
        return int(computing.filter(*which)["inside_ns"].sum()) / total_ns

    has_experts = _has_experts(named)
    return ComputeDetails(
        work_ns=work.mean(total_ns),
        precisions=_precisions(work, computing, capture.names),
        grouped_kernels=work.mean(int(grouped["begins"].sum())),
        grouped_share=int(grouped["inside_ns"].sum()) / total_ns,
        small_multiplications=_small_multiplications(work, computing, total_ns),
        unfused_elementwise_share=share(is_elementwise, text.str.contains(_UNFUSED)),
        quantize_share=share(pl.col("category") == ComputeCategory.QUANTIZE),
        cast_share=share(is_elementwise, text.str.contains(_CASTS)),
        permute_fused=_is_fused(computing, _FUSED_PERMUTE, _LOOSE_PERMUTE, has_experts=has_experts),
        router_fused=_is_fused(computing, _FUSED_ROUTER, _LOOSE_ROUTER, has_experts=has_experts),
        launch_shapes=_launch_shapes(work, computing, capture.kernels, gpu),
    )


def _precisions(work: TypicalWork, computing: pl.DataFrame, names: pl.DataFrame) -> tuple[PrecisionWork, ...]:
    """Matrix multiplications by precision, the most work first; unknown ones are one of them."""
    multiplied = computing.filter(pl.col("category").is_in([_GEMM, _GROUPED])).join(
        precisions(names), on="name"
    )
    totals = (
        multiplied.group_by("precision")
        .agg(work_ns=pl.col("inside_ns").sum(), count=pl.col("begins").sum())
        .sort("work_ns", "precision", descending=[True, False])
    )
    all_ns = int(totals["work_ns"].sum())
    return tuple(
        PrecisionWork(
            Precision(precision), work.mean(work_ns), work_ns / all_ns if all_ns else 0.0, work.mean(count)
        )
        for precision, work_ns, count in totals.iter_rows()
    )


def _small_multiplications(work: TypicalWork, computing: pl.DataFrame, total_ns: int) -> SmallMultiplications:
    is_small = (pl.col("category") == _GEMM) & (pl.col("end_ns") - pl.col("start_ns") < _SMALL_NS)
    is_same = pl.struct("stream", "name", small=is_small).rle_id()
    runs = (
        computing.filter("begins")
        .sort("stream", "start_ns", "op")
        .with_columns(run=is_same, small=is_small)
        .filter("small")
        .group_by("run")
        .agg(count=pl.len(), work_ns=pl.col("inside_ns").sum())
        .filter(pl.col("count") >= _FEWEST_IN_A_RUN)
    )
    work_ns = int(runs["work_ns"].sum())
    return SmallMultiplications(
        work.mean(len(runs)), work.mean(int(runs["count"].sum())), work.mean(work_ns), work_ns / total_ns
    )


def _has_experts(named: pl.DataFrame) -> bool:
    """Whether any kernel is one that only models with experts need."""
    by_backend = pl.col("backend").cast(pl.String).is_in(_EXPERT_BACKENDS)
    by_category = pl.col("category").cast(pl.String).is_in([*_EXPERT_COLLECTIVES, _GROUPED])
    by_name = pl.col("text").str.contains(f"{_FUSED_PERMUTE}|{_FUSED_ROUTER}")
    return bool(named.select((by_backend | by_category | by_name).fill_null(value=False).any()).item())


def _is_fused(computing: pl.DataFrame, fused: str, loose: str, *, has_experts: bool) -> bool | None:
    """Whether a part of the dispatcher runs as one kernel; single operations tell only beside experts."""
    if computing["text"].str.contains(fused).any():
        return True
    return False if has_experts and computing["text"].str.contains(loose).any() else None


def _launch_shapes(
    work: TypicalWork, computing: pl.DataFrame, kernels: pl.DataFrame, gpu: Gpu | None
) -> LaunchShapes:
    sm_count = None if gpu is None else gpu.sm_count
    own = kernels.join(computing.select("op"), on="op", how="semi")
    shapes = with_occupancy(own, None if gpu is None else gpu.architecture, sm_count)
    shaped = computing.join(shapes, on="op", how="left")
    total_ns = int(shaped["inside_ns"].sum())
    known = shaped.filter(pl.col("occupancy").is_not_null())
    others = known.filter(~pl.col("category").is_in(_MADE_FOR_LOW_OCCUPANCY))
    other_ns = int(others["inside_ns"].sum())
    has_grids = sm_count is not None and shaped["blocks"].is_not_null().any()
    small = shaped.filter(pl.col("blocks") < (sm_count or 0))
    tail_ns = (known["tail"] * known["inside_ns"]).sum() if known["tail"].is_not_null().any() else None
    return LaunchShapes(
        known_share=int(known["inside_ns"].sum()) / total_ns,
        small_grid_kernels=work.mean(int(small["begins"].sum())) if has_grids else None,
        small_grid_share=int(small["inside_ns"].sum()) / total_ns if has_grids else None,
        tail_share=None if tail_ns is None else float(tail_ns) / total_ns,
        occupancy=float((others["occupancy"] * others["inside_ns"]).sum()) / other_ns if other_ns else None,
        low_occupancy_share=None
        if known.is_empty()
        else int(others.filter(pl.col("occupancy") < _LOW_OCCUPANCY)["inside_ns"].sum()) / total_ns,
    )

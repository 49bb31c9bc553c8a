import polars as pl
import pytest

from wallscope.attribution.totals import make_typical_work
from wallscope.model.enums import OperationClass
from wallscope.model.rank_summaries import DispatcherWork
from wallscope.model.schemas import AXES, COPIES, NAMES, OPERATIONS
from wallscope.summary.communication import summarize_dispatcher
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_shipped_kernel_rules

STEPS = {"start_ns": [0, 1_000], "end_ns": [1_000, 2_000]}
DISPATCH, SEND_RECV = "void deep_ep::intranode::dispatch<x>(y)", "ncclDevKernel_SendRecv(x)"


def split(*kernels, axis="ep"):
    """Kernels written as name and duration, all in the first of two steps; communication has the axis."""
    names = pl.DataFrame([(row, text) for row, (text, _) in enumerate(kernels)], schema=NAMES, orient="row")
    rows = [
        {"op": row, "rank_id": 0, "name": row, "kind": "kernel", "start_ns": 0, "end_ns": duration_ns}
        for row, (_, duration_ns) in enumerate(kernels)
    ]
    operations = classify_operations(
        pl.DataFrame(rows, schema=OPERATIONS),
        COPIES.to_frame(),
        classify_kernels(names, load_shipped_kernel_rules()),
    )
    communicating = operations.filter(pl.col("class") == OperationClass.COMMUNICATION)
    axes = communicating.select("op", operation=pl.lit("other"), axis=pl.lit(axis), evidence=pl.lit("e"))
    steps = pl.DataFrame(STEPS).with_columns(
        issue_start_ns="start_ns", issue_end_ns="end_ns", host_until_ns="end_ns"
    )
    return summarize_dispatcher(make_typical_work(operations, steps), axes.cast(AXES), names)


@pytest.mark.parametrize(
    ("kernel", "part"),
    [
        pytest.param("_permute_kernel", "pack", id="permute"),
        pytest.param("void moe_permute_kernel<x>(y)", "pack", id="moe permute"),
        pytest.param("void hybrid_ep::permute_kernel<x>(y)", "pack", id="hybrid-ep permute"),
        pytest.param("_row_id_map_pass_2_kernel", "pack", id="row map"),
        pytest.param("_sort_chunks_by_map_kernel", "pack", id="sort"),
        pytest.param(
            "void deep_ep::elastic::dispatch_copy_epilogue<x>(y)", "pack", id="copied after dispatch"
        ),
        pytest.param("_unpermute_kernel", "unpack", id="unpermute"),
        pytest.param("_unpermute_bwd_with_merging_probs_kernel", "unpack", id="unpermute backward"),
        pytest.param("void hybrid_ep::unpermute_kernel<x>(y)", "unpack", id="hybrid-ep unpermute"),
        pytest.param(
            "void deep_ep::elastic::combine_reduce_epilogue<x>(y)", "unpack", id="reduced after combine"
        ),
        pytest.param("void fused_topk_with_score_function_forward_kernel<float>(x)", "routing", id="top-k"),
        pytest.param("void hybrid_ep::scan<512, 16, 8>(x)", "routing", id="hybrid-ep scan"),
        pytest.param("void deep_ep::intranode::get_dispatch_layout<256>(x)", "routing", id="layout"),
        pytest.param("void deep_ep::intranode::notify_dispatch<8>(x)", "synchronise", id="counts"),
        pytest.param("void hybrid_ep::device_sync_kernel(x)", "synchronise", id="sync"),
        pytest.param("void deep_ep::intranode::combine<x>(y)", "transport", id="combine"),
        pytest.param(SEND_RECV, "transport", id="all-to-all"),
        pytest.param("nvjet_tst_128x128", None, id="a gemm"),
    ],
)
def test_each_kernel_of_a_dispatcher_has_its_part(kernel, part):
    found = split((DISPATCH, 10), (kernel, 200))

    expected = {"pack": 0, "synchronise": 0, "transport": 5, "unpack": 0, "routing": 0}
    if part is not None:
        expected[part] += 100
    assert found == DispatcherWork(**{f"{name}_ns": time_ns for name, time_ns in expected.items()})


@pytest.mark.parametrize(
    "kernels",
    [
        pytest.param([("_permute_kernel", 200)], id="one rank holds all experts"),
        pytest.param([("_permute_kernel", 200), (SEND_RECV, 10)], id="all communication is of pipelines"),
    ],
)
def test_without_communication_between_experts_there_is_no_dispatcher(kernels):
    assert split(*kernels, axis="pp") is None

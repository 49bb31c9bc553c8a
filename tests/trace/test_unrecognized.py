from dataclasses import replace

import polars as pl
import pytest

from tests.attribution.brute_trace import Call, Op, Range, Trace, capture, in_order, operations
from wallscope.trace.ranges import nest_ranges
from wallscope.trace.unrecognized import find_communication_evidence, infer_communication

LAUNCH = Call(0, 100, 110, "launch")
KERNEL = Op(0, 200, 300, "compute", 0, unknown=True)


def classified(trace):
    """The operations with those unmatched whose name says nothing."""
    unknown = pl.Series([op.unknown for op in trace.ops])
    return operations(trace).with_columns(matched=~unknown)


def inferred(*ranges, ops=(KERNEL,), calls=(LAUNCH,)):
    """What is told of each operation."""
    trace = in_order(Trace(tuple(ops), tuple(calls), ranges=tuple(ranges)))
    held = capture(trace)
    tree, *_ = nest_ranges(held.ranges, held.range_names, held.calls, held.threads)
    found = infer_communication(classified(trace), held, tree)
    return found.select("class", "category", "backend", "matched").rows()


COMPUTE = ("compute", "unrecognized", None, False)


@pytest.mark.parametrize(
    ("text", "collective", "backend"),
    [
        ("ncclAllReduce", "all-reduce", "nccl"),
        ("ncclGroupEnd", "other", "nccl"),
        ("ncclSend", "send-recv", "nccl"),
        ("ncclReduceScatter", "reduce-scatter", "nccl"),
        ("nccl:all_reduce, op_id = 3", "all-reduce", "nccl"),
        ("nccl:_all_gather_base", "all-gather", "nccl"),
        ("nccl:_reduce_scatter_base", "reduce-scatter", "nccl"),
        ("nccl:all_to_all", "all-to-all", "nccl"),
        ("nccl:broadcast", "broadcast", "nccl"),
        ("nccl:reduce", "reduce", "nccl"),
        ("nccl:send 0->1", "send-recv", "nccl"),
        ("c10d::allreduce_", "all-reduce", "unknown"),
        ("c10d::_allgather_base_", "all-gather", "unknown"),
        ("c10d::alltoall_base_", "all-to-all", "unknown"),
        ("_c10d_functional::all_gather_into_tensor", "all-gather", "unknown"),
        ("symm_mem::multimem_all_reduce_", "all-reduce", "unknown"),
        ("record_param_comms", "other", "unknown"),
        ("nvshmemx_barrier_all_on_stream", "synchronise", "nvshmem"),
        ("MPI_Allreduce", "all-reduce", "unknown"),
        ("DeepEP dispatch", "dispatch", "unknown"),
        ("deep_ep.Buffer.combine", "combine", "unknown"),
        ("FusedCombineBackward", "combine", "unknown"),
        ("MoEFlexTokenDispatcher.token_dispatch", "dispatch", "unknown"),
    ],
)
def test_a_kernel_of_unknown_name_does_what_the_range_around_its_launch_says(text, collective, backend):
    assert inferred(Range(0, 90, 120, text)) == [("communication", collective, backend, False)]


@pytest.mark.parametrize(
    "text",
    [
        "train step with all_reduce",
        "layer 3 all_reduce",
        "dispatch",
        "combine_losses",
        "optimizer.step",
        "permute",
        "scatter",
        "autograd::engine::evaluate_function: AllReduceBackward",
        "reduce",
        "token_dispatch_and_experts",
    ],
)
def test_a_range_of_the_program_tells_nothing(text):
    assert inferred(Range(0, 90, 120, text)) == [COMPUTE]


def test_only_the_innermost_range_is_asked():
    outer, inner = Range(0, 80, 130, "ncclAllReduce"), Range(0, 90, 120, "my_kernels")

    assert inferred(outer, inner) == [COMPUTE]


def test_what_only_says_that_something_communicates_leaves_the_rest_to_what_is_around_it():
    ranges = [
        Range(0, 70, 140, "step"),
        Range(0, 80, 130, "nccl:all_to_all"),
        Range(0, 85, 125, "record_param_comms"),
        Range(0, 90, 120, "ncclGroupEnd"),
    ]

    assert inferred(*ranges) == [("communication", "all-to-all", "nccl", False)]
    assert inferred(ranges[0], *ranges[2:]) == [("communication", "other", "nccl", False)]


@pytest.mark.parametrize(
    ("at", "thread"),
    [pytest.param((120, 150), 0, id="behind the launch"), pytest.param((90, 120), 1, id="another thread")],
)
def test_the_launch_itself_has_to_be_inside(at, thread):
    assert inferred(Range(thread, *at, "ncclAllReduce")) == [COMPUTE]


def test_a_known_kernel_stays_what_it_is():
    known = Op(0, 200, 300, "compute", 0)

    assert inferred(Range(0, 90, 120, "ncclAllReduce"), ops=[known]) == [("compute", "gemm", None, True)]


def test_each_launch_is_told_by_its_own_range():
    ops = [KERNEL, Op(0, 400, 500, "compute", 1, unknown=True), Op(1, 600, 700, "compute", unknown=True)]
    calls = [LAUNCH, Call(0, 300, 310, "launch")]

    found = inferred(Range(0, 90, 120, "ncclAllGather"), ops=ops, calls=calls)

    assert found == [("communication", "all-gather", "nccl", False), COMPUTE, COMPUTE]


def evidence(*ranges, ops=(KERNEL,), calls=(LAUNCH,), ranks=1, world_size=None):
    """What tells that kernels may communicate."""
    trace = in_order(Trace(tuple(ops), tuple(calls), ranges=tuple(ranges)))
    held = capture(trace)
    nothing = pl.DataFrame()
    own = pl.concat([held.ranks] * ranks)
    held = replace(held, ranks=own, world_size=world_size, collective_calls=nothing, communicators=nothing)
    return find_communication_evidence(classified(trace), held)


def test_a_lone_device_tells_of_nobody_to_communicate_with():
    assert evidence() is None
    assert evidence(Range(0, 90, 120, "training step")) is None
    assert evidence(world_size=1) is None


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"ranks": 2}, "2 ranks in the export"),
        ({"world_size": 64}, "a job of 64 ranks"),
        ({"ops": (KERNEL, Op(1, 400, 500, "communication"))}, "kernels or copies that communicate"),
    ],
)
def test_what_tells_of_others(told, said):
    assert evidence(**told) == said


OTHER = Op(1, 400, 500, "compute", 0, unknown=True)
WAIT = Call(0, 120, 130, "wait")


@pytest.mark.parametrize(
    ("ops", "calls", "is_so"),
    [
        pytest.param((KERNEL, OTHER), (LAUNCH, WAIT), True, id="two streams, and no known name"),
        pytest.param((KERNEL, OTHER), (LAUNCH,), False, id="no stream waits"),
        pytest.param((KERNEL, OTHER._replace(stream=0)), (LAUNCH, WAIT), False, id="one stream"),
        pytest.param((KERNEL, OTHER._replace(unknown=False)), (LAUNCH, WAIT), False, id="half are known"),
        pytest.param(
            (KERNEL, OTHER._replace(end=1_300), OTHER._replace(start=1_400, end=1_500, unknown=False)),
            (LAUNCH, WAIT),
            True,
            id="next to none is known",
        ),
    ],
)
def test_streams_that_wait_for_each_other_may_communicate_where_no_name_is_known(ops, calls, is_so):
    assert (evidence(ops=ops, calls=calls) is not None) is is_so


@pytest.mark.parametrize("text", ["ncclAllReduce", "nccl:all_reduce", "c10d::allreduce_", "MPI_Init"])
def test_ranges_of_libraries_tell_of_others(text):
    assert evidence(Range(0, 1, 2, text)) == f"the range {text}"

import sqlite3

import pytest

from fixtures.export import ExportWriter
from fixtures.nccl import Nccl
from wallscope.errors import SelectionError
from wallscope.model.schemas import AXES
from wallscope.nsys import read_capture
from wallscope.trace.collectives import match_nccl_calls
from wallscope.trace.kernel_classes import classify_kernels, classify_operations, load_shipped_kernel_rules
from wallscope.trace.parallel_axes import RangePaths, infer_axes, parse_stream_axes
from wallscope.trace.ranges import nest_ranges, project_ranges

COMMUNICATOR = 0xC0
KERNELS = {
    "all-reduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "all-gather": "ncclDevKernel_AllGather_RING_LL(x)",
    "reduce-scatter": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
    "send-recv": "ncclDevKernel_SendRecv(x)",
}
UNKNOWN = ("unknown", None)
ENGINE = "autograd::engine::evaluate_function: "
MEGATRON = "megatron.core.pipeline_parallel.p2p_communication."


def found(path, given=None):
    """Rank, operation, axis and evidence of each communication operation in order of number."""
    capture = read_capture(path, lambda _: None)
    tree, paths, names = nest_ranges(capture.ranges, capture.range_names, capture.calls, capture.threads)
    operations = classify_operations(
        capture.operations, capture.copies, classify_kernels(capture.names, load_shipped_kernel_rules())
    )
    projected = project_ranges(operations, capture.calls, tree, capture.threads)
    asked = match_nccl_calls(operations, capture)
    made = infer_axes(operations, capture, asked, RangePaths(projected, tree, paths, names), given or {})
    assert made.schema == AXES
    communicates = operations.filter(operations["class"] == "communication")
    assert made["op"].to_list() == communicates["op"].to_list()
    return made


def told(path, given=None):
    return found(path, given).select("axis", "evidence").rows()


class Run:
    """Launches, one after another, each inside its ranges."""

    def __init__(self, writer):
        self.writer = writer
        self.at_ns = 1_000

    def __call__(self, kernel, *ranges, stream=20, thread=None, **where):
        """Launch a kernel from the main thread or another; ranges from the outermost inwards."""
        for depth, text in enumerate(ranges):
            self.writer.range(text, self.at_ns + depth, self.at_ns + 900 - depth)
        number = self.writer.call("cuLaunchKernelEx", self.at_ns + 500, self.at_ns + 501, thread=thread)
        start_ns = 1_000_000 + self.at_ns
        text = KERNELS.get(kernel, kernel)
        self.writer.kernel(text, start_ns, start_ns + 100, stream=stream, correlation=number, **where)
        self.at_ns += 1_000

    def asked(self, nccl, *messages, communicator=COMMUNICATOR):
        """What the next launch does, to NCCL: names, or name and peer."""
        nccl.mark("ncclGroupStart", self.at_ns + 100, self.at_ns + 101)
        for number, (name, peer) in enumerate(messages):
            at_ns = self.at_ns + 110 + 10 * number
            if peer is None:
                nccl.call(name, at_ns, at_ns + 5, communicator, 64)
            else:
                nccl.message(name, at_ns, at_ns + 5, communicator, 64, peer)
        nccl.mark("ncclGroupEnd", self.at_ns + 490, self.at_ns + 510)


def exchange(peers):
    return [(name, peer) for peer in peers for name in ("ncclSend", "ncclRecv")]


@pytest.mark.parametrize(
    ("kernel", "axis", "evidence"),
    [
        pytest.param("void deep_ep::intranode::dispatch<x>(y)", "ep", "deep_ep::intranode::dispatch", id="1"),
        pytest.param("void deep_ep::internode::notify_dispatch<x>(y)", "ep", None, id="deep-ep counts"),
        pytest.param("void hybrid_ep::device_sync_kernel(y)", "ep", None, id="hybrid-ep"),
        pytest.param("nccl_ep_jit_ht_combine_kernel", "ep", None, id="nccl-ep"),
        pytest.param("void deep_ep::pp_send_recv<x>(y)", "pp", None, id="deep-ep for pipelines"),
        pytest.param("userbuffers_fp16_sum_inplace_gpu_rr_ag(x)", "tp", None, id="user buffers"),
        pytest.param("void nvshmemi_transfer_kernel(x)", "unknown", None, id="nvshmem serves anything"),
        pytest.param("void vllm::cross_device_reduce_1stage<x>(y)", "unknown", None, id="custom all-reduce"),
    ],
)
def test_some_libraries_serve_one_axis(kernel, axis, evidence, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        Run(writer)(kernel)

    ((got, said),) = told(tmp_path / "run.sqlite")
    assert got == axis
    assert (said is None) == (axis == "unknown")
    assert evidence is None or said == f"kernel {evidence}"


@pytest.mark.parametrize(
    ("kernel", "ranges", "axis"),
    [
        pytest.param("send-recv", ["layer_3f-layer_2b", "moe_dispatch forward"], "ep", id="dispatch"),
        pytest.param("send-recv", ["moe_combine backward", ENGINE + "_AllToAllBackward"], "ep", id="combine"),
        pytest.param("reduce-scatter", ["moe_combine backward"], None, id="gradients in a backward range"),
        pytest.param("all-gather", ["moe_dispatch forward"], None, id="parameters ahead of the next layer"),
        pytest.param("all-gather", ["allgather_routing_map in hybrid-ep"], "ep", id="hybrid-ep"),
        pytest.param("send-recv", ["deepep run"], "ep", id="the user's name for it"),
        pytest.param("send-recv", ["deep epoch"], None, id="an epoch"),
        pytest.param("send-recv", [MEGATRON + "send_forward_recv_backward"], "pp", id="p2p of megatron"),
        pytest.param("send-recv", ["PipelineEngine._exec_recv_grads"], "pp", id="p2p of deepspeed"),
        pytest.param("all-reduce", [MEGATRON + "recv_forward"], None, id="no pipeline reduces"),
        pytest.param("send-recv", ["transformer_engine.AttnFuncWithCPAndKVP2P.forward"], "cp", id="ring"),
        pytest.param(
            "all-gather", ["transformer_engine.AttnFuncWithCPAndKVAllGather.backward"], "cp", id="gathered"
        ),
        pytest.param("send-recv", ["ring_flash_attn_forward"], "cp", id="ring of flash attention"),
        pytest.param("send-recv", ["AllToAll4D", "nccl:all_to_all"], "cp", id="heads for sequence"),
        pytest.param("all-gather", ["ulysses run", "zero"], None, id="the run is called so"),
        pytest.param(
            "reduce-scatter", ["transformer_engine._Linear.forward.proj.row_parallel_comm"], "tp", id="rows"
        ),
        pytest.param("all-reduce", ["_Linear_backward", "column_parallel_comm_dgrad"], "tp", id="columns"),
        pytest.param("all-gather", [ENGINE + "_LayerNormLinearBackward, op_id = 7"], "tp", id="te autograd"),
        pytest.param("all-reduce", [ENGINE + "_LinearBackward"], None, id="maybe maxima of fp8"),
        pytest.param("all-gather", ["aten::linear", "LinearBackward0"], None, id="torch's own linear"),
        pytest.param("all-reduce", ["_ReduceFromModelParallelRegion"], "tp", id="region of megatron"),
        pytest.param(
            "reduce-scatter",
            ["_LinearBackward", ENGINE + "torch::autograd::AccumulateGrad", "nccl:_reduce_scatter_base"],
            "dp-gradient",
            id="the innermost range decides",
        ),
        pytest.param("all-reduce", [ENGINE + "torch::autograd::AccumulateGrad"], "dp-gradient", id="ddp"),
        pytest.param(
            "reduce-scatter", ["nccl:reduce_scatter_tensor_coalesced"], "dp-gradient", id="coalesced buckets"
        ),
        pytest.param(
            "all-gather", ["c10d::allgather_into_tensor_coalesced_"], "dp-parameter", id="and parameters"
        ),
        pytest.param("reduce-scatter", ["nccl:_reduce_scatter_base"], None, id="the kind tells nothing"),
        pytest.param("reduce-scatter", ["backward"], None, id="in backward: sequence or data"),
        pytest.param("reduce-scatter", ["FSDP::post_backward_reduce (h.1)"], "dp-gradient", id="fsdp 2"),
        pytest.param("all-gather", ["FSDP::pre_forward", "FSDP::all_gather"], "dp-parameter", id="fsdp 2 up"),
        pytest.param(
            "all-gather", ["FullyShardedDataParallel._pre_backward_prefetch"], "dp-parameter", id="fsdp 1"
        ),
        pytest.param("all-gather", ["AllGatherCoalescedHandle.wait"], "dp-parameter", id="deepspeed"),
        pytest.param("all-reduce", ["reduce gradients", "allreduce_grads"], "dp-gradient", id="by hand"),
        pytest.param("all-gather", ["train_step.optimizer_step"], "dp-parameter", id="after the optimizer"),
        pytest.param("all-gather", ["Optimizer.step#FusedAdam.step"], "dp-parameter", id="torch's optimizer"),
        pytest.param("reduce-scatter", ["optimizer"], "dp-gradient", id="before it"),
        pytest.param("all-reduce", ["train_step.optimizer_step"], None, id="a norm is nobody's gradient"),
        pytest.param("all-gather", ["DistributedOptimizer.gather_stats"], None, id="something of a class"),
        pytest.param("all-reduce", ["finalize_model_grads"], None, id="shared embeddings or norms"),
    ],
)
def test_ranges_tell_the_axis_of_what_they_speak_of(kernel, ranges, axis, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        Run(writer)(kernel, *ranges)

    ((got, said),) = told(tmp_path / "run.sqlite")
    assert got == (axis or "unknown")
    assert (said is not None) == (axis is not None)
    assert said is None or said.startswith("range '")


def test_evidence_quotes_the_range_with_its_numbers_folded(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        Run(writer)("send-recv", "layer_3f", "moe_dispatch forward", "nccl:all_to_all, op_id = 5")

    assert found(tmp_path / "run.sqlite").drop("op").rows() == [
        ("all-to-all", "ep", "range 'moe_dispatch forward'")
    ]


@pytest.mark.parametrize(
    ("messages", "experts", "operation", "expected"),
    [
        pytest.param(
            exchange(range(8)),
            True,
            "all-to-all",
            ("ep", "group of sends to 7 peers next to kernels of a mixture of experts"),
            id="dispatch to eight",
        ),
        pytest.param(
            exchange([0, 3]),
            True,
            "all-to-all",
            ("ep", "group of sends to 1 peer and itself next to kernels of a mixture of experts"),
            id="dispatch to two",
        ),
        pytest.param(
            [("ncclAlltoAll", None)],
            True,
            "all-to-all",
            ("ep", "all-to-all next to kernels of a mixture of experts"),
            id="one call",
        ),
        pytest.param(exchange(range(8)), False, "all-to-all", UNKNOWN, id="a model without experts"),
        pytest.param([("ncclSend", 4), ("ncclRecv", 2)], True, "send-recv", UNKNOWN, id="ring or pipeline"),
        pytest.param(exchange([2, 4]), True, "send-recv", UNKNOWN, id="both neighbours of a pipeline"),
        pytest.param([("ncclSend", 4)], True, "send-recv", UNKNOWN, id="to the next stage"),
    ],
)
def test_sends_to_many_are_of_experts_where_there_are_experts(
    messages, experts, operation, expected, tmp_path
):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run, nccl = Run(writer), Nccl(writer)
        nccl.member(COMMUNICATOR, 3, 8)
        run.asked(nccl, *messages)
        run("send-recv")
        run("_permute_kernel" if experts else "nvjet_tst", stream=7)

    assert found(tmp_path / "run.sqlite").drop("op").rows() == [(operation, *expected)]


PERMUTE, UNPERMUTE, NORM = "_permute_kernel", "_unpermute_kernel", "rmsnorm_fwd_tuned_kernel"
GROUPED = (
    "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<"
    "cutlass::gemm::GroupProblemShape<x>>>(T1)"
)
MOE_LAYER = (NORM, PERMUTE, "send-recv", GROUPED, NORM, GROUPED, "send-recv", UNPERMUTE)


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param(MOE_LAYER * 2, ["ep"] * 4, id="dispatch and combine"),
        pytest.param(
            [NORM, PERMUTE, "send-recv", "sort_chunks_by_idxs", GROUPED, "send-recv", UNPERMUTE],
            ["ep"] * 2,
            id="tokens sorted before they are multiplied",
        ),
        pytest.param(
            [*MOE_LAYER, NORM, "stage", UNPERMUTE, *MOE_LAYER, NORM, "stage", UNPERMUTE],
            ["ep", "ep", "unknown"] * 2,
            id="messages between pipeline stages",
        ),
        pytest.param([NORM, "send-recv", NORM, "send-recv", GROUPED], ["unknown"] * 2, id="on one side"),
        pytest.param(
            [PERMUTE, *[NORM] * 7, "send-recv", *[NORM] * 7, GROUPED], ["unknown"], id="far from both"
        ),
        pytest.param([NORM, "send-recv", NORM], ["unknown"], id="no experts"),
        pytest.param(
            [*MOE_LAYER, *[NORM, "ring", NORM] * 9], ["ep", "ep", *["unknown"] * 9], id="a ring of attention"
        ),
    ],
)
def test_messages_between_kernels_of_experts_are_of_experts(tmp_path, kernels, expected):
    streams = {"send-recv": 20, "stage": 24, "ring": 28}
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        for kernel in kernels:
            run("send-recv" if kernel in streams else kernel, stream=streams.get(kernel, 7))

    assert [axis for axis, _ in told(tmp_path / "run.sqlite")] == expected


def test_an_all_to_all_of_pytorch_is_told_by_its_range(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        run("send-recv", "c10d::alltoall_base_", "nccl:all_to_all")
        run("send-recv", "nccl:send 0->1", stream=24)
        run("void fused_topk_with_score_function_forward_kernel<float>(x)", stream=7)

    assert found(tmp_path / "run.sqlite").drop("op").rows() == [
        ("all-to-all", "ep", "all-to-all next to kernels of a mixture of experts"),
        ("send-recv", *UNKNOWN),
    ]


def test_operations_of_a_communicator_share_the_axis(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run, nccl = Run(writer), Nccl(writer)
        for ranges in (["AttnFuncWithCPAndKVP2P"], [], ["nccl:coalesced"]):
            run.asked(nccl, ("ncclSend", 1), ("ncclRecv", 2))
            run("send-recv", *ranges, stream=7)
        run.asked(nccl, ("ncclAllReduce", None))
        run("all-reduce", stream=31)
        run.asked(nccl, ("ncclSend", 1), communicator=COMMUNICATOR + 1)
        run("send-recv", stream=7)
        run("nvjet_tst", stream=7)

    shared = ("cp", "same communicator: range 'AttnFuncWithCPAndKVP2P'")
    assert told(tmp_path / "run.sqlite") == [
        ("cp", "range 'AttnFuncWithCPAndKVP2P'"),
        *[shared] * 3,
        UNKNOWN,
    ]


def test_gradients_and_parameters_share_a_communicator_and_stay_apart(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run, nccl = Run(writer), Nccl(writer)
        calls = {
            "reduce-scatter": "ncclReduceScatter",
            "all-gather": "ncclAllGather",
            "all-reduce": "ncclAllReduce",
        }
        for kernel, ranges in (
            ("reduce-scatter", [ENGINE + "torch::autograd::AccumulateGrad"]),
            ("reduce-scatter", ["backward"]),
            ("all-gather", ["forward"]),
            ("all-reduce", ["loss"]),
        ):
            run.asked(nccl, (calls[kernel], None))
            run(kernel, *ranges)

    evidence = f"same communicator: range '{ENGINE}torch::autograd::AccumulateGrad'"
    assert told(tmp_path / "run.sqlite")[1:] == [
        ("dp-gradient", evidence),
        ("dp-parameter", evidence),
        UNKNOWN,
    ]


@pytest.mark.parametrize(
    ("stream", "others", "expected"),
    [
        pytest.param(20, [], ("pp", f"same stream: range '{MEGATRON}recv_forward'"), id="the same stream"),
        pytest.param(24, [], UNKNOWN, id="another stream"),
        pytest.param(20, ["nvjet_tst"], UNKNOWN, id="the stream computes too"),
        pytest.param(20, ["AttnFuncWithCPAndKVP2P"], UNKNOWN, id="the stream has two axes"),
    ],
)
def test_operations_of_a_stream_for_communication_share_the_axis(stream, others, expected, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        run("send-recv", stream=stream)
        run("send-recv", MEGATRON + "recv_forward")
        for other in others:
            run(*(("send-recv", other) if "Attn" in other else (other,)))

    assert told(tmp_path / "run.sqlite")[0] == expected


BACKWARD = 1_777
"""A thread beside the main one."""


@pytest.mark.parametrize(
    ("launched", "expected"),
    [
        pytest.param(
            [("nvjet_tst", None), ("nvjet_tst", BACKWARD), *2 * [("all-reduce", BACKWARD)]],
            ["dp-gradient"] * 2,
            id="all of the backward thread",
        ),
        pytest.param(
            [
                ("nvjet_tst", None),
                ("nvjet_tst", BACKWARD),
                *3 * [("all-reduce", BACKWARD)],
                ("all-reduce", None),
            ],
            [*3 * ["dp-gradient"], "unknown"],
            id="one of the main thread may be of the loss",
        ),
        pytest.param(
            [
                ("nvjet_tst", None),
                ("nvjet_tst", BACKWARD),
                *2 * [("all-reduce", BACKWARD), ("all-reduce", None)],
            ],
            ["unknown"] * 4,
            id="as many of the forward pass: tensor parallelism",
        ),
        pytest.param(
            [("nvjet_tst", None), ("all-reduce", None)], ["unknown"], id="one thread does everything"
        ),
        pytest.param(
            [("nvjet_tst", None), ("all-reduce", BACKWARD)], ["unknown"], id="a thread that computes nothing"
        ),
        pytest.param(
            [("nvjet_tst", BACKWARD), ("all-reduce", BACKWARD)],
            ["unknown"],
            id="a main thread that does nothing",
        ),
        pytest.param(
            [("nvjet_tst", None), ("nvjet_tst", BACKWARD), ("all-gather", BACKWARD), ("send-recv", BACKWARD)],
            ["unknown"] * 2,
            id="no reductions",
        ),
    ],
)
def test_reductions_of_the_backward_thread_are_of_gradients(launched, expected, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        for kernel, thread in launched:
            run(kernel, stream=7 if kernel == "nvjet_tst" else 20, thread=thread)

    assert [axis for axis, _ in told(tmp_path / "run.sqlite")] == expected


def test_ranks_do_not_share(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        run("send-recv", MEGATRON + "recv_forward", device=0)
        run("send-recv", device=1)

    assert [axis for axis, _ in told(tmp_path / "run.sqlite")] == ["pp", "unknown"]


def test_the_user_is_asked_first(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        run("send-recv", MEGATRON + "recv_forward", stream=20)
        run("void deep_ep::intranode::dispatch<x>(y)", stream=21)
        writer.copy("peer", 3_000_000, 3_000_100, 64, stream=22)
        run("send-recv", stream=23)

    given = parse_stream_axes(["20=cp", "21=tp", "22=tp"])
    assert told(tmp_path / "run.sqlite", given) == [
        ("cp", "stream 20 given by the user"),
        ("tp", "stream 21 given by the user"),
        UNKNOWN,
        ("tp", "stream 22 given by the user"),
    ]


def test_a_stream_that_is_not_in_the_export_is_refused_with_those_that_are(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        run = Run(writer)
        run("send-recv", stream=20)
        run("gemm", stream=7)

    with pytest.raises(
        SelectionError, match=r"--stream 99=ep — is not in this export — it has stream 7, 20$"
    ):
        told(tmp_path / "run.sqlite", parse_stream_axes(["20=cp", "99=ep"]))


def test_copies_between_devices_take_the_axis_of_their_range(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        writer.range("transformer_engine._Linear.forward.row_parallel_comm", 100, 200)
        number = writer.call("cudaMemcpyPeerAsync_v4000", 120, 130)
        writer.copy("peer", 300, 400, 64, correlation=number)

    assert [axis for axis, _ in told(tmp_path / "run.sqlite")] == ["tp"]


@pytest.mark.parametrize("name", ["nsysai_mfu_before", "nsysai_mfu_after"])
def test_real_exchanges_of_sequence_parallelism_are_no_dispatch(name, traces):
    path = traces / f"{name}.sqlite"
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    (inside,) = connection.execute(
        """SELECT COUNT(DISTINCT kernel.rowid) FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
        JOIN StringIds AS name ON name.id = kernel.shortName AND name.value GLOB 'nccl*'
        JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS call ON call.correlationId = kernel.correlationId
            AND call.globalTid >> 24 = kernel.globalPid >> 24
        JOIN NVTX_EVENTS AS range ON range.globalTid = call.globalTid
            AND range.start <= call.start AND call.start < range."end" AND range.text GLOB 'AllToAll4D*'"""
    ).fetchone()
    (all_of_them,) = connection.execute(
        """SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL AS kernel
        JOIN StringIds AS name ON name.id = kernel.shortName AND name.value GLOB 'nccl*'"""
    ).fetchone()
    connection.close()

    rows = found(path).drop("op").rows()
    assert len(rows) == all_of_them
    assert rows.count(("all-to-all", "cp", "range 'AllToAll4D'")) == inside > 50
    assert rows.count(("send-recv", *UNKNOWN)) == all_of_them - inside


def test_real_copies_between_devices_have_no_axis(traces):
    rows = found(traces / "mpi_v100_4rank.sqlite").drop("op").rows()

    assert rows == [("send-recv", *UNKNOWN)] * 27


@pytest.mark.parametrize(
    "name", ["nsysai_h100_2gpu_1s", "nsysai_healthy_1pct_SYNTHETIC", "nsysai_healthy_judged_SYNTHETIC"]
)
def test_real_exports_without_communication_have_no_axes(name, traces):
    assert found(traces / f"{name}.sqlite").is_empty()

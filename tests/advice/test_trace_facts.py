from dataclasses import replace

import polars as pl
import pytest

from tests.advice.runs import run
from wallscope.advice.measurements import MeasuredRun
from wallscope.advice.published import find_machine
from wallscope.advice.trace_facts import collect_trace_facts, communicator_sizes, merge_trace_facts
from wallscope.demo.example import write_example
from wallscope.model.advice import KnownSetting, RunConfiguration, TraceFacts
from wallscope.model.capture import GraphTracing, Options
from wallscope.model.enums import Axis, Backend, Collective, Precision
from wallscope.model.rank_summaries import CommunicationOperation, PrecisionWork
from wallscope.model.schemas import AXES, COLLECTIVES
from wallscope.pipeline import analyze


def configured(**settings):
    return RunConfiguration(
        {name: KnownSetting(value, f"run.yaml: {name}") for name, value in settings.items()}
    )


def frames(*rows):
    axes = pl.DataFrame(
        [(op, "all-to-all", axis, None) for op, (axis, _) in enumerate(rows)], schema=AXES, orient="row"
    )
    told = pl.DataFrame(
        [(op, "all-to-all", None, size, None, None, None, None, None) for op, (_, size) in enumerate(rows)],
        schema=COLLECTIVES,
        orient="row",
    )
    return axes, told


def test_communicators_by_axis():
    found = communicator_sizes(
        *frames(("ep", 8), ("ep", 8), ("tp", 2), ("tp", 4), ("unknown", 16), ("cp", None))
    )

    assert found == {Axis.EP: (8,), Axis.TP: (2, 4)}


def test_what_an_export_shows(tmp_path):
    path = tmp_path / "moe.sqlite"
    write_example(path)
    analysis = analyze(path, Options(), lambda _: None)
    names = pl.Series(["step", "layer_3f-layer_2b", "activation offloading moe_act"], dtype=pl.String)
    trace = collect_trace_facts(analysis, names, *frames(("ep", 16)))

    assert (trace.architecture, trace.gpu) == ("sm_90", analysis.inputs[0].gpus[0].name)
    assert trace.communicator_sizes == {Axis.EP: (16,)}
    assert trace.least == {"expert_model_parallel_size": 2, "num_moe_experts": 2}
    assert trace.cuda_graphs is analysis.capture.cuda_graphs
    assert (trace.ep_overlap, trace.delayed_wgrad, trace.activation_offload) == (True, None, True)
    assert set(trace.backends) == {
        entry.backend for rank in analysis.ranks for entry in rank.communication.operations
    }


@pytest.mark.parametrize(
    ("axis", "backend", "operation", "least"),
    [
        (Axis.EP, Backend.NCCL, Collective.ALL_TO_ALL, {"expert_model_parallel_size", "num_moe_experts"}),
        (Axis.EP, Backend.NCCL, Collective.ALL_GATHER, {"num_moe_experts"}),
        (Axis.EP, Backend.DEEP_EP, Collective.DISPATCH, {"num_moe_experts"}),
        (Axis.TP, Backend.NCCL, Collective.ALL_REDUCE, {"tensor_model_parallel_size"}),
        (Axis.CP, Backend.NCCL, Collective.SEND_RECV, {"context_parallel_size"}),
        (Axis.PP, Backend.NCCL, Collective.SEND_RECV, {"pipeline_model_parallel_size"}),
        (Axis.DP_GRADIENT, Backend.NCCL, Collective.REDUCE_SCATTER, set()),
        (Axis.UNKNOWN, Backend.NCCL, Collective.ALL_TO_ALL, set()),
    ],
)
def test_who_communicates_along_an_axis_is_not_alone_on_it(axis, backend, operation, least):
    analysis = run({"host/lock": 20})
    (rank, *others) = analysis.ranks
    entry = CommunicationOperation(operation, axis, backend, 1, 1, 1, None)
    communicating = replace(rank, communication=replace(rank.communication, operations=(entry,)))
    shown = replace(analysis, ranks=(communicating, *others))

    found = collect_trace_facts(shown, pl.Series([], dtype=pl.String), *frames()).least
    assert found == dict.fromkeys(least, 2)


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("NVIDIA GB200", 72),
        ("NVIDIA VR200", 72),
        ("NVIDIA H100 80GB HBM3", 8),
        ("A100-SXM4-40GB", 8),
        ("NVIDIA A100-PCIE-40GB", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA H100 NVL", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA A10", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("Tesla T4", None),
        (None, None),
    ],
)
def test_facts_measurements_and_plans_agree_on_the_nvlink_domain_of_a_gpu(name, domain):
    analysis = run({"host/lock": 20})
    (export,) = analysis.inputs
    gpu = replace(export.gpus[0], name=name)
    shown = replace(analysis, inputs=(replace(export, gpus=(gpu,)),))
    names = pl.Series([], dtype=pl.String)

    assert collect_trace_facts(shown, names, *frames()).nvlink_domain == domain
    assert MeasuredRun(shown, RunConfiguration(), names).measure("nvlink_domain", ()) == domain
    if name is not None and ("H100" in name or "A100" in name or "GB200" in name):
        assert find_machine(name).facts().nvlink_domain == domain


@pytest.mark.parametrize("precision", list(Precision))
def test_facts_and_measurements_agree_on_what_is_low_precision(precision):
    analysis = run({"host/lock": 20}, details={"precision": precision})
    is_low = MeasuredRun(analysis, RunConfiguration(), pl.Series(["x"])).measure("low_precision_share", ())
    _, findings = merge_trace_facts(configured(fp8="e4m3"), TraceFacts(precisions=(precision,)))

    assert is_low == (precision in {"fp8", "mxfp8", "nvfp4"})
    assert bool(findings) == (not is_low and precision is not Precision.UNKNOWN)


@pytest.mark.parametrize(("share", "said"), [(0.04, False), (0.05, True)])
def test_multiplications_of_unknown_precision_count_where_they_are_many(share, said):
    works = (
        PrecisionWork(Precision.BF16, 1, 1 - share, 1),
        PrecisionWork(Precision.UNKNOWN, 1, share, 1),
    )
    shown = run({"host/lock": 20}, details={"precisions": works})

    found = collect_trace_facts(shown, pl.Series([], dtype=pl.String), *frames()).precisions
    assert (Precision.UNKNOWN in found) is said


@pytest.mark.parametrize(
    ("architecture", "major"), [("sm_90", 9), ("sm_90a", 9), ("sm_103", 10), (None, None), ("Hopper", None)]
)
def test_the_compute_capability_is_that_of_the_architecture(architecture, major):
    assert TraceFacts(architecture=architecture).settings().get("compute_capability") == major


@pytest.mark.parametrize(
    ("told", "trace", "said"),
    [
        pytest.param(
            {"moe_flex_dispatcher_backend": "hybridep", "moe_token_dispatcher_type": "flex"},
            TraceFacts(backends=(Backend.NCCL,)),
            "sets hybridep, but no kernel of hybridep ran",
            id="backend that fell back",
        ),
        pytest.param(
            {"moe_flex_dispatcher_backend": "deepep"},
            TraceFacts(backends=(Backend.HYBRID_EP,)),
            "kernels of hybridep ran: hybridep counts",
            id="another backend",
        ),
        pytest.param(
            {"fp8": "e4m3"}, TraceFacts(precisions=(Precision.BF16,)), "no low-precision GEMM", id="no FP8"
        ),
        pytest.param(
            {"cuda_graph_impl": "local"}, TraceFacts(cuda_graphs=GraphTracing.NONE), "no CUDA", id="no graph"
        ),
        pytest.param(
            {"cuda_graph_impl": "none"}, TraceFacts(cuda_graphs=GraphTracing.NODE), "graphs ran", id="graph"
        ),
        pytest.param(
            {"expert_model_parallel_size": 8},
            TraceFacts(communicator_sizes={Axis.EP: (16,)}),
            "16 ranks: 16 counts",
            id="another size",
        ),
        pytest.param(
            {"moe_permute_fusion": True}, TraceFacts(permute_fused=False), "one by one", id="not fused"
        ),
        pytest.param(
            {"overlap_moe_expert_parallel_comm": False},
            TraceFacts(ep_overlap=True),
            "merged layers",
            id="overlap",
        ),
        pytest.param(
            {"CUDA_DEVICE_MAX_CONNECTIONS": "1"},
            TraceFacts(environment={"CUDA_DEVICE_MAX_CONNECTIONS": "32"}),
            "CUDA_DEVICE_MAX_CONNECTIONS=32: 32 counts",
            id="environment",
        ),
    ],
)
def test_a_contradiction_is_a_finding(told, trace, said):
    _, findings = merge_trace_facts(configured(**told), trace)

    assert [finding.code for finding in findings] == ["configuration-contradicted"]
    assert said in findings[0].message


@pytest.mark.parametrize(
    ("told", "trace"),
    [
        ({"moe_flex_dispatcher_backend": "hybridep"}, TraceFacts(backends=(Backend.HYBRID_EP, Backend.NCCL))),
        (
            {"moe_flex_dispatcher_backend": "hybridep", "moe_token_dispatcher_type": "alltoall"},
            TraceFacts(backends=(Backend.NCCL,)),
        ),
        ({"moe_flex_dispatcher_backend": "hybridep"}, TraceFacts()),
        ({"fp8": "hybrid", "fp8_recipe": "mxfp8"}, TraceFacts(precisions=(Precision.BF16, Precision.MXFP8))),
        ({"fp8": "e4m3"}, TraceFacts()),
        ({"cuda_graph_impl": "none"}, TraceFacts(cuda_graphs=GraphTracing.NONE)),
        ({"expert_model_parallel_size": 8}, TraceFacts(communicator_sizes={Axis.EP: (8,)})),
        ({"expert_model_parallel_size": 8}, TraceFacts(communicator_sizes={Axis.EP: (8, 16)})),
        ({"overlap_moe_expert_parallel_comm": True}, TraceFacts()),
        (
            {"moe_permute_fusion": False},
            TraceFacts(backends=(Backend.HYBRID_EP,), permute_fused=True),
        ),
        ({"fp8": "e4m3"}, TraceFacts(precisions=(Precision.BF16, Precision.UNKNOWN))),
        (
            {"expert_model_parallel_size": 8, "expert_tensor_parallel_size": 2},
            TraceFacts(communicator_sizes={Axis.EP: (16,)}),
        ),
    ],
)
def test_what_agrees_or_is_unknown_is_no_finding(told, trace):
    configuration, findings = merge_trace_facts(configured(**told), trace)

    assert findings == ()
    assert {key: configuration.get(key) for key in told} == told


def test_what_the_trace_shows_is_added_with_its_source():
    trace = TraceFacts(
        backends=(Backend.DEEP_EP,),
        grouped_experts=True,
        precisions=(Precision.MXFP8,),
        environment={"NCCL_NVLS_ENABLE": "0"},
    )
    found, _ = merge_trace_facts(RunConfiguration(), trace)

    assert {key: known.value for key, known in found.settings.items()} == {
        "moe_token_dispatcher_type": "flex",
        "moe_flex_dispatcher_backend": "deepep",
        "deepep_installed": True,
        "moe_grouped_gemm": True,
        "fp8": "e4m3",
        "fp8_recipe": "mxfp8",
        "NCCL_NVLS_ENABLE": "0",
    }
    assert found.settings["fp8"].source == "trace: FP8 GEMMs ran"


@pytest.mark.parametrize(
    ("least", "backends", "shown"),
    [
        pytest.param({"expert_model_parallel_size": 2}, (Backend.NCCL,), "alltoall", id="all-to-all of NCCL"),
        pytest.param(
            {"expert_model_parallel_size": 2}, (Backend.DEEP_EP,), "flex", id="another dispatcher too"
        ),
        pytest.param({"num_moe_experts": 2}, (Backend.NCCL,), None, id="another collective"),
    ],
)
def test_the_dispatcher_is_known_by_what_exchanged_the_tokens(least, backends, shown):
    found, _ = merge_trace_facts(RunConfiguration(), TraceFacts(least=least, backends=backends))

    assert found.get("moe_token_dispatcher_type") == shown

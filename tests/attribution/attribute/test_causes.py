import numpy as np
import polars as pl
import pytest

from tests.attribution.brute_trace import Op, Trace, operations
from wallscope.attribution.attribute import assign_operation_causes, assign_slice_causes
from wallscope.attribution.slices import NO_SLACK, Slices
from wallscope.columns import encode_member
from wallscope.model.enums import CopyCause, DeviceState, LinkKind
from wallscope.model.schemas import AXES, CLASSIFIED, COPY_CAUSES

OPS = (
    Op(0, 0, 10, "compute"),  # 0
    Op(0, 20, 30, "compute"),
    Op(1, 20, 30, "compute"),
    Op(2, 40, 50, "communication"),  # 3: of an axis
    Op(2, 60, 70, "communication"),  # 4: of none
    Op(3, 60, 70, "copy"),  # 5: staging
    Op(3, 80, 90, "copy"),  # 6: small
    Op(0, 95, 99, "opaque_graph"),  # 7
    Op(0, 99, 100, "compute"),  # 8: recomputed
    Op(9, 100, 101, "compute"),  # 9: of a rank that is not accounted for
)
AGAIN = pl.Series("op", [8], dtype=pl.UInt32)
IN_GRAPH = np.array([-1, 7, 7, *[-1] * 7])


def causes():
    own = operations(Trace(OPS)).head(9)
    axes = pl.DataFrame([{"op": 3, "operation": "all-to-all", "axis": "ep"}], schema=AXES)
    copies = pl.DataFrame(
        [{"op": 5, "cause": "staging"}, {"op": 6, "cause": "small-copy"}], schema=COPY_CAUSES
    )
    return assign_operation_causes(own, len(OPS), axes, copies, AGAIN)


def test_what_each_operation_stands_for():
    assert causes().name_causes(np.arange(len(OPS))).to_list() == [
        *["compute/gemm"] * 3,
        "communication/ep/unsplit",
        "communication/unknown/unsplit",
        "memory/staging",
        "host/small-copy",
        "unattributed/opaque-graph",
        "memory/recompute",
        "communication/unknown/peer-wait",
    ]


def said(kind=None, op=-1, next_op=-1, state="idle", outside=None, **more):
    """The cause of one piece."""
    nothing = np.array([-1])
    piece = Slices(
        window=np.array([0]),
        start_ns=np.array([0]),
        end_ns=np.array([1]),
        state=np.array([encode_member(DeviceState(state))]),
        kind=nothing if kind is None else np.array([encode_member(LinkKind(kind))]),
        gap=nothing,
        op=np.array([op]),
        next_op=np.array([next_op]),
        call=nothing,
        thread=nothing,
        slack_ns=np.array([NO_SLACK]),
        inferred=np.array([False]),
    )
    on_thread = nothing if outside is None else np.array([0])
    texts = [outside or "host/other"]
    (found,), texts = assign_slice_causes(piece, causes(), on_thread, texts, IN_GRAPH, **more)
    return texts[found]


@pytest.mark.parametrize("op", range(9))
def test_an_operation_that_computes_or_binds_stands_for_itself(op):
    (itself,) = causes().name_causes(np.array([op]))

    assert said(op=op, state="compute") == itself
    if OPS[op].kind in {"communication", "copy"}:
        assert said("operation", op, 0) == itself


def test_waiting_for_what_another_rank_computes_is_waiting_for_a_peer():
    assert said("operation", 9, 0) == "communication/unknown/peer-wait"


@pytest.mark.parametrize(
    ("op", "next_op", "expected"),
    [
        pytest.param(0, 1, "compute/kernel-gap", id="kernels of one stream"),
        pytest.param(0, 7, "compute/kernel-gap", id="a graph behind a kernel"),
        pytest.param(7, 8, "compute/kernel-gap", id="a kernel behind a graph"),
        pytest.param(1, 2, "compute/kernel-gap", id="kernels of one graph launch"),
        pytest.param(0, 2, "compute/hand-over", id="kernels of two streams"),
        pytest.param(3, 0, "communication/ep/hand-over", id="a collective"),
        pytest.param(4, 0, "communication/unknown/hand-over", id="a collective without an axis"),
        pytest.param(0, 3, "compute/hand-over", id="a collective behind a kernel"),
        pytest.param(3, 4, "communication/ep/hand-over", id="collectives of one stream"),
        pytest.param(5, 0, "memory/hand-over", id="a copy"),
        pytest.param(6, 0, "host/hand-over", id="a small copy"),
    ],
)
def test_a_hand_over_is_the_producers_but_between_kernels_in_order_it_is_a_gap(op, next_op, expected):
    assert said("hand-over", op, next_op) == expected


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("idle", "unattributed/unresolved"),
        ("exposed_communication", "communication/unresolved"),
        ("exposed_copy", "memory/unresolved"),
    ],
)
def test_unresolved_time_is_told_apart_by_what_the_device_did(state, expected):
    assert said("unresolved", state=state) == expected


def test_launched_work_waits_on_an_idle_device_only_if_nothing_is_missing():
    assert said("unresolved", next_op=0) == "unattributed/held-while-idle"
    assert said("unresolved", next_op=0, is_complete=False) == "unattributed/unresolved"
    assert said("unresolved", next_op=0, state="exposed_copy") == "memory/unresolved"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("launch-latency", "host/launch-latency"),
        ("launch-call", "host/launch-call"),
        ("driver-lock", "memory/driver-lock"),
        ("other-call", "host/other-call"),
        ("synchronisation", "host/synchronisation"),
        ("allocation", "memory/allocator"),
    ],
)
def test_links_on_threads_are_told_by_their_kind(kind, expected):
    assert said(kind, op=3) == expected
    assert said(kind, op=3, outside="unattributed/profiler") == "unattributed/profiler"


def test_time_outside_calls_is_told_by_the_thread():
    assert said("outside-calls", outside="host/lock") == "host/lock"


@pytest.mark.parametrize("cause", list(CopyCause))
def test_each_cause_of_a_copy_has_a_wall(cause):
    own = pl.DataFrame([{"op": 0, "stream": 0, "class": "copy"}], schema=CLASSIFIED)
    copies = pl.DataFrame([{"op": 0, "cause": cause}], schema=COPY_CAUSES)

    found = assign_operation_causes(own, 1, AXES.to_frame(), copies, AGAIN.clear())

    is_small = cause is CopyCause.SMALL_COPY
    assert found.name_causes(np.arange(1)).to_list() == [f"{'host' if is_small else 'memory'}/{cause}"]


def test_a_capture_without_operations_has_no_causes():
    found = assign_operation_causes(
        CLASSIFIED.to_frame(), 0, AXES.to_frame(), COPY_CAUSES.to_frame(), AGAIN.clear()
    )

    assert found.name_causes(np.arange(0)).to_list() == []

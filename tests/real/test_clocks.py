"""The clocks of real captures: none is off, and one that is moved is moved back."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.conftest import run_part
from wallscope.kineto.any_capture import read_any_capture
from wallscope.trace.device_clocks import align_device_clocks

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"

pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="no real captures here: ../shared/traces is absent"
)

CAPTURES = [
    "abacus_report1.sqlite",
    "brainstorm_report2.sqlite",
    "clue_r3.sqlite",
    "cs336_athrun.sqlite",
    "cs336_zx_2.7B_clean.sqlite",
    "fuser_h200.sqlite",
    "ingp_r12.sqlite",
    "kineto/ds_train.json.gz",
    "kineto/hta_alexnet.json.gz",
    "kineto/hta_control.json.gz",
    "kineto/hta_sampled_rank1.json.gz",
    "kineto/tracelens_b200_eager.json.gz",
    "llama3_real.sqlite",
    "minimal/marks/hip_ten_steps.json.gz",
    "minimal/marks/one_step.sqlite",
    "minimal/marks/one_step_layers.json.gz",
    "minimal/marks/t1_negative_latency.json.gz",
    "mpi_v100_4rank.sqlite",
    "nersc_sc21_dali.sqlite",
    "nsysai_h100_2gpu_1s.sqlite",
]
_CLOSE_NS = 40_000
"""The smallest latency of a launch differs by so much between captures: nothing says which it was."""


@pytest.mark.parametrize("name", run_part(CAPTURES, ("minimal/marks/one_step_layers.json.gz",), name=str))
def test_a_moved_device_is_moved_back(name):
    capture = read_any_capture(TRACES / name, lambda _: None)
    assert not [one for one in capture.findings if one.code.startswith("device-clock")]

    for offset_ns in (-1_000_000_000, -20_000_000, -2_000_000, 1_000_000, 156_000_000, 848_000_000):
        moved = replace(
            capture,
            operations=capture.operations.with_columns(pl.col("start_ns", "end_ns") + offset_ns),
        )
        found, clocks = align_device_clocks(moved)

        assert len(clocks) == len(capture.ranks)
        for column in ("start_ns", "end_ns"):
            rest_ns = found.operations[column] - capture.operations[column]
            assert np.abs(rest_ns.to_numpy()).max() <= _CLOSE_NS, (offset_ns, column)

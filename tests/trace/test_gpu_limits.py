import numpy as np
import polars as pl
import pytest

from wallscope.model.schemas import KERNELS
from wallscope.trace.gpu_limits import Occupancy, estimate_occupancy, find_theoretical


def shape(**facts: int | None) -> pl.DataFrame:
    row = {"op": 0, "blocks": 132, "threads": 256, "registers": 32, "shared_bytes": 0, **facts}
    return pl.DataFrame([row], schema=KERNELS)


def told(found: Occupancy) -> tuple[float | None, ...]:
    """Occupancy, waves and tail of the only shape, `None` where unknown."""
    values = (float(column[0]) for column in (found.occupancy, found.waves, found.tail))
    return tuple(None if np.isnan(value) else value for value in values)


@pytest.mark.parametrize(
    ("architecture", "facts", "expected"),
    [
        pytest.param("sm_90", {}, 1.0, id="8 blocks of 8 warps"),
        pytest.param("sm_90", {"threads": 1024}, 1.0, id="2 blocks of 32 warps"),
        pytest.param("sm_90", {"threads": 32}, 0.5, id="32 blocks of a warp"),
        pytest.param("sm_75", {"threads": 32}, 0.5, id="16 blocks of a warp of 32"),
        pytest.param("sm_90", {"threads": 33}, 1.0, id="two warps, one nearly empty"),
        pytest.param("sm_90", {"registers": 64}, 0.5, id="half by registers"),
        pytest.param("sm_90", {"registers": 33}, 0.75, id="40 registers a thread are handed out"),
        pytest.param("sm_90", {"registers": 255}, 8 / 64, id="one block by registers"),
        pytest.param(
            "sm_90", {"registers": 168, "threads": 384, "shared_bytes": 200 << 10}, 12 / 64, id="a GEMM"
        ),
        pytest.param("sm_90", {"shared_bytes": 112 << 10}, 16 / 64, id="two blocks with 1 KiB reserved"),
        pytest.param("sm_90", {"shared_bytes": 114 << 10}, 8 / 64, id="one block, since 1 KiB is reserved"),
        pytest.param("sm_80", {"shared_bytes": 81 << 10}, 16 / 64, id="two blocks on an A100"),
        pytest.param("sm_86", {}, 1.0, id="6 blocks of 8 warps of 48"),
        pytest.param("sm_89", {"threads": 512}, 1.0, id="3 blocks of 16 warps of 48"),
        pytest.param("sm_89", {"threads": 1024}, 32 / 48, id="one block of 32 warps of 48"),
        pytest.param("sm_70", {"shared_bytes": 48 << 10}, 16 / 64, id="two blocks on a V100"),
        pytest.param("sm_100", {"threads": 128, "registers": 128}, 16 / 64, id="Blackwell"),
        pytest.param("sm_90", {"registers": None}, None, id="registers unknown"),
        pytest.param("sm_90", {"shared_bytes": 300 << 10}, None, id="cannot run so"),
        pytest.param("sm_90", {"threads": 0}, None, id="no threads"),
        pytest.param("sm_61", {}, None, id="no limits known"),
        pytest.param(None, {}, None, id="no architecture known"),
    ],
)
def test_theoretical_occupancy(architecture, facts, expected):
    assert told(estimate_occupancy(shape(**facts), architecture, 132))[0] == expected


@pytest.mark.parametrize(
    ("blocks", "waves", "tail"),
    [
        pytest.param(132, 0.125, 0.0, id="less than one wave"),
        pytest.param(1_056, 1.0, 0.0, id="one wave"),
        pytest.param(1_584, 1.5, 0.25, id="one and a half"),
        pytest.param(1_057, 1_057 / 1_056, 1 - 1_057 / 2_112, id="one block too many"),
        pytest.param(10_560, 10.0, 0.0, id="ten waves"),
        pytest.param(None, None, None, id="unknown"),
    ],
)
def test_the_last_wave_leaves_places_empty(blocks, waves, tail):
    assert told(estimate_occupancy(shape(blocks=blocks), "sm_90", 132))[1:] == (waves, tail)


def test_waves_need_the_number_of_multiprocessors():
    assert told(estimate_occupancy(shape(), "sm_90", None)) == (1.0, None, None)


def test_a_grid_without_blocks_fills_nothing():
    assert told(estimate_occupancy(shape(blocks=0), "sm_90", 132)) == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("threads", "blocks_per_sm", "achieved", "expected"),
    [
        pytest.param(256, 40.0, 0.5, 0.5, id="more blocks than fit"),
        pytest.param(256, 4.0, 0.5, None, id="as many blocks as there are"),
        pytest.param(256, 0.5, 0.06, None, id="half of the GPU without a block"),
        pytest.param(1024, 1.5, 0.5, 0.5, id="one block fits"),
        pytest.param(256, 40.0, None, None, id="not recorded"),
        pytest.param(None, 40.0, 0.5, None, id="unknown threads"),
    ],
)
def test_an_estimate_with_the_grid_is_theoretical_where_the_grid_is_large(
    threads, blocks_per_sm, achieved, expected
):
    told_per_sm, shares = np.array([blocks_per_sm]), np.array([np.nan if achieved is None else achieved])
    found = find_theoretical(shape(threads=threads), told_per_sm, shares)[0]

    assert (None if np.isnan(found) else found) == expected

import numpy as np
import polars as pl
import pytest

from wallscope.model.schemas import NAMES, WINDOWS
from wallscope.trace.kernel_classes import find_replayed_attention

KERNELS = {
    "F": "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>(flash::Flash_fwd_params)",
    "B": "void flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<x>(flash::Flash_bwd_params)",
    "o": "void flash::flash_bwd_dot_do_o_kernel<x>(flash::Flash_bwd_params)",
    "c": "void flash::flash_fwd_splitkv_combine_kernel<x>(flash::Flash_fwd_params)",
    "g": "nvjet_tst_128x8_NTN",
}


def replays(kernels: str, windows=((0, 10_000),)) -> str:
    """The kernels with those that are told in lower case turned to `*`; one starts every 10 ns."""
    letters = sorted(KERNELS)
    is_attention = np.array([letter != "g" for letter in kernels], np.bool_)
    name = np.array([letters.index(letter) for letter in kernels], np.int64)[is_attention]
    start_ns = 10 * np.flatnonzero(is_attention)
    names = pl.DataFrame(
        [(row, KERNELS[letter]) for row, letter in enumerate(letters)], schema=NAMES, orient="row"
    )
    bounds = pl.DataFrame(
        [(0, step, start, end) for step, (start, end) in enumerate(windows)], schema=WINDOWS, orient="row"
    )
    told = set((start_ns // 10)[find_replayed_attention(name, start_ns, bounds, names)].tolist())
    return "".join("*" if op in told else letter for op, letter in enumerate(kernels))


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        pytest.param("FFFFFBFBFBFB", "FFFF*B*B*B*B", id="every layer again"),
        pytest.param("FgcFgFFFgoBgFoBFgoBFoB", "FgcFgFF*goBg*oB*goB*oB", id="with kernels between"),
        pytest.param("FFFFBBFBFB", "FFFFBB*B*B", id="the first two layers again"),
        pytest.param("FFFFFFFFBBFFBBFFBB", "FFFFFF**BB**BB**BB", id="two layers a checkpoint"),
        pytest.param("FFFFBFBFB" * 2, "FFF*B*B*B" * 2, id="two microbatches"),
        pytest.param(
            "FFFFFFFBFBFB" + "FFFFBFBFB" + "FBFBFB", "FFFFFF*B*B*B" + "FFF*B*B*B" + "*B*B*B", id="1F1B"
        ),
        pytest.param("FFFFBBBB", "FFFFBBBB", id="no replay"),
        pytest.param("FFBB" * 3, "FFBB" * 3, id="microbatches without replay"),
        pytest.param("FFFFFFBBFFBBFFBBBB", "FFFFFFBBFFBBFFBBBB", id="1F1B without replay"),
        pytest.param("FFFFFFFFFBBB" * 2, "FFFFFFFFFBBB" * 2, id="an encoder that is not trained"),
        pytest.param("FFFFFFFF", "FFFFFFFF", id="evaluation"),
        pytest.param("BFBFB", "BFBFB", id="cut at the front"),
        pytest.param("FFFFFBFBFB", "FFFFFBFBFB", id="cut at the end"),
        pytest.param("", "", id="nothing"),
        pytest.param("ggg", "ggg", id="no attention"),
    ],
)
def test_forward_attention_between_backward_attention_is_a_replay_where_the_account_balances(
    kernels, expected
):
    assert replays(kernels) == expected


def test_each_step_is_an_account_of_its_own():
    step = "FFFFBFBFB"

    assert replays(step + step[:5], [(0, 90), (90, 140)]) == "FFF*B*B*B" + step[:5]
    assert replays(step, [(100, 200)]) == step

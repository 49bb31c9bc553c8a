"""Short names: what is cut, what stays apart, and that the full text is not lost."""

from html import unescape

import pytest

from wallscope.model.section import Cell, Column, Grid
from wallscope.render.html import lay_out
from wallscope.render.texts import shorten_name

FUNCTOR = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{}<float>, std::array<char*, 2ul>>(int)"
)


@pytest.mark.parametrize(
    ("full", "short"),
    [
        ("nvjet_tst_256x128_64x4_1x2_h_bz_TNT", "nvjet_tst_256x128_64x4_1x2_h_bz_TNT"),
        ("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 64>>(flash::Params)", "flash_fwd_kernel"),
        ("void (anonymous namespace)::softmax<float>(float *, int)", "softmax"),
        ("at::native::(anonymous namespace)::CatArrayBatchedCopy<int>(int*)", "CatArrayBatchedCopy"),
        ("cutlass_80_tensorop_s1688gemm(Params) on stream 7", "cutlass_80_tensorop_s1688gemm on stream 7"),
        ("step / forward / backward", "… / forward / backward"),
        ("megatron.core.transformer.attention", "transformer.attention"),
        ("rank 3 (process 1, device 0)", "rank 3 (process 1, device 0)"),
        ("cudaStreamSynchronize", "cudaStreamSynchronize"),
        ("<unnamed>", "<unnamed>"),
        ("", ""),
    ],
)
def test_names_are_cut_to_what_tells_them_apart(full, short):
    assert shorten_name(full) == short


def test_kernels_of_one_template_stay_apart():
    names = {shorten_name(FUNCTOR.format(one)) for one in ("CUDAFunctor_add", "MulFunctor", "FillFunctor")}

    assert len(names) == 3


def test_a_table_keeps_the_full_name_for_tooltips_and_csv():
    full = FUNCTOR.format("CUDAFunctor_add")
    grid = Grid("", (Column("name", "kernel"), Column("message", "said")), ((full, full),))
    ((named, said),) = lay_out(grid)["rows"]

    assert (named["full"], named["cell"].hint) == (full, full)
    assert str(named["cell"].value) == "vectorized_elementwise_kernel CUDAFunctor_add"
    assert said["full"] == ""


def test_a_path_that_was_cut_before_keeps_its_last_two_parts():
    full = "train_step / forward / layer.attention.self_attention / nccl:all_to_all"
    grid = Grid("", (Column("path", "in"),), ((Cell("… / nccl:all_to_all", hint=full),),))
    (((named),),) = lay_out(grid)["rows"]

    assert str(named["cell"].value) == "… / attention.self_attention / nccl:all_to_all"
    assert named["cell"].hint == full


@pytest.mark.parametrize(
    ("values", "title", "shown"),
    [
        ((900, 1_500), "takes (µs)", ["0.9", "1.5"]),
        ((90, 2_500_000, None), "takes (ms)", ["90 ns", "2.5", "unknown"]),
    ],
)
def test_a_column_of_durations_has_one_unit_in_its_head(values, title, shown):
    grid = Grid("", (Column("duration_ns", "takes", "duration"),), tuple((value,) for value in values))
    block = lay_out(grid)

    assert block["columns"][0]["title"] == title
    assert [unescape(str(row[0]["cell"].value)) for row in block["rows"]] == shown
    assert [row[0]["sort"] for row in block["rows"]] == list(values)

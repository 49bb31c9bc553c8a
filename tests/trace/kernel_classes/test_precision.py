import polars as pl
import pytest

from wallscope.model.schemas import NAMES
from wallscope.trace.kernel_classes import infer_precisions


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_NTN", "bf16", id="nvjet bfloat16"),
        pytest.param("nvjet_tss_64x32_64x16_1x2_h_bz_splitK_TNT", "bf16", id="nvjet bfloat16 to float"),
        pytest.param("nvjet_hsh_192x128_64x5_2x1_v_bz_coopB_NNT", "fp16", id="nvjet half"),
        pytest.param("nvjet_sm100_tst_256x128_64x5_2x4_2cta_h_bz_NTT", "bf16", id="nvjet on Blackwell"),
        pytest.param(
            "nvjet_qqtst_128x160_128x6_2x1_v_bz_coopA_TNT", "fp8", id="nvjet 8-bit in, bfloat16 out"
        ),
        pytest.param(
            "nvjet_qqtst_128x256_128x6_2x2_2cta_h_bz_Avec32UE8M0_Bvec32UE8M0_TNT", "mxfp8", id="nvjet MXFP8"
        ),
        pytest.param(
            "nvjet_sm100_ootst_256x256_256x3_2x2_2cta_h_bz_Avec16UE4M3_Bvec16UE4M3_TNT",
            "nvfp4",
            id="E4M3 scales",
        ),
        pytest.param("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_nt", "bf16", id="bf16 holds f16"),
        pytest.param("ampere_fp16_s16816gemm_fp16_128x128_ldg8_relu_f2f_tn", "fp16", id="fp16"),
        pytest.param("volta_h884gemm_64x64_ldg8_nn", "fp16", id="Volta's half"),
        pytest.param(
            "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>(x)",
            "tf32",
            id="s1688",
        ),
        pytest.param("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16", "tf32", id="xmma TF32"),
        pytest.param("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3", "fp32", id="xmma FP32"),
        pytest.param("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "bf16", id="xmma bf16"),
        pytest.param("sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64", "fp16", id="xmma half"),
        pytest.param("sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize128x128x128", "fp8", id="xmma 8-bit"),
        pytest.param("volta_sgemm_128x32_sliced1x4_tn", "fp32", id="sgemm"),
        pytest.param("volta_gcgemm_32x32_nt", "fp32", id="complex floats"),
        pytest.param("volta_dgemm_64x64_nn", "fp64", id="dgemm"),
        pytest.param(
            "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 4, 4, true>(x)", "fp32", id="template float"
        ),
        pytest.param(
            "void gemv2T_kernel_val<int, int, __half, __half, float, 128>(x)", "fp16", id="half before float"
        ),
        pytest.param(
            "void cutlass::device_kernel<GemmUniversal<cutlass::float_e4m3_t>>(x)", "fp8", id="CUTLASS"
        ),
        pytest.param("void deep_gemm::fp8_gemm_kernel<7168u>(x)", "fp8", id="DeepGEMM"),
        pytest.param("cutlass_80_tensorop_i16832gemm_s8_256x128_64x3_tn_align16", "int8", id="int8"),
        pytest.param("reduce_halfwarp_kernel(int)", "unknown", id="half a warp"),
        pytest.param("behalf_kernel(int)", "unknown", id="a word that ends in half"),
        pytest.param("void mine<half2>(half2 const*)", "fp16", id="pairs of halves"),
        pytest.param("void mine<c10::Half>(c10::Half*)", "fp16", id="PyTorch's half"),
        pytest.param("masked_gemv(uint8_t *, float *)", "fp32", id="bytes of a mask"),
        pytest.param("mine(int8_t *)", "int8", id="bytes with a sign"),
        pytest.param("setup_grouped_gemm_kernel(void **)", "unknown", id="no format at all"),
        pytest.param("_grouped_gemm_forward_kernel", "unknown", id="Triton does not tell"),
    ],
)
def test_names_of_matrix_multiplications_tell_their_precision(name, expected):
    found = infer_precisions(pl.DataFrame([(7, name)], schema=NAMES, orient="row"))

    assert found.rows() == [(7, expected)]

"""Bytes of pointwise kernels by their names, and the time that memory needs for them."""

import pytest

from wallscope.summary.kernel_bytes import count_block_bytes

OLD, NEW = "at::detail::Array<char*, {}>", "std::array<char *, (unsigned long){}>"


def name(functor, arrays, written=OLD, width="4"):
    return (
        f"void at::native::vectorized_elementwise_kernel<{width}, at::native::{functor},"
        f" {written.format(arrays)} >(int, T2, T3)"
    )


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        pytest.param(name("CUDAFunctor_add<float>", 3), 512 * 4 * 3, id="float"),
        pytest.param(name("FillFunctor<double>", 1), 512 * 8, id="one array"),
        pytest.param(name("Gelu::[lambda(c10::BFloat16) (instance 1)]", 2), 512 * 2 * 2, id="two bytes"),
        pytest.param(name("CUDAFunctor_add<c10::Half>", 3, NEW, "8"), 1024 * 2 * 3, id="wide loads"),
        pytest.param(name("CUDAFunctor_add<c10::Half>", 3, NEW), 0, id="blocks of either size"),
        pytest.param(name("MulFunctor<float>", 3, NEW, "(int)4"), 512 * 4 * 3, id="as nsys writes it"),
        pytest.param(name("AUnaryFunctor<float, float, bool, Eq<float>>", 2), 0, id="two types"),
        pytest.param(name("bfloat16_copy_kernel_cuda::[lambda(float)]", 2), 0, id="a cast"),
        pytest.param("void at::native::unrolled_elementwise_kernel<float, Array<char*, 2>>()", 0, id="other"),
    ],
)
def test_a_name_gives_the_bytes_of_a_block(kernel, expected):
    assert count_block_bytes(kernel) == expected

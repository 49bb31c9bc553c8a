"""Names of CUDA API calls: one spelling of each entry point, and what it is for."""

import csv
from pathlib import Path

import polars as pl
import pytest

from wallscope.nsys.calls import express_roles, normalize_call_names

KNOWN = Path(__file__).with_name("cuda_api_names.csv")
"""Every name of the runtime and the driver from CUDA 10 to 13, some that may come, and the role of each."""


def normalized(*names):
    return pl.DataFrame({"text": names}).select(normalize_call_names("text"))["text"].to_list()


def known_names():
    with KNOWN.open(newline="") as file:
        return [(row["name"], row["role"]) for row in csv.DictReader(file)]


def test_every_name_of_cuda_has_its_role():
    names, roles = zip(*known_names(), strict=True)
    found = pl.DataFrame({"text": normalized(*names)}).select(role=express_roles("text"))["role"].to_list()

    assert len(names) > 1_400
    told = zip(names, roles, found, strict=True)
    assert [(name, role, got) for name, role, got in told if role != got] == []


def test_every_name_of_cuda_loses_its_version_and_flavour():
    names = [name for name, _ in known_names()]
    short = normalized(*names)

    assert [name for name in short if "_" in name] == []
    assert [name for name, left in zip(names, short, strict=True) if not _is_spelling(name, left)] == []
    assert normalized(*short) == short


def _is_spelling(name, left):
    """Whether all that is cut off a name is underscores before it, or versions and flavours behind it."""
    begin, *behind = name.removeprefix("__").split("_")
    flavours = [one for one in behind if one in {"ptsz", "ptds"} or one[1:].isdecimal()]
    return behind == flavours and begin.replace("cu64", "cu") == left


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaStreamSynchronize_ptsz_v7000", "cudaStreamSynchronize"),
        ("cudaStreamSynchronize_v3020", "cudaStreamSynchronize"),
        ("cudaMemcpy_v3020_ptds", "cudaMemcpy"),
        ("cuMemcpyDtoHAsync_v2_ptsz", "cuMemcpyDtoHAsync"),
        ("cuMemHostRegister_v2", "cuMemHostRegister"),
        ("cudaGetDeviceProperties_v2_v12000", "cudaGetDeviceProperties"),
        ("cuGetProcAddress_v2", "cuGetProcAddress"),
        ("cudaMemPrefetchAsync_v2_ptsz_v12020", "cudaMemPrefetchAsync"),
        ("__cudaLaunchKernel_ptsz_v13000", "cudaLaunchKernel"),
        ("cu64MemcpyDtoHAsync", "cuMemcpyDtoHAsync"),
        pytest.param("cudaMemcpy2D_v3020", "cudaMemcpy2D", id="a number that is part of the name"),
        ("cuLaunchKernelEx_ptsz", "cuLaunchKernelEx"),
        ("cuLaunchKernel_ptsz", "cuLaunchKernel"),
        ("cudaLaunchKernelExC_v11060_ptsz", "cudaLaunchKernelExC"),
        ("cudaGraphLaunch_v10000", "cudaGraphLaunch"),
        ("cuMemsetD2D32_v2_ptds", "cuMemsetD2D32"),
        ("cuStreamWaitValue32_v2_ptsz", "cuStreamWaitValue32"),
        pytest.param("MPI_Send_v2", "MPI_Send_v2", id="no name of CUDA"),
        ("", ""),
    ],
)
def test_an_entry_point_has_one_name(name, expected):
    assert normalized(name) == [expected]

"""Peaks of GPUs: of data sheets by whole names, computed from a capture, or unknown."""

import tomllib
from dataclasses import replace

import pytest

from tests.real.answers import TRACES
from wallscope.files import read_toml
from wallscope.model.capture import Gpu
from wallscope.model.enums import Precision
from wallscope.trace.gpu_peaks import find_peak, list_peaks

SHEET = TRACES.parent / "speed_of_light" / "peaks.toml"


def gpu(name, architecture="sm_90", multiprocessors=None, clock_mhz=None):
    return Gpu(0, name, architecture, multiprocessors, None, None, clock_mhz and clock_mhz * 1_000_000)


def tera(one, precision):
    found = find_peak(one, Precision(precision))
    return None if found is None else found.flops_per_s / 1e12


@pytest.mark.parametrize(
    ("one", "precision", "expected"),
    [
        pytest.param(gpu("NVIDIA H100 80GB HBM3"), "bf16", 989.4, id="of the data sheet"),
        pytest.param(gpu("NVIDIA H100 80GB HBM3"), "fp16", 989.4, id="FP16 as BF16"),
        pytest.param(gpu("NVIDIA H100 80GB HBM3"), "mxfp8", 1_978.9, id="MXFP8 as FP8"),
        pytest.param(gpu("NVIDIA A100-SXM4-80GB"), "fp32", 19.5, id="FP32 without tensor cores"),
        pytest.param(gpu("Tesla V100-SXM2-16GB"), "fp16", 125, id="FP16 alone"),
        pytest.param(gpu("Tesla V100-SXM2-16GB"), "bf16", None, id="a GPU without BF16"),
        pytest.param(gpu("NVIDIA H100 80GB HBM3"), "fp64", None, id="a rate that is not listed"),
        pytest.param(gpu("NVIDIA H800", multiprocessors=132), "bf16", 989.4, id="SXM by multiprocessors"),
        pytest.param(gpu("NVIDIA H800", multiprocessors=114), "bf16", 756, id="PCIe by multiprocessors"),
        pytest.param(gpu("NVIDIA H800"), "bf16", None, id="one of several boards"),
        pytest.param(gpu("NVIDIA H800", multiprocessors=100), "bf16", None, id="none of several boards"),
        pytest.param(gpu("AMD Instinct MI300X VF", None), "fp8", 2_614.9, id="AMD"),
        pytest.param(
            gpu("NVIDIA RTX 5000 Ada Generation Laptop GPU", "sm_89", 76, 1_680),
            "bf16",
            76 * 1.68e-3 * 1024,
            id="computed",
        ),
        pytest.param(
            gpu("NVIDIA GeForce RTX 4060 Laptop GPU", "sm_89", 24, 1_890),
            "bf16",
            24 * 1.89e-3 * 512,
            id="computed at half rate",
        ),
        pytest.param(
            gpu("NVIDIA GeForce RTX 2080 Ti", "sm_75", 68, 1_545),
            "bf16",
            None,
            id="an architecture without BF16",
        ),
        pytest.param(
            gpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "sm_80", 14, 1_410), "bf16", None, id="a MIG slice"
        ),
        pytest.param(gpu("NVIDIA H20", multiprocessors=78, clock_mhz=1_980), "bf16", 148, id="H20 is listed"),
        pytest.param(
            gpu("NVIDIA H20-3e", multiprocessors=78, clock_mhz=1_980),
            "bf16",
            None,
            id="slower than its architecture",
        ),
        pytest.param(gpu("NVIDIA L20", "sm_89", 92, 2_520), "bf16", None, id="another such"),
        pytest.param(
            gpu("GeForce GTX 1650", "sm_75", 14, 1_665), "fp16", None, id="Turing without tensor cores"
        ),
        pytest.param(
            gpu("NVIDIA RTX PRO 6000", "sm_120", 188, 2_600), "bf16", None, id="rates differ by product"
        ),
        pytest.param(
            gpu("NVIDIA GeForce RTX 3070", "sm_86", 46), "bf16", None, id="no clock, as in PyTorch traces"
        ),
        pytest.param(gpu(None, "sm_80", 108, 1_410), "bf16", None, id="no name"),
        pytest.param(gpu("NVIDIA Thing", None, 108, 1_410), "bf16", None, id="no architecture"),
    ],
)
def test_a_peak_is_that_of_the_sheet_or_computed_or_unknown(one, precision, expected):
    assert tera(one, precision) == (None if expected is None else pytest.approx(expected))


def test_what_a_peak_rests_on_is_said():
    computed = find_peak(gpu("NVIDIA GeForce RTX 3070", "sm_86", 46, 1_845), Precision.TF32)

    assert computed.source == "computed from 46 multiprocessors at 1845 MHz, no data sheet known"
    assert find_peak(gpu("Tesla T4"), Precision.FP16).source == "NVIDIA T4 data sheet"


@pytest.mark.parametrize(
    ("one", "clock_mhz"),
    [
        (gpu("NVIDIA GeForce RTX 3090", "sm_86", 82, 1_695), 1_695),
        (gpu("NVIDIA H800", "sm_90", 132, 1_980), 1_830),
        (gpu("NVIDIA H800", "sm_90", 114, 1_980), 1_620),
        (gpu("NVIDIA GeForce RTX 3070", "sm_86", 46, 1_845), 1_845),
        (gpu("NVIDIA L4", "sm_89", 60, 2_040), None),
    ],
)
def test_the_clock_of_a_peak_is_that_of_its_source(one, clock_mhz):
    clock_hz = list_peaks(one).clock_hz

    assert clock_hz == (None if clock_mhz is None else clock_mhz * 1e6)


def test_names_are_listed_once_or_told_apart():
    seen = set()
    for table in read_toml("trace/peaks.toml")["gpu"]:
        assert set(table["rates"]) <= set(Precision)
        for name in table["names"]:
            assert (name, table.get("multiprocessors")) not in seen
            assert (name, None) not in seen or "multiprocessors" not in table
            seen.add((name, table.get("multiprocessors")))


def test_the_rule_gives_the_rates_of_the_sheets_that_state_their_clock():
    """Of GPUs with the same cores: within 4 %, as sheets round and some use another clock."""
    for name, architecture, multiprocessors, clock_mhz in (
        ("NVIDIA A100-SXM4-80GB", "sm_80", 108, 1_410),
        ("NVIDIA A40", "sm_86", 84, 1_740),
        ("NVIDIA H200", "sm_90", 132, 1_830),
        ("NVIDIA GeForce RTX 3090", "sm_86", 82, 1_695),
        ("NVIDIA GeForce RTX 4090", "sm_89", 128, 2_520),
        ("Tesla T4", "sm_75", 40, 1_590),
    ):
        known = gpu(name, architecture, multiprocessors, clock_mhz)
        like = replace(known, name=f"NVIDIA {'GeForce' if 'GeForce' in name else 'RTX'} unlisted")
        for precision in ("fp16", "bf16", "tf32"):
            if (expected := tera(known, precision)) is not None:
                assert tera(like, precision) == pytest.approx(expected, rel=0.04)


@pytest.mark.skipif(not SHEET.exists(), reason="shared/speed_of_light is not here")
def test_the_rates_are_those_that_were_collected_apart():
    wanted = {"fp32", "tf32", "fp16", "bf16", "fp8"}
    for table in tomllib.loads(SHEET.read_text(encoding="utf-8"))["gpu"]:
        for name in set(table["names"]) - {"NVIDIA A10G", "NVIDIA H800"}:
            for precision in wanted & set(table):
                assert tera(gpu(name, table["arch"]), precision) == pytest.approx(table[precision], rel=1e-3)

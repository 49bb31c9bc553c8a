"""Values of an independent calculation of fifteen captures, and the same by wallscope.

`python -m tests.summary.speed_of_light.truth_values` prints them side by side.
"""

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options, Selection
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import ComputeCategory, Precision
from wallscope.model.speed_of_light import AT_PEAK, BelowPeak, LedgerLine
from wallscope.pipeline import analyze

SHARED = Path(__file__).resolve().parents[4] / "shared"
TRUTH = SHARED / "speed_of_light" / "truth.json"
GEMM = ComputeCategory.GEMM
_ADDED = ("time_ms", "tflop")
_SIXTEEN = (Precision.BF16, Precision.FP16)
_MATRICES = (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM, ComputeCategory.CONVOLUTION)


def _decoder(hidden, layers, heads, batch, sequence):
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": 10_000,
        "micro_batch_size": batch,
        "seq_length": sequence,
    }


_VIT = {
    "model_type": "vit",
    "hidden_size": 384,
    "intermediate_size": 1_536,
    "num_hidden_layers": 12,
    "num_attention_heads": 8,
    "image_size": [360, 720],
    "patch_size": 8,
    "num_channels": 20,
    "encoder_stride": 8,
    "micro_batch_size": 16,
}
CONFIGURATIONS = {
    **dict.fromkeys(("nersc_sc23_dali", "nersc_sc23_dali_bf16", "nersc_sc23_dali_bf16_fused_jit"), _VIT),
    **dict.fromkeys(("cs336_zx_2.7B", "cs336_zx_2.7B_clean"), _decoder(2_560, 32, 32, 4, 512)),
    "cs336_tianshi_small": _decoder(2_560, 32, 32, 4, 128),
    "cs336_tianshi_result": _decoder(1_280, 12, 20, 4, 256),
    "cs336_zx_result": _decoder(768, 12, 12, 4, 128),
    "cs336_athrun": _decoder(768, 12, 12, 4, 64),
}
"""Of captures whose model is known, as `config.json` of Hugging Face with batch and sequence."""
_DEEPSEEK = {
    "num_layers": 8,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "vocab_size": 129_280,
    "num_moe_experts": 256,
    "moe_router_topk": 8,
    "moe_ffn_hidden_size": 2048,
    "moe_shared_expert_intermediate_size": 2048,
    "multi_latent_attention": True,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_head_dim": 128,
    "qk_pos_emb_head_dim": 64,
    "v_head_dim": 128,
    "swiglu": True,
    "seq_length": 4096,
    "micro_batch_size": 1,
    "global_batch_size": 64,
    "pipeline_model_parallel_size": 2,
    "expert_model_parallel_size": 64,
    "world_size": 128,
    "recompute_granularity": "selective",
    "recompute_modules": ["mla_up_proj"],
}
"""A stage of four layers without an output layer, as the published capture has."""
STEP_RANGES = {"tracelens_b200_eager": "execute_context.*"}
"""Ranges that hold what the calculation takes as a step."""
SETTINGS = {"ds_train": _DEEPSEEK}
"""The same as settings of Megatron."""
WHOLE = {"ds_train": Selection(time_ns=(533_000, 129_545_000))}
"""Where the calculation is from the first kernel to the last, and a step begins with time of the host."""
ALL_STEPS = {"hta_sampled_rank0": (0, 1)}
"""Steps that the calculation takes together, of which the last is cut by the end of the capture."""
USER_FLOPS = {"cs336_zx_2.7B_compile_graph": 14.0209e12}
"""Of a CUDA graph without kernels, which no configuration can be checked against."""


def read_captures():
    """What is known of each capture, by its name."""
    return json.loads(TRUTH.read_text(encoding="utf-8"))["captures"] if TRUTH.is_file() else {}


@cache
def find_rank(name, step=None):
    """The rank of a capture, with the configuration of its model; of one step if it is given."""
    written = CONFIGURATIONS.get(name, SETTINGS.get(name))
    file = read_captures()[name]["file"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("config.json" if name in CONFIGURATIONS else "run.yaml")
        if written is not None:
            path.write_text(json.dumps(written), encoding="utf-8")
        options = Options(
            configuration=None if written is None else path,
            step_facts=StepFacts(flops=USER_FLOPS.get(name)),
            step_range=STEP_RANGES.get(name),
            selection=WHOLE.get(name, Selection()) if step is None else Selection(steps=(step, step)),
        )
        return analyze(SHARED / "traces" / file, options, lambda _: None).ranks[0]


def measure(name, what):
    """A value of a capture by wallscope; `None` if it does not state it, `KeyError` if it has none such."""
    if name in ALL_STEPS and what.endswith(_ADDED):
        return sum(measure_rank(find_rank(name, step), what) for step in ALL_STEPS[name])
    return measure_rank(find_rank(name), what)


def measure_rank(rank, what):
    """A value of a rank by wallscope; `None` if it does not state it, `KeyError` if it has none such."""
    found = rank.speed_of_light
    subject, _, value = what.rpartition(".")
    if what in _FLOORS:
        return _FLOORS[what](found) / 1e6
    if subject:
        return _measure_category(found, subject, value)
    known = {
        "window_ms": found.window_ns / 1e6,
        "compute_running_ms": rank.typical.budget.compute / 1e6,
        "model_tflop": found.model_flops and found.model_flops / 1e12,
        "executed_tflop": found.executed_flops and found.executed_flops / 1e12,
        "known_executed_tflop": found.executed_flops and found.executed_flops / 1e12,
        "ideal_16bit_ms": _find_ideal(found),
        "mfu": found.mfu,
        "hfu": found.hfu,
        "mfu_16bit": found.mfu_16bit,
        "achieved_model_tflops": found.model_flops_per_s and found.model_flops_per_s / 1e12,
        "hfu_lower_bound": found.total(*AT_PEAK) / found.window_ns,
        "peak": found.peak,
    }
    return known[what]


def _sum_reason(found, reason):
    """Time that a reason explains."""
    return sum(each.ns or 0 for one in found.lines for each in one.explained_by if each.reason is reason)


def _sum_repeated(found):
    """Time of recomputed kernels that do not multiply."""
    return found.total(LedgerLine.RECOMPUTATION) - sum(one.repeated_ns for one in found.matrices)


def _sum_extra(found):
    """Time of what is computed twice, with recomputed products at the peak."""
    again = [one for one in found.matrices if one.repeated_flops]
    at_peak_s = sum(one.repeated_flops / found.peak.find_rate(one.precision) for one in again)
    return found.total(LedgerLine.COMPUTED_TWICE) + at_peak_s * 1e9


_FLOORS = {
    "gemm.flop_floor_ms": lambda found: found.total(*AT_PEAK),
    "gemm.roofline_ms": lambda found: found.total(*AT_PEAK) + _sum_reason(found, BelowPeak.FEW_ROWS),
    "line.memory-bound kernels": lambda found: (
        _sum_memory_bound(found) + _sum_repeated(found) * any(one.repeated_ns for one in found.matrices)
    ),
    "line.extra FLOPs": _sum_extra,
    "line.precision below 16-bit rate": lambda found: found.total(LedgerLine.PRECISION),
    "line.emulated precision": lambda found: found.total(LedgerLine.EMULATED_PRECISION),
}


def _find_ideal(found):
    """Time of the model FLOPs at the 16-bit peak."""
    if found.mfu is None and found.mfu_16bit is not None:
        return found.mfu_16bit * found.window_ns / 1e6
    return found.total(LedgerLine.IDEAL_MATH) / 1e6


def _sum_memory_bound(found):
    """Time of compute kernels that do not multiply; additions of products are apart."""
    lines = (LedgerLine.COMPUTE_UNKNOWN, LedgerLine.AT_BANDWIDTH, LedgerLine.ABOVE_FLOOR)
    return sum(
        one.ns
        for one in found.lines
        if one.line in lines and one.category not in {*_MATRICES, ComputeCategory.ATTENTION}
    )


def _measure_category(found, subject, value):
    """A value of a category of kernels, or of one of its precisions."""
    named, _, precision = subject.partition("|")
    kept = found.source == "configuration" and any(one.precision is Precision.FP8 for one in found.matrices)
    if named == "router":  # in 16 bits beside FP8
        own = [one for one in found.matrices if kept and one.category is GEMM and one.precision in _SIXTEEN]
    else:
        categories = _MATRICES if named == "gemm" else (ComputeCategory(named),)
        own = [one for one in found.matrices if one.category in categories]
        own = [one for one in own if not kept or named != "gemm" or one.precision is Precision.FP8]
    if precision:
        own = [one for one in own if one.precision is Precision(precision)]
    time_ns = sum(one.ns + one.repeated_ns for one in own)
    flops = sum(one.executed_flops + one.repeated_flops for one in own)
    if value == "time_ms":
        return time_ns / 1e6
    if value == "achieved_tflops":
        return flops / time_ns / 1e3
    if any(one.peak_share is None for one in own):
        return None
    at_peak_ns = sum(one.ns * one.peak_share * (1 + one.repeated_flops / one.executed_flops) for one in own)
    return {"peak_share": at_peak_ns / time_ns, "below_peak_ms": (time_ns - at_peak_ns) / 1e6}[value]


def list_values():
    """Name, value and tolerance of all values of all captures."""
    for name, capture in read_captures().items():
        for told in capture["values"]:
            yield name, told["what"], told["value"], told["rel_tolerance"]


def is_met(name, what, value, tolerance):
    """Whether wallscope states a value, within its tolerance, or none where none can be known."""
    try:
        found = measure(name, what)
    except (KeyError, ValueError, ZeroDivisionError, TypeError):
        return False
    if value is None or found is None:
        return value is found
    return found == pytest.approx(value, rel=tolerance)


def print_table():
    """Print which values are met."""
    count = met = 0
    for name, what, value, tolerance in list_values():
        try:
            found = measure(name, what)
        except (KeyError, ValueError, ZeroDivisionError, TypeError, NothingToAnalyzeError) as error:
            found = type(error).__name__
        is_good = is_met(name, what, value, tolerance)
        count, met = count + 1, met + is_good
        print(f"{name:32} {what:34} {value!s:>12} {found!s:>22} {'' if is_good else 'NOT MET'}")  # noqa: T201
    print(f"{met} of {count} values are met")  # noqa: T201


if __name__ == "__main__":
    print_table()

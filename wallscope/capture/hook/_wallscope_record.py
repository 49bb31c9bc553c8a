"""Writes what this process counted and measured, so that a killed run still says how far it came."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any

from _wallscope_profilers import find_rank

if TYPE_CHECKING:
    from _wallscope_steps import StepCounter

SCHEMA = "wallscope-capture-record-1"
_PREFIXES = ("NCCL_", "NVTE_", "TORCH_NCCL_")
_NAMES = (
    *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_MODULE_LOADING", "PYTORCH_ALLOC_CONF"),
    *(
        "PYTORCH_CUDA_ALLOC_CONF",
        "OMP_NUM_THREADS",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "LOCAL_RANK",
        "SLURM_NNODES",
    ),
)
_MODULES = (
    *("torch", "numpy", "transformers", "accelerate", "lightning", "pytorch_lightning", "deepspeed"),
    *("megatron.core", "megatron.bridge", "transformer_engine", "flash_attn", "triton", "apex", "jax"),
)
_SIZES = {
    "tensor": "get_tensor_model_parallel_world_size",
    "pipeline": "get_pipeline_model_parallel_world_size",
    "context": "get_context_parallel_world_size",
    "data": "get_data_parallel_world_size",
    "expert": "get_expert_model_parallel_world_size",
    "expert_tensor": "get_expert_tensor_parallel_world_size",
}


def write_record(counter: StepCounter) -> None:
    """Replace the record of this process: one that is read is whole."""
    options, profiler = counter.options, counter.profiler
    rank, host = find_rank(), os.uname().nodename
    ends, first, last = counter.ends_ns, counter.first, counter.last
    gaps = [after - before for before, after in zip(ends, ends[1:])]  # gap i is the time of step i + 1
    offset = time.time_ns() - time.perf_counter_ns()
    content = {
        "schema": SCHEMA,
        "run": options["run"],
        "report": profiler.name_report(),
        "profiler": options["profiler"],
        "start": options["start"],
        "rank": rank,
        "host": host,
        "pid": os.getpid(),
        "phase": counter.phase,
        "is_early": counter.is_early,
        "steps": counter.done,
        "captured_steps": max(min(counter.done, last) - first, 0) if counter.phase != "warm-up" else 0,
        "skip": counter.skip,
        "first_captured": first,
        "source": counter.source,
        "optimizers": [
            {"class": one.name, "steps": one.count, "ends_step": one is counter.anchor}
            for one in counter.optimizers.values()
        ],
        "marks": profiler.marks,
        "skipped": counter.skipped,
        "notes": counter.notes,
        "errors": counter.errors,
        "before_ns": gaps[max(counter.skip // 2, 1) - 1 : counter.skip - 1],
        "during_ns": gaps[first - 1 : last - 1] if counter.phase != "warm-up" else [],
        "after_ns": gaps[counter.stop :] if counter.phase in ("after", "over") else [],
        "durations_ns": profiler.durations_ns,
        "began_epoch_ns": profiler.began_epoch_ns,
        "ended_epoch_ns": profiler.ended_epoch_ns,
        "step_ends_epoch_ns": [end + offset for end in ends[counter.skip - 1 : counter.stop]],
        "python": "%d.%d.%d" % sys.version_info[:3],
        "versions": _list_versions(),
        "parallel": _list_sizes(),
        "environment": {
            name: value for name, value in os.environ.items() if name in _NAMES or name.startswith(_PREFIXES)
        },
    }
    path = os.path.join(options["folder"], "hook-%s-rank-%d-%d.json" % (host, rank, os.getpid()))
    try:
        with open(path + ".part", "w", encoding="utf-8") as file:
            json.dump(content, file)
        os.replace(path + ".part", path)
    except OSError as error:
        sys.stderr.write(f"wallscope: {path} cannot be written: {error.strerror}\n")


def _list_versions() -> dict[str, str]:
    found = {}
    for name in _MODULES:
        version = getattr(sys.modules.get(name), "__version__", None)
        if version is not None:
            found[name] = str(version)
    torch: Any = sys.modules.get("torch")
    for name in ("cuda", "hip"):
        version = getattr(getattr(torch, "version", None), name, None)
        if version:
            found[name] = str(version)
    nccl: Any = sys.modules.get("torch.cuda.nccl")
    try:
        if torch is not None and nccl is not None and torch.cuda.is_initialized():
            found["nccl"] = ".".join(map(str, nccl.version()))
    except (AttributeError, RuntimeError, TypeError):
        pass
    return found


def _list_sizes() -> dict[str, int]:
    found = {}
    state = sys.modules.get("megatron.core.parallel_state")
    for name, function in _SIZES.items():
        try:
            size = getattr(state, function)()
        except Exception:  # the groups are not made
            continue
        if isinstance(size, int):
            found[name] = size
    distributed: Any = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            found["world"] = int(distributed.get_world_size())
    except (AttributeError, RuntimeError, ValueError):
        pass
    return found

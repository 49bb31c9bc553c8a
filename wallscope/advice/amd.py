"""Settings on GPUs of AMD: what only NVIDIA's software reads is left out, or replaced by its counterpart."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from wallscope.model.advice import Setting

_GPUS = re.compile(r"(?i)\bAMD\b|\bInstinct\b|\bRadeon\b|\bMI[1-9]\d{1,2}[A-Z]?\b|^gfx\d")
_DATA_CENTER = re.compile(r"(?i)\bInstinct\b|\bMI[1-9]\d{1,2}[A-Z]?\b|^gfx9")
_NVIDIA_ALONE = re.compile(r"NCCL_|NVTE_|NVSHMEM_|USE_MNNVL|NVLINK_|DEEP_EP_|NUM_OF_HYBRID_EP|CUDA_")
"""Beginnings of variables that only libraries of NVIDIA read; `TORCH_NCCL_` is for RCCL too."""
_COUNTERPARTS: Final[Mapping[str, str]] = {
    r"^PYTORCH_CUDA_ALLOC_CONF\b": "PYTORCH_HIP_ALLOC_CONF",
    r"^CUDA_VISIBLE_DEVICES\b": "HIP_VISIBLE_DEVICES",
    r"^nvidia-smi\b.*": "rocm-smi --showpids",
    r"^ncu\b.*": "rocprof-compute profile -n kernels -k <kernel> -- <program>",
    r"\bcuda(?=[A-Z])": "hip",
}
_BY_NVIDIA = re.compile(r"(?i)\bnvidia\b|\bdali\b|\bnsys\b|\btrtexec\b|transformer.engine|\bte\.")


def is_amd(gpu_name: str | None) -> bool:
    """Return whether a GPU of this name is one of AMD.

    >>> [is_amd(name) for name in ("AMD Instinct MI300X", "NVIDIA H100 80GB HBM3", None)]
    [True, False, False]
    """
    return gpu_name is not None and _GPUS.search(gpu_name) is not None


def name_amd_architecture(gpu_name: str) -> str:
    """Return the generation of a GPU of AMD in conditions: `cdna` has matrix cores for BF16, `rdna` may not.

    >>> name_amd_architecture("AMD Instinct MI210"), name_amd_architecture("AMD Radeon RX 7900 XTX")
    ('cdna', 'rdna')
    """
    return "cdna" if _DATA_CENTER.search(gpu_name) else "rdna"


def adapt_to_amd(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    """Return settings as programs on GPUs of AMD read them, without those that nothing there reads.

    >>> conf = Setting("environment", "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    >>> [one.write() for one in adapt_to_amd((conf, Setting("environment", "NCCL_NVLS_ENABLE", "0")))]
    ['PYTORCH_HIP_ALLOC_CONF=expandable_segments:True']
    """
    adapted = map(_adapt, settings)
    return tuple(one for one in adapted if one is not None)


def _adapt(setting: Setting) -> Setting | None:
    key = setting.key
    for pattern, counterpart in _COUNTERPARTS.items():
        key = re.sub(pattern, counterpart, key)
    is_of_nvidia = setting.system == "nsys" or _BY_NVIDIA.search(key) is not None
    if is_of_nvidia or (setting.system == "environment" and _NVIDIA_ALONE.match(key)):
        return None
    return replace(setting, key=key)

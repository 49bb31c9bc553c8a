"""Families of kernels: names without what an autotuner chooses, so that a retuned kernel is still the same.

`nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN` and `nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN` multiply alike;
tile sizes, stages, architectures and what stands in angle brackets are choices.
"""

import re

_RULES = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\(anonymous namespace\)", ""),
        (r"^(nvjet)_.*?_([NT]{2,3})\b.*$", r"\1_\2"),
        (r"^(?:void |static )", ""),
        (r"<.*$", ""),
        (r"\(.*$", ""),
        (r"^(?:sm|ampere|hopper|volta|turing|blackwell|maxwell|pascal)\d*_", ""),
        (r"_(?:sm|stages?|knob|tile|warps?|split_?k|cta|ldg|cluster)_?\d*(?:x\d+)*(?=_|$)", ""),
        (r"_?\d+x\d+(?:x\d+)*", ""),
        (r"\d+", "#"),
    )
)


def family(name: str) -> str:
    """What is left of a kernel's name.

    >>> family("nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNN"), family("void at::native::reduce<(int)512>(T3)")
    ('nvjet_TNN', 'at::native::reduce')
    >>> family("sm90_xmma_gemm_bf16_128x128x64_stages_3") == family("sm80_xmma_gemm_bf16_64x64x32_stages_4")
    True
    """
    for pattern, replacement in _RULES:
        name = pattern.sub(replacement, name)
    return name

"""Names folded: a thousand ranges that differ in a number are one row.

`aten::mm, op_id = 12, sizes = [[2, 3]]` and `aten::mm, op_id = 13` are both `aten::mm`;
`training_step_7` is `training_step_#`, `layer_3f-layer_2b` is `layer_#f-layer_#b`. Numbers that tell
things apart by kind (`conv2d`, `Backward0`, `fp8`, `sm90`) stay.
"""

import polars as pl

_COUNTED = (
    r"(?i)((?:^|[^a-z])(?:step|iter|iteration|layers?|micro_?batch|mb|batch|blocks?|stage|chunk|expert"
    r"|epoch|sample|rank|request|token|index|idx|id|no|num|pass|frame|worker|bucket|group)"
    r"[ _.:=#-]{0,2})\d+"
)
_RULES = (
    (r",\s*(op_id|seq|sizes|input_op_ids|stack|input_seq_ids)\s*=.*$", ""),
    (_COUNTED, "${1}#"),
    (r"([_ .:/#\[(=-])\d+(\b|[fb]\b)", "${1}#${2}"),
    (r"0x[0-9a-fA-F]+", "#"),
)


def folded(texts: pl.Series) -> pl.Series:
    """Each text with its running numbers replaced by `#`, of the same length and order.

    >>> folded(pl.Series(["aten::add, op_id = 314359", "training_step_12", "layer_3f-layer_10b"])).to_list()
    ['aten::add', 'training_step_#', 'layer_#f-layer_#b']
    >>> folded(pl.Series(["conv2d", "MulBackward0", "fp8_gemm", "step 3", "h.11.attn"])).to_list()
    ['conv2d', 'MulBackward0', 'fp8_gemm', 'step #', 'h.#.attn']
    """
    told = pl.col(texts.name)
    for pattern, replacement in _RULES:
        told = told.str.replace_all(pattern, replacement)
    return texts.to_frame().select(told).to_series()

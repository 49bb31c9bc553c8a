"""Attention kernels of the forward and of the backward pass, by their names.

Names are those of FlashAttention 2 and 3, cuDNN, PyTorch's memory-efficient attention, flex attention
and common Triton kernels.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags, Rows
from wallscope.arrays.lookup import places
from wallscope.text_memo import TextMemo
from wallscope.thresholds import FEWEST_ATTENTION_TURNS_COUNT
from wallscope.timeline.spans import Times

_BACKWARD = (
    r"(?i)flash_?bwd|flash_bprop|sdpa\w*bprop|FlashAttn(ention)?Bwd|FlashAttentionBackward|AttentionBackward"
    r"|(?-i:fmha_cutlassB)|fmha\w*_?bwd|mha_bwd|attn_bwd|bwd_attn|flex_attention_backward"
)
_FORWARD = (
    r"(?i)flash_?fwd|flash_fprop|sdpa\w*fprop|FlashAttn(ention)?Fwd|FlashAttentionForward|\bAttentionKernel"
    r"|(?-i:fmha_cutlassF)|fmha\w*_?fwd|mha_fwd|attn_fwd|fwd_attn|fused_flex_attention"
)
_BESIDE = r"(?i)dot_do_o|do_o_dot|convert_?d(q|k|v)|preprocess|postprocess|combine|finali[sz]e|reduce"
"""Kernels that help the one that does the work, and run as often or not."""

_IS_BACKWARD, _IS_FORWARD = 1, 2


@dataclass(frozen=True, slots=True)
class _Turn:
    """Forward attention kernels one after the other, the first of them, and the backward ones behind."""

    first: int
    forward: int
    backward: int


def replayed_attention(
    name: Rows, start_ns: Times, windows: pl.DataFrame, kernel_names: pl.DataFrame
) -> Rows:
    """Places of the forward kernels of one rank that are certain to run a second time in their step.

    A step without replays has as many forward as backward kernels, or more where a part of the model is
    not trained. Told are kernels that stand between backward ones, as many as the backward ones behind
    them, where each other forward kernel of the step has its backward one: the account has to balance.

    Args:
        name: of the attention kernels of one rank in order of start.
        start_ns: theirs.
        windows: `WINDOWS` of the rank; each is an account of its own.
        kernel_names: `NAMES`.
    """
    kind = _KINDS.of(kernel_names["text"].to_list())[places(name, kernel_names["name"].to_numpy())]
    place = np.flatnonzero(kind > 0)
    forward = kind[place] == _IS_FORWARD
    bounds = np.searchsorted(start_ns[place], windows.select("start_ns", "end_ns").to_numpy())
    rows = [first + row for first, last in bounds.tolist() for row in _replays(_turns(forward[first:last]))]
    return place[np.array(rows, np.int64)]


def _asked(texts: pl.Series) -> Rows:
    """Whether kernels of each name do attention forward or backward, and are none that merely help."""
    forward, backward, beside = (
        texts.str.contains(pattern).to_numpy() for pattern in (_FORWARD, _BACKWARD, _BESIDE)
    )
    return np.where(beside, 0, np.where(backward, _IS_BACKWARD, np.where(forward, _IS_FORWARD, 0)))


_KINDS = TextMemo(_asked)


def _turns(forward: Flags) -> list[_Turn]:
    edges = np.concatenate(([0], np.flatnonzero(np.diff(forward.astype(np.int8))) + 1, [forward.size]))
    lengths = np.diff(edges)
    begins = 0 if forward.size and forward[0] else 1
    turns = []
    for run in range(begins, lengths.size, 2):
        behind = int(lengths[run + 1]) if run + 1 < lengths.size else 0
        turns.append(_Turn(int(edges[run]), int(lengths[run]), behind))
    return turns


def _replays(turns: list[_Turn]) -> list[int]:
    """Rows of the replays; none where the account does not balance.

    Of a long run of forward kernels the last ones may be replays (all layers are recomputed) or not (the
    last layers are kept).
    """
    for last_are_replays in (True, False):
        open_forward, rows, between = 0, list[int](), 0
        for number, turn in enumerate(turns):
            if number and turn.forward == turn.backward and open_forward >= turn.forward:
                rows.extend(range(turn.first, turn.first + turn.forward))
                between += 1
                open_forward -= turn.forward
                continue
            replayed = turn.backward if last_are_replays else 0
            open_forward += turn.forward - turn.backward - replayed
            rows.extend(range(turn.first + turn.forward - replayed, turn.first + turn.forward))
            if turn.forward < turn.backward + replayed:
                break
        else:
            if between >= FEWEST_ATTENTION_TURNS_COUNT and open_forward == 0:
                return rows
    return []

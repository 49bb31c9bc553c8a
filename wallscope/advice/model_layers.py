"""What the layers of a model are made of, by the patterns and lists of its configuration.

A layer mixes tokens by attention, a state space (Mamba-2) or a delta rule, and has a feed-forward part. In
hybrid models of Megatron-LM, each layer is one of these alone. FLOPs of state spaces and delta rules are
those of Megatron-LM's log. That calls them an estimate: it takes Mamba layers as twice as wide as the hidden
size, whatever their heads are.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from fractions import Fraction
from typing import Any, NamedTuple

from wallscope.records import dataclass


class Mixer(StrEnum):
    """How a layer lets tokens see each other."""

    ATTENTION = "attention"
    STATE_SPACE = "state-space"
    DELTA_RULE = "delta-rule"


class FeedForward(StrEnum):
    """The part of a layer that works on each token alone."""

    DENSE = "dense"
    EXPERTS = "experts"


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What a layer has; `window` is how many keys a query sees, 0 without a limit."""

    mixer: Mixer | None = Mixer.ATTENTION
    feed_forward: FeedForward | None = FeedForward.DENSE
    window: int = 0


@dataclass(frozen=True, slots=True)
class StateSpace:
    """Sizes of Mamba-2 layers."""

    state: int
    groups: int
    heads: int
    head_size: int


@dataclass(frozen=True, slots=True)
class DeltaRule:
    """Sizes of gated delta nets; `is_second` is whether keys and values have their own gates."""

    key_heads: int
    key_size: int
    value_heads: int
    value_size: int
    kernel: int
    is_second: bool = False


class MixerWork(NamedTuple):
    """Multiply-adds of a token: those of linear layers, and an estimate of all others."""

    dense: int
    others: Fraction


def count_state_space(own: StateSpace, hidden: int) -> MixerWork:
    """Count the multiply-adds of a Mamba-2 layer and token in the forward pass.

    >>> count_state_space(StateSpace(state=16, groups=1, heads=4, head_size=4), hidden=8)
    MixerWork(dense=672, others=Fraction(896, 1))
    """
    assumed, inner = 2 * hidden, own.heads * own.head_size
    projected = 2 * own.groups * own.state + own.heads
    dense, estimated = (hidden * (3 * width + projected) for width in (inner, assumed))
    total = estimated + Fraction(7 * assumed * own.state, 2)
    return MixerWork(min(dense, estimated), total - min(dense, estimated))


def count_delta_rule(own: DeltaRule, hidden: int) -> MixerWork:
    """Count the multiply-adds of a gated delta net and token in the forward pass.

    >>> count_delta_rule(DeltaRule(1, 4, 2, 4, kernel=4), hidden=8)
    MixerWork(dense=288, others=Fraction(192, 1))
    """
    keys, values = own.key_heads * own.key_size, own.value_heads * own.value_size
    inputs = 4 * keys + 3 * values if own.is_second else 2 * (keys + values + own.value_heads)
    others = own.kernel * (2 * keys + values) + 4 * own.value_heads * own.value_size**2
    return MixerWork(hidden * (inputs + values), Fraction(others))


_SYMBOLS = {
    "M": LayerShape(Mixer.STATE_SPACE, None),
    "G": LayerShape(Mixer.DELTA_RULE, None),
    "*": LayerShape(Mixer.ATTENTION, None),
    "-": LayerShape(None, FeedForward.DENSE),
    "E": LayerShape(None, FeedForward.EXPERTS),
}
_NAMED = {
    "mamba": _SYMBOLS["M"],
    "linear_attention": _SYMBOLS["M"],
    "attention": _SYMBOLS["*"],
    "full_attention": _SYMBOLS["*"],
    "mlp": _SYMBOLS["-"],
    "moe": _SYMBOLS["E"],
}
"""Layers of Nemotron-H in `config.json`."""
_MIXERS = {
    "mamba": Mixer.STATE_SPACE,
    "linear_attention": Mixer.DELTA_RULE,
    "attention": Mixer.ATTENTION,
    "full_attention": Mixer.ATTENTION,
}
_STAGE, _PREDICTION = "|", "/"


class HybridLayers(NamedTuple):
    """Layers of a hybrid model, those that predict each further token, and how many are in each part."""

    layers: tuple[LayerShape, ...]
    ahead: tuple[tuple[LayerShape, ...], ...]
    parts: tuple[int, ...]


def read_hybrid_pattern(text: str) -> HybridLayers:
    """Read a `hybrid_layer_pattern` of Megatron-LM.

    Raises:
        KeyError: layers of another kind.
        ValueError: predictions differ.

    >>> found = read_hybrid_pattern("M-|M*/*E/*E")
    >>> len(found.layers), len(found.ahead), found.parts
    (4, 2, (2, 2))
    """
    main, *further = text.split(_PREDICTION)
    if len(set(further)) > 1:
        raise ValueError("predictions of further tokens differ")
    parts = main.split(_STAGE)
    layers = tuple(_SYMBOLS[one] for part in parts for one in part)
    ahead = tuple(tuple(_SYMBOLS[one] for one in part) for part in further if part)
    return HybridLayers(layers, ahead, tuple(map(len, parts)))


def list_single_parts(written: Mapping[str, Any]) -> HybridLayers:
    """Return the layers of a Nemotron-H, each of which is one part alone.

    Raises:
        KeyError: layers of another kind, or none.
    """
    pattern, kinds = written.get("hybrid_override_pattern"), written.get("layers_block_type")
    layers = read_hybrid_pattern(pattern).layers if pattern else tuple(_NAMED[one] for one in kinds or ())
    if not layers:
        raise KeyError("layers_block_type")
    further = written.get("mtp_hybrid_override_pattern")
    names = written.get("mtp_layers_block_type") or ("attention", "moe")
    each = read_hybrid_pattern(further).layers if further else tuple(_NAMED[one] for one in names)
    return HybridLayers(layers, (each,) * int(written.get("num_nextn_predict_layers") or 0), (len(layers),))


def list_mixers(written: Mapping[str, Any], layers: int, usual: Mixer) -> Iterator[Mixer]:
    """Yield how each layer of a `config.json` mixes tokens, by lists or an interval of attention.

    Raises:
        KeyError: layers of another kind.
    """
    kinds = written.get("layer_types")
    attentive = written.get("attn_layer_indices")
    every = int(written.get("full_attention_interval") or 4) if usual is Mixer.DELTA_RULE else 0
    for layer in range(layers):
        if kinds:
            yield _MIXERS[kinds[layer]]
        elif attentive is not None:
            yield Mixer.ATTENTION if layer in attentive else usual
        else:
            yield Mixer.ATTENTION if every and (layer + 1) % every == 0 else usual

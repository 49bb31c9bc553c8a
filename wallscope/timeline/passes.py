"""The part of the step that each operation belongs to, as the names of the ranges around it say.

Forward, backward and optimizer are told by words in folded names; the innermost range that says
anything decides. A range with words of two parts (`forward_backward_func`) says nothing. Names are those
of PyTorch's `emit_nvtx`, of Megatron, DeepSpeed, FSDP and Transformer Engine, and plain words of users.

What is inside a range of a checkpoint's backward (`CheckpointFunctionBackward`), or inside a range named
for recomputation, is forward work run again; inside that, what is in a further backward range is not.
The first run of a checkpointed module is no replay, nor is a checkpoint that is saved to a file.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import polars as pl

from wallscope.arrays.columns import Flags
from wallscope.arrays.lookup import are_among
from wallscope.model.frames import PASSES
from wallscope.model.kinds import Pass, RecomputeSource
from wallscope.timeline.nesting import chain_top, nearest

_SAYS_NOTHING = (
    r"(?i)feed[ _.-]?forward|(carry|fast|port|look|straight)[ _-]?forward|forward[ _-]?hook"
    r"|(post|pre)[ _-]?(forward|backward)[ _-]?(hook|prefetch|callback)"
    r"|register\w*(forward|backward)\w*"
)
_FORWARD = r"(?i)(^|[^a-z])(forward|fwd|fprop)([^a-z]|$)|(?-i:[a-z]Forward\d*([^a-z]|$))|^layer_#f$"
_BACKWARD = (
    r"(?i)(^|[^a-z])(backward|bwd|bprop|wgrad|dgrad)([^a-z]|$)|(?-i:[A-Za-z0-9]Backward\d*([^A-Za-z]|$))"
    r"|autograd::engine::evaluate_function|^layer_#b$"
)
_OPTIMIZER = r"(?i)optimizer|(^|[^a-z])(optim|(fused|cpu|distributed)?_?adamw?|lamb|muon|sgd)([^a-z]|$)"
_STEP_METHOD, _TRAINING = r"(?i)[a-z]\.step$", r"(?i)train"
_BARE_STEP = r"(?i)^step( #)?$"
_RECOMPUTE = (
    r"(?i)(^|[^a-z])(re_?comput(e|ed|ing|ation)|re_?materiali[sz]\w*)([^a-z]|$)|(?-i:Recompute([^a-z]|$))"
)
_OPERATOR = r"^(aten::|nvte_|c10d::|at::|prim::)"  # says forward of itself, not of what is around it
_CHECKPOINT = r"(?i)checkpoint"
_SAVED = (
    r"(?i)(save|saving|load|loading|writ(e|ing)|read|restor(e|ing)|resum(e|ing)|dist|distributed|async|persist"
    r"(ent)?|upload|finali[sz]e)[ _.:-]*(\w+[ _.:-])?checkpoint|(model|file)_?checkpoint"
    r"|checkpoint(ing|s)?[ _.:-]*(sav|load|writ|read|restor|dir|path|io\b|manager|engine|file|upload|finali"
    r"|metadata|storage|callback)"
)


@dataclass(frozen=True, slots=True)
class _PathState:
    """What a path says: the part of the step, whether it runs again, what checkpoint's backward it is in."""

    of: Pass | None = None
    replay: RecomputeSource | None = None
    in_checkpoint: bool = False
    is_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class _Words:
    """What the name of a range says: `operator` is one operation as PyTorch names it, `bare_step` a step."""

    forward: bool
    backward: bool
    optimizer: bool
    recompute: bool
    checkpoint: bool
    operator: bool
    bare_step: bool


def passes(
    projected: pl.DataFrame, tree: pl.DataFrame, paths: pl.DataFrame, names: pl.DataFrame
) -> pl.DataFrame:
    """The part of the step of each operation (`PROJECTION`, `NESTED`, `PATHS`, their `NAMES` to `PASSES`).

    `scope` is the range of the checkpoint's backward, or the outermost range of the optimizer, on the
    thread of the operation's range. Replays inside a checkpoint without such a range are not told.
    """
    states = _states_of(paths, names)
    path_of_range = np.full(int(tree["range"].to_numpy().max()) + 1 if len(tree) else 0, -1, np.int64)
    parent = path_of_range.copy()
    path_of_range[tree["range"].to_numpy()] = tree["path"].to_numpy()
    parent[tree["range"].to_numpy()] = tree["parent"].to_numpy()
    op, own_range = projected["op"].to_numpy(), projected["range"].to_numpy()
    if (op[1:] < op[:-1]).any():
        in_order = np.argsort(op, kind="stable")
        op, own_range = op[in_order], own_range[in_order]
    is_inside = own_range >= 0
    path, held = np.full(op.size, len(states), np.uint32), own_range[is_inside].astype(np.int64)
    path[is_inside] = path_of_range[held]
    known = [*states, _PathState()]  # the last is that of what stands in no range
    in_checkpoint = np.array([state.in_checkpoint for state in known], np.bool_)
    is_checkpoint = np.array([state.is_checkpoint for state in known], np.bool_)
    updates = np.array([state.of is Pass.OPTIMIZER for state in known], np.bool_)
    scope = np.full(op.size, -1, np.int32)
    scope[is_inside] = np.where(
        in_checkpoint[path[is_inside]],
        nearest(parent, is_checkpoint[path_of_range])[held],
        np.where(updates[path[is_inside]], chain_top(parent, updates[path_of_range])[held], -1),
    )
    is_told = ~(in_checkpoint[path] & (scope < 0))
    return pl.DataFrame(
        {
            "op": op,
            "pass": pl.Series([state.of for state in known], dtype=PASSES["pass"])[path],
            "replay": pl.Series([state.replay for state in known], dtype=PASSES["replay"])[
                np.where(is_told, path, np.uint32(len(states)))
            ],
            "scope": scope,
        },
        schema=PASSES,
    )


def optimizer_paths(paths: pl.DataFrame, names: pl.DataFrame) -> Flags:
    """Whether each path (`PATHS` and their `NAMES`) is the optimizer's."""
    return np.array([state.of is Pass.OPTIMIZER for state in _states_of(paths, names)], np.bool_)


def with_autograd_threads(
    of_passes: pl.DataFrame, operations: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """`PASSES` in which all else that PyTorch's autograd threads issued is backward (`CALLS`, `THREADS`)."""
    of_threads = zip(threads["thread"].to_list(), threads["role"].to_list(), strict=True)
    autograd = [thread for thread, role in of_threads if role is not None and role.startswith("pt_autograd")]
    if not autograd:
        return of_passes
    issued = calls["call"].to_numpy()[np.isin(calls["thread"].to_numpy(), autograd)].astype(np.int64)
    backward = operations["op"].to_numpy()[are_among(operations["call"].to_numpy(), issued)].astype(np.int64)
    is_backward = of_passes["pass"].is_null() & pl.Series(are_among(of_passes["op"].to_numpy(), backward))
    all_backward = pl.Series("pass", [Pass.BACKWARD], PASSES["pass"]).new_from_index(0, len(of_passes))
    told = all_backward.zip_with(is_backward, of_passes["pass"])
    return of_passes.clone().replace_column(of_passes.get_column_index("pass"), told)


@lru_cache(maxsize=2)
def _words(texts: tuple[str, ...]) -> list[_Words]:
    """What each name says; words of two parts of the step say nothing."""
    text = pl.col("text")
    bare = text.str.replace_all(_SAYS_NOTHING, "")
    forward, backward = bare.str.contains(_FORWARD), bare.str.contains(_BACKWARD)
    is_step = text.str.contains(_STEP_METHOD) & ~text.str.contains(_TRAINING)
    found = pl.DataFrame({"text": texts}, schema={"text": pl.String}).select(
        forward=forward & ~backward,
        backward=backward & ~forward,
        optimizer=(text.str.contains(_OPTIMIZER) | is_step) & ~forward & ~backward,
        recompute=text.str.contains(_RECOMPUTE),
        checkpoint=text.str.contains(_CHECKPOINT) & ~text.str.contains(_SAVED),
        operator=text.str.contains(_OPERATOR),
        bare_step=text.str.contains(_BARE_STEP),
    )
    return [_Words(**row) for row in found.iter_rows(named=True)]


def _states_of(paths: pl.DataFrame, names: pl.DataFrame) -> list[_PathState]:
    """The state of each path (`PATHS` and their `NAMES`)."""
    texts = names["text"][np.argsort(names["name"].to_numpy(), kind="stable")]
    return _states(*map(tuple, (paths["parent"].to_list(), paths["name"].to_list(), texts.to_list())))


@lru_cache(maxsize=2)
def _states(parent: tuple[int, ...], label: tuple[int, ...], texts: tuple[str, ...]) -> list[_PathState]:
    """The state of each path, which starts from that of the path around it; asked twice in an analysis."""
    words = _words(texts)
    holders = _around_passes(parent, label, words)
    states: list[_PathState] = []
    for path, (above, name) in enumerate(zip(parent, label, strict=True)):
        around = states[above] if above >= 0 else _PathState()
        if words[name].bare_step and holders and path not in holders:
            states.append(_PathState(Pass.OPTIMIZER))
        else:
            states.append(_inside(around, words[name]))
    return states


def _around_passes(parent: Sequence[int], label: Sequence[int], words: Sequence[_Words]) -> set[int]:
    """The paths that are, or hold, a forward or backward range; empty where there is none."""
    found: set[int] = set()
    for path, name in enumerate(label):
        at = path if words[name].forward or words[name].backward else -1
        while at >= 0 and at not in found:
            found.add(at)
            at = parent[at]
    return found


def _inside(around: _PathState, words: _Words) -> _PathState:
    """What holds inside a range with these words, in a range where that held."""
    if words.backward:
        starts_again = words.checkpoint or words.recompute
        replay = RecomputeSource.EXPLICIT if starts_again else None
        return _PathState(Pass.BACKWARD, replay, starts_again or around.in_checkpoint, starts_again)
    if around.of is Pass.BACKWARD and (words.checkpoint or words.recompute):
        return _PathState(Pass.BACKWARD, RecomputeSource.EXPLICIT)
    if around.of is Pass.BACKWARD and words.forward:
        return _PathState(Pass.BACKWARD, around.replay or RecomputeSource.INFERRED)
    if around.of is None and words.recompute:
        return _PathState(Pass.BACKWARD, RecomputeSource.EXPLICIT)
    says_forward = words.forward and not words.operator and around.of is not Pass.BACKWARD
    if says_forward or (words.optimizer and around.of is not Pass.BACKWARD):
        return _PathState(Pass.FORWARD if says_forward else Pass.OPTIMIZER)
    return _PathState(around.of, around.replay, around.in_checkpoint)

"""The part of the step that each operation belongs to, as the names of the ranges around it say.

Forward, backward and optimizer are told by words in folded names; the innermost range that says
anything decides. A range with words of two parts (`forward_backward_func`) says nothing. Names are those
of PyTorch's `emit_nvtx`, of Megatron, DeepSpeed, FSDP and Transformer Engine, and plain words of users.

What is inside a range of a checkpoint's backward (`CheckpointFunctionBackward`), or inside a range named
for recomputation, is forward work run again; inside that, what is in a further backward range is not.
The first run of a checkpointed module is no replay, nor is a checkpoint that is saved to a file.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope.model.frames import PASSES
from wallscope.model.kinds import Pass, RecomputeSource
from wallscope.timeline.nesting import Rows, led_to, nearest

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
    """What the name of a range says; `operator` is one operation, as PyTorch names them."""

    forward: bool
    backward: bool
    optimizer: bool
    recompute: bool
    checkpoint: bool
    operator: bool


def passes(
    projected: pl.DataFrame, tree: pl.DataFrame, paths: pl.DataFrame, names: pl.DataFrame
) -> pl.DataFrame:
    """The part of the step of each operation (`PROJECTION`, `NESTED`, `PATHS`, their `NAMES` to `PASSES`).

    `scope` is the range of the checkpoint's backward, or the outermost range of the optimizer, on the
    thread of the operation's range. Replays inside a checkpoint without such a range are not told.
    """
    states = _states(paths, names)
    path_of_range = np.full(int(tree["range"].to_numpy().max()) + 1 if len(tree) else 0, -1, np.int64)
    parent = path_of_range.copy()
    path_of_range[tree["range"].to_numpy()] = tree["path"].to_numpy()
    parent[tree["range"].to_numpy()] = tree["parent"].to_numpy()
    held = projected.filter(pl.col("range") >= 0)
    own_range = held["range"].to_numpy().astype(np.int64)
    path = path_of_range[own_range]
    said = pl.DataFrame(
        [(state.of, state.replay) for state in states],
        schema={name: PASSES[name] for name in ("pass", "replay")},
        orient="row",
    )
    in_checkpoint = np.array([state.in_checkpoint for state in states], np.bool_)
    is_checkpoint = np.array([state.is_checkpoint for state in states], np.bool_)
    updates = np.array([state.of is Pass.OPTIMIZER for state in states], np.bool_)
    scope = np.where(
        in_checkpoint[path],
        nearest(own_range, parent, is_checkpoint[path_of_range]),
        np.where(updates[path], _outermost(own_range, parent, updates[path_of_range]), -1),
    )
    is_told = ~(in_checkpoint[path] & (scope < 0))
    rows = pl.DataFrame(
        {
            "op": held["op"],
            "pass": said["pass"].gather(path),
            "replay": said["replay"].gather(path),
            "scope": pl.Series(scope, dtype=PASSES["scope"]),
            "told": pl.Series(is_told, dtype=pl.Boolean),
        }
    ).with_columns(replay=pl.when("told").then("replay"))
    missing = projected.filter(pl.col("range") < 0).select("op", scope=pl.lit(-1, PASSES["scope"]))
    return pl.concat([rows, missing], how="diagonal").sort("op").select(PASSES.names()).cast(PASSES)


def optimizer_paths(paths: pl.DataFrame, names: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Whether each path (`PATHS` and their `NAMES`) is the optimizer's."""
    return np.array([state.of is Pass.OPTIMIZER for state in _states(paths, names)], np.bool_)


def with_autograd_threads(
    of_passes: pl.DataFrame, operations: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """`PASSES` in which all else that PyTorch's autograd threads issued is backward (`CALLS`, `THREADS`)."""
    autograd = threads.filter(pl.col("role").str.starts_with("pt_autograd"))["thread"]
    issued = calls.filter(pl.col("thread").is_in(autograd.implode()))["call"].cast(pl.Int32)
    backward = operations.filter(pl.col("call").is_in(issued.implode()))["op"]
    is_backward = pl.col("pass").is_null() & pl.col("op").is_in(backward.implode())
    return of_passes.with_columns(
        pl.when(is_backward).then(pl.lit(Pass.BACKWARD, PASSES["pass"])).otherwise("pass").alias("pass")
    )


def _words(names: pl.DataFrame) -> list[_Words]:
    """What each name says; words of two parts of the step say nothing."""
    text = pl.col("text")
    bare = text.str.replace_all(_SAYS_NOTHING, "")
    forward, backward = bare.str.contains(_FORWARD), bare.str.contains(_BACKWARD)
    is_step = text.str.contains(_STEP_METHOD) & ~text.str.contains(_TRAINING)
    found = names.sort("name").select(
        forward=forward & ~backward,
        backward=backward & ~forward,
        optimizer=(text.str.contains(_OPTIMIZER) | is_step) & ~forward & ~backward,
        recompute=text.str.contains(_RECOMPUTE),
        checkpoint=text.str.contains(_CHECKPOINT) & ~text.str.contains(_SAVED),
        operator=text.str.contains(_OPERATOR),
    )
    return [_Words(**row) for row in found.iter_rows(named=True)]


def _states(paths: pl.DataFrame, names: pl.DataFrame) -> list[_PathState]:
    """The state of each path, which starts from that of the path around it."""
    words = _words(names)
    parent, label = paths["parent"].to_list(), paths["name"].to_list()
    bare_steps = set(names.filter(pl.col("text").str.contains(_BARE_STEP))["name"].to_list())
    holders = _around_passes(parent, label, words)
    states: list[_PathState] = []
    for path, (above, name) in enumerate(zip(parent, label, strict=True)):
        around = states[above] if above >= 0 else _PathState()
        if name in bare_steps and holders and path not in holders:
            states.append(_PathState(Pass.OPTIMIZER))
        else:
            states.append(_inside(around, words[name]))
    return states


def _around_passes(parent: list[int], label: list[int], words: list[_Words]) -> set[int]:
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


def _outermost(rows: Rows, parent: Rows, is_wanted: npt.NDArray[np.bool_]) -> Rows:
    """Of each range the outermost that one of that kind after the other leads to."""
    climbs = (parent >= 0) & np.append(is_wanted, False)[parent]
    return led_to(np.where(climbs, parent, np.arange(parent.size)))[rows]

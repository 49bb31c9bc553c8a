"""Forward, backward and optimizer work, and forward work that runs again in the backward pass.

Words in folded range names identify forward, backward and optimizer; the innermost range with such a word
decides. A range with words of two parts (`forward_backward_func`) does not count. Names are those of
PyTorch's `emit_nvtx`, of Megatron, DeepSpeed, FSDP and Transformer Engine, and plain words of users.

Work inside a range of a checkpoint's backward (`CheckpointFunctionBackward`), or inside a recompute range, is
recomputed forward work. Work in a further backward range inside it is not. The first run of a checkpointed
module is not a replay. Neither is a checkpoint that is saved to a file.

There are four kinds of evidence, the stronger first. Ranges may name recompute. PyTorch's profiler records
which operators belong to the backward pass, and which inside them record gradients, as forward work does.
Kernels in the backward pass may repeat a sequence of the forward pass. Without ranges that separate the
passes, a step may have more forward than backward attention kernels, in an order that only replays have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import lru_cache

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    are_among,
    as_integers,
    find_places,
    iterate_runs,
    list_members,
    mark_numbers,
    order_by_group,
)
from wallscope.model.enums import ComputeCategory, OperationClass, Pass, RecomputeSource
from wallscope.model.schemas import CATEGORY, PASSES, RECOMPUTE
from wallscope.process_tuning import run_side_by_side
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    MOST_RECOMPUTED_SHARE,
    RECOMPUTED_NAMES_COUNT,
    SHORTEST_FRESH_PREFIX_COUNT,
    SHORTEST_RECOMPUTED_RUN_COUNT,
)
from wallscope.trace.intervals import Times
from wallscope.trace.kernel_classes import find_replayed_attention
from wallscope.trace.names import find_repeated_runs, mark_changes
from wallscope.trace.ranges import find_chain_top, find_nearest
from wallscope.trace.thread_timeline import measure_call_times

_SAYS_NOTHING = (
    r"(?i)feed[ _.-]?forward|(carry|fast|port|look|straight)[ _-]?forward|forward[ _-]?hook"
    r"|(post|pre)[ _-]?(forward|backward)[ _-]?(hook|prefetch|callback)"
    r"|register\w*(forward|backward)\w*"
)
_FORWARD_NAMES = r"(?i)(^|[^a-z])(forward|fwd|fprop)([^a-z]|$)|(?-i:[a-z]Forward\d*([^a-z]|$))|^layer_#f$"
_BACKWARD_NAMES = (
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


def identify_passes(
    projected: pl.DataFrame, tree: pl.DataFrame, paths: pl.DataFrame, names: pl.DataFrame
) -> pl.DataFrame:
    """The part of the step of each operation (`PROJECTION`, `NESTED`, `PATHS`, their `NAMES` to `PASSES`).

    `scope` is the range of the checkpoint's backward, or the outermost range of the optimizer, on the thread
    of the operation's range. Replays inside a checkpoint without such a range are not detected.
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
        find_nearest(parent, is_checkpoint[path_of_range])[held],
        np.where(updates[path[is_inside]], find_chain_top(parent, updates[path_of_range])[held], -1),
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


def is_optimizer_path(paths: pl.DataFrame, names: pl.DataFrame) -> Flags:
    """Whether each path (`PATHS` and their `NAMES`) is the optimizer's."""
    return np.array([state.of is Pass.OPTIMIZER for state in _states_of(paths, names)], np.bool_)


def mark_autograd_threads(
    of_passes: pl.DataFrame, operations: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame
) -> pl.DataFrame:
    """`PASSES` in which all else that PyTorch's autograd threads issued is backward.

    `operations`, `calls` and `threads` are all of a capture (`OPERATIONS`, `CALLS`, `THREADS`).
    """
    of_threads = zip(threads["thread"].to_list(), threads["role"].to_list(), strict=True)
    autograd = [thread for thread, role in of_threads if role is not None and role.startswith("pt_autograd")]
    if not autograd:
        return of_passes
    is_theirs = np.isin(measure_call_times(calls).thread[operations["call"].to_numpy()], autograd)
    is_backward = of_passes["pass"].is_null() & pl.Series(is_theirs[of_passes["op"].to_numpy()])
    all_backward = pl.Series("pass", [Pass.BACKWARD], PASSES["pass"]).new_from_index(0, len(of_passes))
    changed = all_backward.zip_with(is_backward, of_passes["pass"])
    return of_passes.clone().replace_column(of_passes.get_column_index("pass"), changed)


def mark_autograd_ranges(
    of_passes: pl.DataFrame, projected: pl.DataFrame, tree: pl.DataFrame, autograd: pl.DataFrame | None
) -> pl.DataFrame:
    """`PASSES` in which operators of the backward pass, and replays in them, are as the capture has them.

    `projected` follows `PROJECTION`, `tree` `NESTED`, `autograd` `AUTOGRAD_RANGES`.
    """
    if autograd is None or autograd.is_empty() or of_passes.is_empty():
        return of_passes
    size = int(tree["range"].to_numpy().max()) + 1
    parent = np.full(size, -1, np.int64)
    parent[tree["range"].to_numpy()] = tree["parent"].to_numpy()
    is_replay = autograd["is_replay"].to_numpy()
    number = autograd["range"].to_numpy()

    def find_ops(of_ranges: Flags) -> Flags:
        """Return which operations were issued inside such ranges."""
        is_inside = np.append(find_nearest(parent, mark_numbers(number[of_ranges], size)) >= 0, [False])
        ops = projected["op"].to_numpy()[is_inside[projected["range"].to_numpy()]]
        return are_among(of_passes["op"].to_numpy(), ops.astype(np.int64))

    is_backward, is_again = (pl.lit(pl.Series(find_ops(which))) for which in (~is_replay, is_replay))
    replay = pl.lit(RecomputeSource.INFERRED, PASSES["replay"])
    return of_passes.with_columns(
        pl.when(is_backward).then(pl.lit(Pass.BACKWARD, PASSES["pass"])).otherwise("pass").alias("pass"),
        pl.when(is_again & pl.col("replay").is_null()).then(replay).otherwise("replay").alias("replay"),
    )


@lru_cache(maxsize=2)
def _interpret_names(texts: tuple[str, ...]) -> list[_Words]:
    """What each name says; words of two parts of the step say nothing."""
    text = pl.col("text")
    bare = text.str.replace_all(_SAYS_NOTHING, "")
    forward, backward = bare.str.contains(_FORWARD_NAMES), bare.str.contains(_BACKWARD_NAMES)
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
    words = _interpret_names(texts)
    holders = _around_passes(parent, label, words)
    states: list[_PathState] = []
    for path, (above, name) in enumerate(zip(parent, label, strict=True)):
        around = states[above] if above >= 0 else _PathState()
        if words[name].bare_step and holders and path not in holders:
            states.append(_PathState(Pass.OPTIMIZER))
        else:
            states.append(_enter_range(around, words[name]))
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


def _enter_range(around: _PathState, words: _Words) -> _PathState:
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


_MULTIPLICATIONS = [
    list(CATEGORY.categories).index(one) for one in (ComputeCategory.GEMM, ComputeCategory.GROUPED_GEMM)
]
_ATTENTION = list(CATEGORY.categories).index(ComputeCategory.ATTENTION)
_COMPUTE = list(OperationClass).index(OperationClass.COMPUTE)
_FORWARD, _BACKWARD = map(list(Pass).index, (Pass.FORWARD, Pass.BACKWARD))
_EXPLICIT, _INFERRED, _LOWER_BOUND = range(len(RecomputeSource))
_HOW = list_members(RecomputeSource)
_NOTHING = np.empty(0, np.int64)
_TOLD = ("pass", "replay", "scope")
_NEVER = np.iinfo(np.int64).max


def find_recompute(
    operations: pl.DataFrame, windows: pl.DataFrame, kernel_names: pl.DataFrame, passes: pl.DataFrame
) -> pl.DataFrame:
    """The compute operations that do forward work again (`CLASSIFIED`, `WINDOWS`, `NAMES`, `PASSES`).

    `explicit`: issued inside a range of a checkpoint's backward or of recompute. If such a range also
    contains the true backward, the replay is the work before the first range in it. Without ranges inside,
    the replay is the beginning that repeats kernels of the forward pass.

    `inferred`: issued inside a forward range within a backward range, or repeated kernels of the backward
    pass. The latter are eight kernels or more, with a matrix multiplication and four different names. They
    follow one another on their stream as kernels of the forward pass did before.

    `lower-bound`: ranks without any backward range; only some of the attention kernels, and no other
    recomputed work.

    Returns:
        `RECOMPUTE`, sorted by operation; empty without evidence.
    """
    kernels = _computing(operations, passes)

    def of_rank(ran: tuple[int, slice]) -> tuple[Rows, Rows]:
        own = _ComputeKernels(*(column[ran[1]] for column in kernels.columns()))
        return _find_recompute_of_rank(own, windows, kernel_names)

    found = run_side_by_side(of_rank, iterate_runs(kernels.rank))
    op, how = map(np.concatenate, zip(*found, strict=True)) if found else (_NOTHING, _NOTHING)
    order = np.argsort(op)
    return pl.DataFrame({"op": op[order], "how": _HOW[how[order]]}, schema=RECOMPUTE)


def find_backward_ranks(operations: pl.DataFrame, passes: pl.DataFrame) -> frozenset[int]:
    """The ids of the ranks of which ranges name a backward pass (`CLASSIFIED`, `PASSES`)."""
    backward = passes["op"].filter(passes["pass"] == Pass.BACKWARD).to_numpy()
    rank = operations["rank_id"].to_numpy()[are_among(operations["op"].to_numpy(), backward)]
    return frozenset(np.flatnonzero(np.bincount(rank)).tolist())


@dataclass(frozen=True, slots=True)
class _ComputeKernels:
    """Compute operations by rank, stream and start; category, pass and replay as places, -1 for null."""

    op: Rows
    rank: Rows
    stream: Rows
    start_ns: Times
    name: Rows
    category: Rows
    part: Rows
    replay: Rows
    scope: Rows

    def columns(self) -> Iterator[Rows]:
        """The columns in their order."""
        return (getattr(self, field.name) for field in fields(self))


def _computing(operations: pl.DataFrame, passes: pl.DataFrame) -> _ComputeKernels:
    rows = np.flatnonzero(as_integers(operations["class"]) == _COMPUTE)
    rank, stream = (operations[column].to_numpy()[rows] for column in ("rank_id", "stream"))
    place = find_places(operations["op"].to_numpy()[rows], passes["op"].to_numpy())
    order = order_by_group(rank, stream)
    rows, place = rows[order], place[order]
    part, replay, scope = (np.append(as_integers(passes[column]), -1)[place] for column in _TOLD)
    return _ComputeKernels(
        op=operations["op"].to_numpy()[rows],
        rank=rank[order],
        stream=stream[order],
        start_ns=operations["start_ns"].to_numpy()[rows],
        name=as_integers(operations["name"])[rows].astype(np.int64),
        category=as_integers(operations["category"])[rows],
        part=part,
        replay=replay,
        scope=scope,
    )


def _find_recompute_of_rank(
    own: _ComputeKernels, windows: pl.DataFrame, kernel_names: pl.DataFrame
) -> tuple[Rows, Rows]:
    """The operations of a rank that do work again, and the place of the evidence among its kinds."""
    is_backward = own.part == _BACKWARD
    if not is_backward.any():
        op = _replayed_attention(own, windows.filter(windows["rank_id"] == int(own.rank[0])), kernel_names)
        return op, np.full(op.size, _LOWER_BOUND)
    explicit = _explicit(own)
    is_told = explicit | (own.replay == _INFERRED)
    rows = np.flatnonzero(is_told | _repeated_runs(own, is_backward & ~is_told))
    return own.op[rows], np.where(explicit[rows], _EXPLICIT, _INFERRED)


def _replayed_attention(own: _ComputeKernels, windows: pl.DataFrame, kernel_names: pl.DataFrame) -> Rows:
    rows = np.flatnonzero(own.category == _ATTENTION)
    rows = rows[np.lexsort((own.op[rows], own.start_ns[rows]))]
    return own.op[rows[find_replayed_attention(own.name[rows], own.start_ns[rows], windows, kernel_names)]]


def _explicit(own: _ComputeKernels) -> Flags:
    """The operations that ranges say run again, without the true backward inside the same ranges."""
    is_told: Flags = own.replay == _EXPLICIT
    if not is_told.any():
        return is_told
    has_scope = own.scope >= 0
    is_backward = (own.replay < 0) & (own.part == _BACKWARD) & has_scope
    begun_ns = np.full(int(own.scope.max()) + 2, _NEVER)
    np.minimum.at(begun_ns, own.scope[is_backward], own.start_ns[is_backward])
    is_split = begun_ns[own.scope] < _NEVER
    found: Flags = is_told & (~has_scope | (is_split & (own.start_ns < begun_ns[own.scope])))
    whole = is_told & has_scope & ~is_split
    return found | _prefixes(own, whole) if whole.any() else found


def _prefixes(own: _ComputeKernels, is_asked: Flags) -> Flags:
    """Of ranges that hold replay and backward undivided, the beginning that repeats forward kernels."""
    rows = np.flatnonzero(is_asked)
    rows = rows[order_by_group(own.stream[rows], own.scope[rows])]
    begins = mark_changes(own.stream[rows], own.scope[rows])
    is_fresh = ~_repeats(own, is_asked, SHORTEST_FRESH_PREFIX_COUNT)[rows]
    fresh = np.append(0, np.cumsum(is_fresh))
    fresh_before = fresh[np.flatnonzero(begins)][np.cumsum(begins) - 1]
    return mark_numbers(rows[fresh[1:] == fresh_before], own.op.size)


def _repeated_runs(own: _ComputeKernels, backward: Flags) -> Flags:
    """Runs of backward kernels that repeat forward ones, with a multiplication and several names."""
    repeats = _repeats(own, backward, SHORTEST_RECOMPUTED_RUN_COUNT)
    rows = np.flatnonzero(repeats)
    run = np.cumsum(mark_changes(own.stream, repeats))[rows]
    kinds = np.unique(run * (int(own.name.max()) + 1) + own.name[rows]) // (int(own.name.max()) + 1)
    names, multiplications = (
        np.bincount(each, minlength=own.op.size + 1)
        for each in (kinds, run[np.isin(own.category[rows], _MULTIPLICATIONS)])
    )
    found = mark_numbers(
        rows[(names[run] >= RECOMPUTED_NAMES_COUNT) & (multiplications[run] > 0)], own.op.size
    )
    return found if found.sum() <= MOST_RECOMPUTED_SHARE * backward.sum() else np.zeros_like(found)


def _repeats(own: _ComputeKernels, is_asked: Flags, at_least: int) -> Flags:
    """Which asked kernels lie in a run that repeats one of the forward pass on their stream.

    If no range names the forward pass, all work belongs to it that no other part claims.
    """
    forward = own.part == _FORWARD
    forward = forward if forward.any() else own.part < 0
    repeats = np.zeros(own.op.size, np.bool_)
    for _, rows in iterate_runs(own.stream):
        repeats[rows] = find_repeated_runs(own.name[rows], forward[rows], is_asked[rows], at_least)
    return repeats

"""A range of the program captured into CUDA graphs: one launch for all that a thread launches in it."""

import re

import numpy as np
import polars as pl

from wallscope.model.kinds import CallRole
from wallscope.timeline.folding import folded
from wallscope.timeline.spans import Numbers
from wallscope.timeline.stretch import Stretch
from wallscope.units import duration, number
from wallscope.whatif.draft import Draft

_NEVER_CAPTURED = {str(CallRole.SYNC), str(CallRole.ALLOC)}
_OUTSIDE = -2


def graph(name: str, draft: Draft) -> tuple[str, ...]:
    """Let what is launched in the ranges of a name be launched at once, up to each call that waits.

    The first launch takes what the launch of a graph takes, all up to the last one takes no time: calls and
    time outside them.
    """
    stretch = draft.stretch
    instance = _instances(stretch, name)
    roles = stretch.roles()
    cost_ns, source = _cost(stretch, roles)
    inside = {call: number_of for op, call, number_of in instance.iter_rows() if op in stretch.replay.places}
    issuing = set(stretch.operations["call"].to_list())
    awaited, pieces = stretch.replay.order.awaited, stretch.pieces
    graphs = launches = 0
    for rows in stretch.pieces.rows_of.values():
        run: list[int] = []
        together = _OUTSIDE
        for row in [*rows, -1]:
            call = pieces.call[row] if row >= 0 else -1
            of = inside.get(call, _OUTSIDE)
            is_open = row >= 0 and row not in awaited and roles[row] not in _NEVER_CAPTURED
            is_end = not is_open or (call in issuing and of != together)
            if is_end and run:
                held = _until_last_launch(run, inside, pieces.call)
                if (count := len({pieces.call[one] for one in held} & inside.keys())) > 1:
                    graphs += 1
                    launches += count
                    _collapse(held, cost_ns, draft)
                run = []
            if is_open and (run or of != _OUTSIDE):
                if not run:
                    together = of
                run.append(row)
    if not graphs:
        return (f"no two launches in {name} stand together",)
    steps = max(len(stretch.steps), 1)
    before, after = (number(round(count / steps)) for count in (launches, graphs))
    made = f"{before} launches a step become {after} graphs"
    return (
        f"{made}, {duration(cost_ns)} each ({source})",
        "shapes must not change, and nothing in them may wait for the device",
    )


def _instances(stretch: Stretch, name: str) -> pl.DataFrame:
    """Operations issued inside ranges of a name: op, call and which of those ranges, -1 where unclear.

    Of a name with `*` in it all that it matches; `*` alone is the whole step.
    """
    if name == "*":
        return _steps(stretch)
    tree = stretch.ranges.sort("range")
    texts = tree["text"].fill_null("")
    pattern = f"^{'.*'.join(map(re.escape, name.split('*')))}$"
    is_named = (texts.str.contains(pattern) | folded(texts).str.contains(pattern)).to_numpy()
    found = np.where(is_named, np.arange(len(tree)), -1)
    above = tree["parent"].to_numpy().astype(np.int64)
    while (above >= 0).any():
        found = np.where((above >= 0) & is_named[above], above, found)
        above = np.where(above >= 0, tree["parent"].to_numpy()[above], -1)
    own = stretch.operations.filter(pl.col("call") >= 0).select("op", "call", "range", "path")
    of = pl.Series("of", np.append(found, -1)[own["range"].to_numpy()], dtype=pl.Int64)
    under = _under(stretch, set(tree.filter(pl.Series(is_named))["path"].to_list()))
    by_path = own["path"].is_in(list(under)).fill_null(value=False)
    return own.select("op", "call").with_columns(of).filter((of >= 0) | by_path)


def _steps(stretch: Stretch) -> pl.DataFrame:
    """All operations that calls issue, with the number of the step that the host was at work for."""
    own = stretch.operations.filter(pl.col("call") >= 0).select("op", "call")
    issued_ns = stretch.waits.calls.start_ns[own["call"].to_numpy()]
    begun_ns = stretch.steps["issue_start_ns"].sort().to_numpy()
    return own.with_columns(of=pl.Series(np.searchsorted(begun_ns, issued_ns, side="right"), dtype=pl.Int64))


def _under(stretch: Stretch, paths: set[int]) -> set[int]:
    """Some paths of ranges and all below them: what another thread does for a range stands there."""
    found = set(paths)
    for path, parent in stretch.paths.select("path", "parent").sort("path").iter_rows():
        if parent in found:
            found.add(path)
    return found


def _cost(stretch: Stretch, roles: list[str | None]) -> tuple[int, str]:
    """What the launch of a graph takes on the host, and where that is from."""
    waits = stretch.waits
    calls = stretch.pieces.call
    graphs, launches = (
        [
            waits.call_end_ns[call] - waits.call_start_ns[call]
            for call in {call for call, own in zip(calls, roles, strict=True) if own == role}
        ]
        for role in (str(CallRole.GRAPH), str(CallRole.LAUNCH))
    )
    if graphs:
        return int(np.median(graphs)), "median of the graph launches in this capture"
    return (2 * int(np.median(launches)) if launches else 0), "taken as two launches"


def _until_last_launch(run: list[int], inside: dict[int, int], calls: Numbers) -> list[int]:
    last = max(place for place, row in enumerate(run) if calls[row] in inside)
    return run[: last + 1]


def _collapse(rows: list[int], cost_ns: int, draft: Draft) -> None:
    """Let the first piece be the launch of a graph, and the others nothing."""
    draft.set_piece(rows[0], cost_ns)
    for row in rows[1:]:
        draft.set_piece(row, 0)

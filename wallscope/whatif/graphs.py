"""A range of the program captured into CUDA graphs: one launch for all that a thread launches in it."""

import re
from collections.abc import Mapping

import numpy as np

from wallscope.arrays.columns import Flags, Rows, place
from wallscope.arrays.lookup import are_among, at_places, flags
from wallscope.model.kinds import CallRole
from wallscope.timeline.nesting import farthest
from wallscope.timeline.replay_graph import Role
from wallscope.timeline.stretch import Stretch
from wallscope.units import duration, number
from wallscope.whatif.draft import Draft

_NEVER_CAPTURED = (CallRole.SYNC, CallRole.ALLOC)
_OUTSIDE = -2


def graph(name: str, stretch: Stretch, draft: Draft, folded: Mapping[str, str]) -> tuple[str, ...]:
    """Let what is launched in the ranges of a name be launched at once, up to each call that waits.

    The first launch takes what the launch of a graph takes, all up to the last one takes no time: calls and
    time outside them. `folded` are the names of ranges, each with what it is without its running numbers.
    """
    inside = _inside(stretch, name, folded)
    cost_ns, source = _cost(stretch)
    call = np.asarray(stretch.pieces.call)
    is_closed = np.isin(stretch.role, [place(role) for role in _NEVER_CAPTURED])
    is_closed |= stretch.graph.role >= Role.BLOCKING
    issues = are_among(call, stretch.operations["call"].to_numpy()) & (call >= 0)
    graphs = launches = 0
    for rows in stretch.pieces.rows_of.values():
        own = slice(rows.start, rows.stop)
        turns = rows.start + np.flatnonzero(is_closed[own] | issues[own])
        run: list[int] = []
        together = _OUTSIDE
        for row in [*turns.tolist(), -1]:
            is_open = row >= 0 and not is_closed[row]
            of = inside.get(stretch.pieces.call[row], _OUTSIDE) if row >= 0 else _OUTSIDE
            if run and (not is_open or of != together):
                count = len({stretch.pieces.call[one] for one in run})
                if count > 1:
                    graphs += 1
                    launches += count
                    draft.set_segments(range(run[0], run[-1] + 1), cost_ns)
                run = []
            if is_open and of != _OUTSIDE:
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


def _inside(stretch: Stretch, name: str, folded: Mapping[str, str]) -> dict[int, int]:
    """Calls that issue what is played inside ranges of a name, each with which of those, -1 where unclear.

    Of a name with `*` in it all that it matches; `*` alone is the whole step, of which the number is told.
    """
    own = stretch.operations
    call = own["call"].to_numpy()
    held = np.flatnonzero((call >= 0) & (stretch.graph.positions(own["op"].to_numpy()) >= 0))
    call, inside = call[held], own["range"].to_numpy()[held]
    if name == "*":
        begun_ns = np.sort(stretch.steps["issue_start_ns"].to_numpy())
        of = np.searchsorted(begun_ns, stretch.waits.calls.start_ns[call], side="right")
        return dict(zip(call.tolist(), of.tolist(), strict=True))
    tree = stretch.ranges
    tree = tree[np.argsort(tree["range"].to_numpy(), kind="stable")]
    wanted = re.compile(".*".join(map(re.escape, name.split("*"))))
    named = [text for text in folded if wanted.fullmatch(text) or wanted.fullmatch(folded[text])]
    is_named = tree["text"].is_in(named).fill_null(value=bool(wanted.fullmatch(""))).to_numpy()
    found = farthest(tree["parent"].to_numpy(), is_named)
    path = tree["path"].to_numpy()
    by_path = np.append(_under(stretch, path[is_named])[path], False)[inside]
    of = at_places(found, inside, -1)
    is_held = (of >= 0) | by_path
    return dict(zip(call[is_held].tolist(), of[is_held].tolist(), strict=True))


def _under(stretch: Stretch, paths: Rows) -> Flags:
    """Which paths of ranges are some or below them: what another thread does for a range stands there."""
    number_of, parent = (stretch.paths[name].to_numpy() for name in ("path", "parent"))
    found = flags(paths, int(number_of.max(initial=0)) + 1)
    for row in np.argsort(number_of, kind="stable").tolist():
        found[number_of[row]] |= parent[row] >= 0 and found[parent[row]]
    return found


def _cost(stretch: Stretch) -> tuple[int, str]:
    """What the launch of a graph takes on the host, and where that is from."""
    calls, own = stretch.waits.calls, np.asarray(stretch.pieces.call)
    graphs, launches = (
        np.unique(own[stretch.role == place(role)]) for role in (CallRole.GRAPH, CallRole.LAUNCH)
    )
    if graphs.size:
        lengths_ns = calls.end_ns[graphs] - calls.start_ns[graphs]
        return int(np.median(lengths_ns)), "median of the graph launches in this capture"
    lengths_ns = calls.end_ns[launches] - calls.start_ns[launches]
    return 2 * int(np.median(lengths_ns)) if launches.size else 0, "taken as two launches"

"""The ranks of a job on the page: who is late and why, who waits, and in which steps."""

from wallscope import units
from wallscope.model.analysis import Analysis
from wallscope.model.job import Job
from wallscope.render.blocks import Block, Column, Figure, Grid, Lines, Section, cells, text
from wallscope.render.foreign import visible
from wallscope.render.job import late_because

_MOST_RANKS, _MOST_STEPS = 128, 200
_ROW_PX, _FRAME_PX = 16, 110


def job(analysis: Analysis) -> Section | None:
    """What the ranks tell together; `None` where no collective of two was matched."""
    found = analysis.job
    if found is None or not found.collectives.matched:
        return None
    answer, _, rest = found.verdict.partition(". ")
    blocks: list[Block] = [Lines((rest,))] if rest else []
    if found.stragglers:
        blocks.append(_late(found))
    blocks += [_heat(analysis, found), _waits(found)]
    return Section("job", "Which rank is late, and why?", f"{answer.rstrip('.')}.", tuple(blocks))


def _late(found: Job) -> Grid:
    columns = (
        text("rank"),
        Column("late on", "steps on which others wait for it more than it waits itself"),
        Column("by", "what others wait for it, the median over those steps"),
        text("reason"),
        text("what it did longer"),
    )
    rows = tuple(
        cells(
            visible(one.name, most=40),
            f"{one.late_steps} of {one.steps}",
            units.milliseconds(one.late_ns_median),
            late_because(one),
            visible(one.why, most=200),
        )
        for one in found.stragglers
    )
    return Grid("Late ranks", columns, rows, is_wordy=True)


def _waits(found: Job) -> Grid:
    columns = (
        text("rank"),
        Column("in collectives", "residence of its collectives in the typical step: durations added up"),
        Column("moving", "bytes move: the shortest residence of the participants"),
        Column("for peers", "waiting for participants that came later"),
        Column("pipeline", "waiting for other pipeline stages"),
        Column("late", "what others wait for it on the binding chain"),
    )
    rows = tuple(
        cells(
            visible(one.name, most=40),
            *map(
                units.milliseconds,
                (one.residence_ns, one.transfer_ns, one.peer_wait_ns, one.pipeline_wait_ns, one.late_ns),
            ),
        )
        for one in found.members
    )
    return Grid("Time in collectives, of the typical step", columns, rows)


def _heat(analysis: Analysis, found: Job) -> Figure:
    """Communication of each rank in each step: who waits is dark, whom all wait for is pale."""
    ranks, names = analysis.ranks[:_MOST_RANKS], [one.name for one in found.members[:_MOST_RANKS]]
    steps = sorted({step.index for rank in ranks for step in rank.steps})[:_MOST_STEPS]
    owned = [{step.index: step.walls.communication for step in rank.steps} for rank in ranks]
    trace = {
        "type": "heatmap",
        "x": steps,
        "y": [visible(name, most=20) for name in names],
        "z": [[own[step] / 1e6 if step in own else None for step in steps] for own in owned],
        "colorscale": [[0, "#fff6e0"], [1, "#8a4b00"]],
        "colorbar": {"title": {"text": "ms"}},
        "hovertemplate": f"%{{y}}, {analysis.anchor.window} %{{x}}: %{{z:.3f}} ms<extra></extra>",
    }
    layout = {
        "xaxis": {"title": {"text": analysis.anchor.window}, "type": "category"},
        "yaxis": {"autorange": "reversed", "automargin": True, "type": "category"},
    }
    more = len(analysis.ranks) - len(ranks)
    left_out = f"; the first {_MOST_RANKS} of {len(analysis.ranks)} ranks" if more else ""
    caption = (
        f"Communication by rank and {analysis.anchor.window}: those that wait are dark, a late one is"
        f" pale{left_out}"
    )
    return Figure("job", caption, (trace,), layout, _ROW_PX * len(ranks) + _FRAME_PX)

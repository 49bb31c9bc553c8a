"""Ranks that are alike, and how they met: groups, pipeline stages, kinds of collectives, clocks."""

from wallscope import units
from wallscope.model.analysis import Analysis
from wallscope.model.job import Clock, Job
from wallscope.model.kinds import Wall
from wallscope.render.foreign import visible
from wallscope.views.blocks import Block, Column, Grid, Lines, Section, cells, text
from wallscope.views.job import clock_lines, kinds_of_collectives, listed
from wallscope.views.sections.job import MOST_RANKS

_WALLS = [wall for wall in Wall if wall is not Wall.UNATTRIBUTED]
_LONGEST_LIST = 80


def survey(analysis: Analysis) -> Section | None:
    """Ranks that do the same work, who speaks for them, and the stages of a pipeline."""
    found = analysis.job
    if found is None or found.ranks < 3:
        return None
    widest = max((group.spread or 0.0 for group in found.groups), default=0.0)
    answer = (
        f"{units.plural(len(found.groups), 'group')} of ranks that do the same work; steps inside one"
        f" differ by {units.percent(widest)} at most."
    )
    blocks: list[Block] = [_groups(found)]
    if found.pipeline:
        blocks.append(_stages(found))
    return Section("survey", "Which ranks are alike?", answer, tuple(blocks), is_open=False)


def _groups(found: Job) -> Grid:
    columns = (
        text("ranks", "that run the same kernels as often"),
        Column("count"),
        Column("step", "median over the ranks of their median step"),
        Column("spread", "longest less shortest, of the median"),
        text("speaks for them", "the rank whose step is nearest to the median"),
        *(Column(str(wall), "share of the typical step of the rank that speaks") for wall in _WALLS),
    )
    rows = []
    for group in found.groups[:MOST_RANKS]:
        member = found.members[group.representative]
        step_ns = sum(member.walls.parts())
        rows.append(
            cells(
                visible(listed(group.ranks, group.places), most=_LONGEST_LIST),
                units.number(len(group.places)),
                units.milliseconds(group.step_median_ns),
                units.percent(group.spread),
                visible(member.name, most=40),
                *(
                    units.percent(getattr(member.walls, wall) / step_ns if step_ns else 0.0)
                    for wall in _WALLS
                ),
            )
        )
    left = len(found.groups) - len(rows)
    note = f"{units.plural(left, 'more group')} in the JSON answer." if left else ""
    return Grid("Groups of like ranks", columns, tuple(rows), note)


def _stages(found: Job) -> Grid:
    columns = (
        Column("stage"),
        text("ranks"),
        Column("compute", "of the typical step, mean over its ranks"),
        Column("waits for others", "for messages of other stages, on the chain"),
        Column("share", "of the step"),
    )
    rows = tuple(
        cells(
            str(stage.stage),
            visible(
                listed(tuple(found.members[place].rank for place in stage.places), stage.places),
                most=_LONGEST_LIST,
            ),
            units.milliseconds(stage.compute_ns),
            units.milliseconds(stage.bubble_ns),
            units.percent(stage.bubble_share),
        )
        for stage in found.pipeline
    )
    return Grid("Pipeline stages", columns, rows)


def clocks(analysis: Analysis) -> Section | None:
    """What was matched, how long bytes moved, and how the clocks of hosts were laid on each other."""
    found = analysis.job
    if found is None or not found.collectives.matched:
        return None
    own = found.collectives
    said = f"{units.number(own.matched)} collectives matched"
    said += f", {units.number(own.unmatched)} operations without a partner" if own.unmatched else ""
    said += f", {units.number(own.partial)} that lack a participant" if own.partial else ""
    blocks: tuple[Block, ...] = (
        _kinds(found),
        Lines(
            (
                *clock_lines(found.clock),
                "An earlier start is no lateness; differences within that are not claimed.",
            )
        ),
        *((_hosts(found),) if len(found.clock.hosts) > 1 else ()),
    )
    return Section("clocks", "How do they meet, and by which clock?", f"{said}.", blocks, is_open=False)


def _kinds(found: Job) -> Grid:
    columns = (
        text("collective"),
        Column("ranks", "that take part in one"),
        Column("a step", "how many of them a rank takes part in"),
        Column("moving", "of the typical step, mean over the ranks: durations added up"),
        Column("waiting", "for ranks that came later"),
        Column("bus bandwidth", "what a link carries, over the time in which bytes move"),
    )
    rows = tuple(cells(*row) for row in kinds_of_collectives(found))
    return Grid("Matched collectives, of the typical step", columns, rows)


def _hosts(found: Job) -> Grid:
    columns = (
        text("host"),
        text("ranks"),
        Column("offset", "of its clock at its first collective, against the clock of reference"),
        Column("drift", "how much faster its clock runs"),
        Column("matched", "collectives that tell it"),
    )
    rows = tuple(
        cells(
            visible(host.hostname or "unknown host", most=60),
            visible(_ranks(found, host), most=_LONGEST_LIST),
            "nothing ties it" if host.offset_ns is None else units.signed_duration(host.offset_ns),
            "unknown" if host.drift_ppm is None else f"{host.drift_ppm:+.1f} ppm",
            units.number(host.matched),
        )
        for host in found.clock.hosts[:MOST_RANKS]
    )
    left = len(found.clock.hosts) - len(rows)
    return Grid(
        "Clocks of hosts",
        columns,
        rows,
        f"{units.plural(left, 'more host')} in the JSON answer." if left else "",
    )


def _ranks(found: Job, host: Clock) -> str:
    return listed(tuple(found.members[place].rank for place in host.ranks), host.ranks)

"""The ranks of a job on the page: who is late and why, who waits, and in which steps."""

from wallscope import units
from wallscope.model.job import Job
from wallscope.model.report import Report
from wallscope.render.foreign import visible
from wallscope.views.blocks import Block, Column, Figure, Grid, Section, cells, text
from wallscope.views.job import late_because
from wallscope.views.job_figures import heat, meeting

MOST_RANKS = 64
_MOST_LATE = 32


def job(report: Report) -> Section | None:
    """What the ranks tell together; `None` where no collective of two was matched."""
    found = report.analysis.job
    if found is None or not found.collectives.matched:
        return None
    answer = found.verdict.partition(". ")[0]
    blocks: list[Block] = []
    if found.stragglers:
        blocks.append(_late(found))
    drawn: tuple[Figure | None, ...] = (heat(report.analysis, found), meeting(report.lanes, found))
    blocks += [figure for figure in drawn if figure is not None]
    blocks.append(_waits(found))
    return Section("job", "Which rank is late, and why?", f"{answer.rstrip('.')}.", tuple(blocks))


def shown_places(found: Job, most: int = MOST_RANKS) -> tuple[int, ...]:
    """The ranks that are listed where there are too many, in the order of the job.

    Late ones, the critical one and those that speak for groups come first, then who waits least and most.
    """
    by_wait = sorted(found.members, key=lambda one: (one.peer_wait_ns, one.place))
    ends = [one.place for pair in zip(by_wait, reversed(by_wait), strict=True) for one in pair]
    first = [one.place for one in found.stragglers]
    first += [found.critical_place, *(group.representative for group in found.groups)]
    return tuple(sorted(list(dict.fromkeys([*first, *ends]))[:most]))


def left_out(count: int, shown: int, where: str) -> str:
    """What a shortened table says of the rest."""
    return f"{units.plural(count - shown, 'more rank')} in {where}." if count > shown else ""


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
        for one in found.stragglers[:_MOST_LATE]
    )
    note = left_out(len(found.stragglers), len(rows), "the JSON answer")
    return Grid("Late ranks", columns, rows, note, is_wordy=True)


def _waits(found: Job) -> Grid:
    columns = (
        text("rank"),
        Column("in collectives", "residence of its collectives in the typical step: durations added up"),
        Column("moving", "bytes move: the shortest residence of the participants"),
        Column("for peers", "waiting for participants that came later"),
        Column("pipeline", "waiting for other pipeline stages"),
        Column("late", "what others wait for it on the binding chain"),
    )
    shown = shown_places(found)
    rows = tuple(
        cells(
            visible(one.name, most=40),
            *map(
                units.milliseconds,
                (one.residence_ns, one.transfer_ns, one.peer_wait_ns, one.pipeline_wait_ns, one.late_ns),
            ),
        )
        for one in (found.members[place] for place in shown)
    )
    note = left_out(
        len(found.members), len(rows), "the JSON answer; listed are those that wait most and least"
    )
    return Grid("Time in collectives, of the typical step", columns, rows, note)

"""What the ranks of a job tell together, on a terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from wallscope import units
from wallscope.model.job import Clocks, Job, RankWaits, Reason, Straggler
from wallscope.model.kinds import Wall
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.foreign import visible
from wallscope.render.grids import grid, titled

_MOST_RANKS = 12
_MOST_LATE = 6
_REASONS = {
    Reason.SLOWER_KERNELS: "same kernels, slower",
    Reason.MORE_TOKENS: "more tokens for its experts",
    Reason.LONGER_KERNELS: "longer kernels",
    Reason.OTHER_WORK: "other work",
    Reason.COMMUNICATION: "waits for others itself",
    Reason.UNKNOWN: "not in the capture",
}


def late_because(one: Straggler) -> str:
    """Why a rank is late, in a few words."""
    return str(one.cause) if one.reason in {Reason.HOST, Reason.MEMORY} else _REASONS[one.reason]


def job_verdict(job: Job) -> Text:
    """The paragraph with its first sentence in bold."""
    first, point, rest = job.verdict.partition(". ")
    return Text.assemble((f"{first}{point.strip()}", "bold"), f" {rest}" if rest else "")


def job_sections(job: Job) -> Iterator[RenderableType]:
    """Who is late, who waits, what groups and stages there are, and how the clocks were put together."""
    if job.stragglers:
        yield _late(job)
    yield _waits(job)
    if len(job.groups) > 1 or job.ranks > 2:
        yield _groups(job)
    if job.pipeline:
        yield _stages(job)
    if job.collectives.kinds:
        yield _collectives(job)
    yield _clocks(job.clock)


def _name(member: RankWaits | Straggler) -> str:
    return visible(member.name.removeprefix("rank "), most=20)


def _late(job: Job) -> Group:
    table = grid("rank", "late on", "by", "reason")
    table.columns[-1].justify = "left"
    for one in job.stragglers[:_MOST_LATE]:
        told = late_because(one)
        colour = "" if one.cause_wall is None else WALL_COLOURS[one.cause_wall]
        table.add_row(
            _name(one),
            f"{one.late_steps} of {one.steps}",
            units.milliseconds(one.late_ns_median),
            Text(visible(told, most=48), style=colour),
        )
    return _with_rest(
        "Late ranks (by: what others wait for them, median)", table, len(job.stragglers), _MOST_LATE
    )


def _waits(job: Job) -> Group:
    """The ranks that wait most and least: residence of collectives in the typical step."""
    table = grid("rank", "step", "in collectives", "moving", "for peers", "pipeline", "late")
    ordered = sorted(job.members, key=lambda one: (one.peer_wait_ns, one.place))
    half = _MOST_RANKS // 2
    shown = ordered if len(ordered) <= _MOST_RANKS else [*ordered[:half], *ordered[-half:]]
    for one in sorted(shown, key=lambda one: one.place):
        table.add_row(
            _name(one),
            units.milliseconds(one.step_median_ns),
            units.milliseconds(one.residence_ns),
            units.milliseconds(one.transfer_ns),
            units.milliseconds(one.peer_wait_ns),
            units.milliseconds(one.pipeline_wait_ns),
            units.milliseconds(one.late_ns),
        )
    title = "Time in collectives, of the typical step (durations added up)"
    return _with_rest(title, table, len(job.members), _MOST_RANKS)


def _groups(job: Job) -> Group:
    table = grid("ranks", "step", "spread", "speaks", *_SHORT)
    for group in job.groups[:_MOST_LATE]:
        walls = job.members[group.representative].walls.parts()
        step_ns = sum(walls)
        table.add_row(
            visible(listed(group.ranks, group.places), most=24),
            units.milliseconds(group.step_median_ns),
            units.percent(group.spread),
            _name(job.members[group.representative]),
            *(units.percent(part / step_ns if step_ns else 0.0) for part in walls[: len(_SHORT)]),
        )
    return _with_rest("Ranks that do the same work", table, len(job.groups), _MOST_LATE)


_SHORT = [{Wall.COMMUNICATION: "comm"}.get(wall, str(wall)) for wall in Wall if wall is not Wall.UNATTRIBUTED]


def listed(ranks: Sequence[int | None], places: Sequence[int]) -> str:
    """Ranks as runs: 0-7, 12.

    >>> listed((0, 1, 2, 5), (0, 1, 2, 3)), listed((None, None), (0, 1))
    ('0-2, 5', '#0-1')
    """
    known = [rank for rank in ranks if rank is not None]
    numbers, mark = (sorted(known), "") if len(known) == len(ranks) else (sorted(places), "#")
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    return mark + ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def _stages(job: Job) -> Group:
    table = grid("stage", "ranks", "compute", "waits for others", "share")
    for stage in job.pipeline:
        ranks = tuple(job.members[place].rank for place in stage.places)
        table.add_row(
            str(stage.stage),
            visible(listed(ranks, stage.places), most=24),
            units.milliseconds(stage.compute_ns),
            units.milliseconds(stage.bubble_ns),
            units.percent(stage.bubble_share),
        )
    return titled("Pipeline stages, of the typical step", table)


def kinds_of_collectives(job: Job) -> list[tuple[str, ...]]:
    """Name, ranks, how many a step, moving, waiting and bus bandwidth of each kind, the longest first."""
    kinds = sorted(job.collectives.kinds, key=lambda kind: -(kind.transfer_ns + kind.wait_ns))
    return [
        (
            f"{'' if kind.axis == 'unknown' else f'{kind.axis} '}{kind.operation}",
            str(kind.participants),
            f"{kind.count:.0f}",
            units.milliseconds(kind.transfer_ns),
            units.milliseconds(kind.wait_ns),
            units.rate(kind.bus_bandwidth_bytes_per_s),
        )
        for kind in kinds
    ]


def _collectives(job: Job) -> Group:
    table = grid("collective", "ranks", "a step", "moving", "waiting", "bus bandwidth")
    for row in kinds_of_collectives(job)[:_MOST_LATE]:
        table.add_row(*row)
    own = job.collectives
    said = f"Matched collectives: {units.number(own.matched)}"
    said += f"; {units.number(own.unmatched)} operations without a partner" if own.unmatched else ""
    said += f"; {units.number(own.partial)} lack a participant" if own.partial else ""
    return _with_rest(said, table, len(job.collectives.kinds), _MOST_LATE)


def clock_lines(clock: Clocks) -> tuple[str, ...]:
    """How clocks were laid on each other, and how far the ends of one collective then lie apart."""
    apart = "unknown"
    if clock.residual_p05_ns is not None and clock.residual_p95_ns is not None:
        low, high = units.duration(clock.residual_p05_ns), units.duration(clock.residual_p95_ns)
        apart = f"{low} to {high} (p05 to p95)"
    return (f"{_METHODS[clock.method]}; ends of one collective lie apart by {apart}.",)


def _clocks(clock: Clocks) -> Group:
    lines = [*clock_lines(clock)]
    for host in clock.hosts[: _MOST_LATE if len(clock.hosts) > 1 else 0]:
        name = visible(host.hostname or "unknown host", most=40)
        if host.offset_ns is None:
            lines.append(f"{name}: nothing ties it to the others, no lateness across is claimed.")
        else:
            drift = "unknown" if host.drift_ppm is None else f"{host.drift_ppm:+.1f} ppm"
            lines.append(f"{name}: {units.signed_duration(host.offset_ns)}, drift {drift}")
    if len(clock.hosts) > max(_MOST_LATE, 1):
        lines.append(f"{len(clock.hosts) - _MOST_LATE} more hosts in the JSON")
    lines.append("An earlier start is no lateness; differences within that distance are not claimed.")
    return titled("Clocks", Group(*map(Text, lines)))


_METHODS = {
    "none": "No collective to compare clocks by",
    "one-clock": "One capture, one clock",
    "session-start": "One host; sessions put together by their start",
    "collective-ends": "Hosts put together by the ends of their collectives",
    "unaligned": "Not all hosts can be put together",
}


def _with_rest(title: str, table: RenderableType, count: int, most: int) -> Group:
    if count <= most:
        return titled(title, table)
    return titled(title, Group(table, Text(f"{count - most} more in the JSON", style="dim")))

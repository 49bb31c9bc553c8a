"""The ranks of a job: walls of each rank, late ranks and why, waiting, groups of equal ranks, clocks."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from wallscope import units
from wallscope.model.analysis import (
    Analysis,
    Clock,
    Clocks,
    CollectiveWaits,
    Job,
    PipelineStage,
    Rank,
    RankGroup,
    RankWaits,
    Reason,
    Straggler,
)
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import Walls
from wallscope.model.enums import Wall
from wallscope.model.frame_rows import GroupRow
from wallscope.model.report import Report
from wallscope.model.section import (
    PAGE,
    Block,
    Cell,
    Column,
    Grid,
    Limit,
    Lines,
    Medium,
    Part,
    Section,
    make_column,
    make_columns,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.model.shown import list_fields
from wallscope.ranks.rank_lists import MOST_PARTS
from wallscope.render.figures import draw_heat, draw_meeting, draw_rank_map
from wallscope.views.light import find_peak_share
from wallscope.views.sections.words import explain_choice, name_process, name_rank
from wallscope.views.verdict import list_job_verdict

MOST_RANKS, _MOST_DRAWN = 64, 24
_MOST_LATE = 6
_FEWEST_FOR_MAP = 3
_REPRESENTS = "the rank whose step is nearest to the median"
_A_STEP = "how many of them a rank takes part in"
_BUS_RATE = "what a link carries, over the time in which bytes move"
_WALLS = [wall for wall in Wall if wall is not Wall.UNATTRIBUTED]
_REASONS = {
    Reason.SLOWER_KERNELS: "same kernels, slower",
    Reason.MORE_TOKENS: "more tokens for its experts",
    Reason.LONGER_KERNELS: "longer kernels",
    Reason.OTHER_WORK: "other work",
    Reason.COMMUNICATION: "waits for others",
    Reason.UNKNOWN: "not in the capture",
}
_METHODS = {
    "none": "No collective to align clocks with",
    "one-clock": "All ranks share one clock",
    "session-start": "One host; sessions aligned by their start",
    "collective-ends": "Hosts aligned by the ends of their collectives",
    "unaligned": "Not all hosts can be aligned",
}
_MOST_RANKS = 16
_MOST_PARTS = 8
_BRIEF = {wall: list_fields(Walls)[wall].brief for wall in Wall}


def build_job(report: Report) -> Section | None:
    """Make who is late and who waits; `None` where no collective of two was matched."""
    job = report.analysis.job
    if job is None or not job.collectives.matched:
        return None
    answer = list_job_verdict(report.analysis)[0]
    places = select_places(job)
    where = "the JSON answer; the ranks that wait most and least are listed"
    waits = _tabulate_waits(
        [job.members[place] for place in places], say_left_out(len(job.members), len(places), where)
    )
    is_map = job.ranks > _FEWEST_FOR_MAP
    drawn = (
        draw_rank_map(job) if is_map else None,
        draw_heat(report.analysis, job, _choose_drawn(job)),
        draw_meeting(report.lanes, job),
    )
    blocks: tuple[Block, ...] = (
        *((_tabulate_late(job),) if job.stragglers else ()),
        *(figure for figure in drawn if figure is not None),
        waits,
    )
    return Section("job", "What holds the job up", answer, blocks)


def _choose_drawn(job: Job) -> tuple[int, ...]:
    """Choose the ranks of the chart by step: all, unless they are too many for one screen."""
    return tuple(range(job.ranks)) if job.ranks <= MOST_RANKS else select_places(job, _MOST_DRAWN, of_each=1)


def select_places(job: Job, most: int = MOST_RANKS, *, of_each: int = MOST_RANKS) -> tuple[int, ...]:
    """Choose the ranks that are listed where there are too many, in the order of the job.

    Late ones, the critical one and those that represent groups come first, then who waits least and most.

    Args:
        job: the job.
        most: how many are listed.
        of_each: how many ranks of each late unit come first.
    """
    by_wait = sorted(job.members, key=lambda one: (one.peer_wait_ns or 0, one.place))
    ends = [one.place for pair in zip(by_wait, reversed(by_wait), strict=True) for one in pair]
    first = [place for one in job.stragglers for place in one.places[:of_each]]
    first += [job.critical_place, *(group.representative for group in job.groups)]
    return tuple(sorted(list(dict.fromkeys([*first, *ends]))[:most]))


def say_left_out(count: int, shown: int, where: str) -> str:
    """Say how many ranks a shortened table leaves out; empty where it has all."""
    return f"{units.plural(count - shown, 'more rank')} in {where}." if count > shown else ""


def _tabulate_late(job: Job) -> Grid:
    def name_late(one: Straggler) -> Cell:
        """Name a unit; the hint lists all of its ranks, which a long name does not."""
        return Cell(one.name, hint=f"ranks {_list_places(job, one.places, most=len(one.places))}")

    columns = (
        on_terminal("name", "rank", value=_shorten_name, most=20),
        make_column(Straggler, "name", media=PAGE, value=name_late, most=60),
        make_column(Straggler, "saved_ns"),
        make_column(Straggler, "replayed_step_ns"),
        on_terminal(
            "reason", "reason", value=lambda one: Cell(_explain_lateness(one), one.cause_wall), most=48
        ),
        on_page("reason", "reason", value=_explain_lateness),
        make_column(Straggler, "why", media=PAGE, most=200),
    )
    brief, limits = "What holds the job up (in the order of repair)", _limit(32, "more unit")
    return tabulate(
        "What holds the job up", columns, job.stragglers, brief=brief, limits=limits, is_wordy=True
    )


def _explain_lateness(one: Straggler) -> str:
    """Say why a unit holds the job up, in a few words."""
    return str(one.cause) if one.reason in {Reason.HOST, Reason.MEMORY} else _REASONS[one.reason]


def _shorten_name(one: RankWaits | Straggler) -> str:
    return one.name.removeprefix("rank ")


def _tabulate_waits(members: Sequence[RankWaits], rest: str) -> Grid:
    columns = (
        on_terminal("name", "rank", value=_shorten_name, most=20),
        make_column(RankWaits, "name", media=PAGE, most=40),
        make_column(RankWaits, "step_median_ns", media=("terminal",)),
        *make_columns(RankWaits, "residence_ns", "transfer_ns", "peer_wait_ns", "pipeline_wait_ns"),
    )
    title = "Time in collectives per typical step"
    return tabulate(title, columns, members, brief=f"{title} (each moment counts once)", rest=rest)


def build_survey(analysis: Analysis) -> Section | None:
    """Make ranks that do the same work, who represents them, and the stages of a pipeline."""
    job = analysis.job
    if job is None or job.ranks < 3:
        return None
    widest = max((group.spread or 0.0 for group in job.groups), default=0.0)
    answer = (
        f"{units.plural(len(job.groups), 'group')} of ranks that do the same work; steps within a group"
        f" differ by at most {units.percent(widest)}."
    )
    blocks = (_tabulate_groups(job), *((_tabulate_stages(job, analysis.ranks),) if job.pipeline else ()))
    return Section("survey", "Groups of ranks", answer, blocks, is_open=False)


def _tabulate_groups(job: Job) -> Grid:
    def member(group: RankGroup) -> RankWaits:
        return job.members[group.representative]

    def ranks(group: RankGroup) -> Cell:
        every = _list_ranks(group.ranks, group.places, most=len(group.places))
        return Cell(_list_ranks(group.ranks, group.places), hint=every)

    def share(group: RankGroup, wall: Wall) -> float:
        walls = member(group).walls
        step_ns = sum(walls.parts())
        return getattr(walls, wall) / step_ns if step_ns else 0.0

    meaning = "share of the typical step of the representative rank"
    columns = (
        on_terminal("ranks", "ranks", value=ranks, most=24),
        on_page("ranks", "ranks", "text", "ranks that run the same kernels equally often", ranks, most=80),
        make_column(GroupRow, "count", media=PAGE, value=lambda group: len(group.places)),
        *make_columns(RankGroup, "step_median_ns", "spread"),
        on_terminal(
            "name", "represented by", "plain", value=lambda group: _shorten_name(member(group)), most=20
        ),
        on_page(
            "name", "representative rank", "text", _REPRESENTS, lambda group: member(group).name, most=40
        ),
        *(
            make_column(
                Walls,
                wall,
                unit="percent",
                meaning=meaning,
                value=partial(share, wall=wall),
                brief=_BRIEF[wall],
            )
            for wall in _WALLS
        ),
    )
    limits = _limit(MOST_RANKS, "more group")
    brief = "Ranks that do the same work"
    return tabulate("Groups of like ranks", columns, job.groups, brief=brief, limits=limits)


def _limit(most: int, noun: str) -> dict[Medium, Limit]:
    return {"terminal": Limit(_MOST_LATE), "page": Limit(most, noun, " in the JSON answer.")}


def _list_ranks(ranks: Sequence[int | None], places: Sequence[int], most: int = MOST_PARTS) -> str:
    """Write ranks as runs: 0-7, 12; by their places where not all numbers are known.

    Of more runs than `most`, the first and the last number are written, and how many there are.

    >>> _list_ranks((0, 1, 2, 5), (0, 1, 2, 3)), _list_ranks((None, None), (0, 1))
    ('0-2, 5', '#0-1')
    >>> _list_ranks(range(0, 64, 2), range(32))
    '32 from 0 to 62'
    """
    known = [rank for rank in ranks if rank is not None]
    numbers, mark = (sorted(known), "") if len(known) == len(ranks) else (sorted(places), "#")
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number, number])
    if len(runs) > most:
        return f"{len(numbers)} from {mark}{numbers[0]} to {mark}{numbers[-1]}"
    return mark + ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in runs)


def _list_places(job: Job, places: Sequence[int], most: int = MOST_PARTS) -> str:
    return _list_ranks(tuple(job.members[place].rank for place in places), places, most)


def _tabulate_stages(job: Job, own: Sequence[Rank]) -> Grid:
    def ranks(stage: PipelineStage) -> Cell:
        every = _list_places(job, stage.places, most=len(stage.places))
        return Cell(_list_places(job, stage.places), hint=every)

    columns = (
        Column("stage", "stage", "count"),
        on_terminal("places", "ranks", "plain", value=ranks, most=24),
        on_page("places", "ranks", value=ranks, most=80),
        Column("compute_ns", "compute", "ms", "of the typical step, mean over its ranks"),
        Column("bubble_ns", "waits for others", "ms", "for messages of other stages, on the chain"),
        *_make_peak_column(own, lambda stage: [own[place] for place in stage.places]),
        Column("bubble_share", "share", "percent", "of the step"),
    )
    return tabulate("Pipeline stages", columns, job.pipeline, brief="Pipeline stages in the typical step")


def _tabulate_kinds(job: Job) -> Grid:
    """Make kinds of collectives, the longest first."""
    own = job.collectives
    brief = f"Matched collectives: {units.number(own.matched)}{_count_unmatched(job, ';')}"
    columns = (
        Column("operation", "collective", value=_name_kind),
        Column("participants", "ranks", "plain", "that take part in one"),
        Column("count", "per step", "plain", _A_STEP, lambda kind: f"{kind.count:.0f}"),
        Column("transfer_ns", "transfer", "ms", "per typical step, mean over the ranks: sum of durations"),
        Column("wait_ns", "waiting", "ms", "for ranks that came later"),
        Column("bus_bandwidth_bytes_per_s", "bus bandwidth", "rate", _BUS_RATE),
    )
    kinds = sorted(own.kinds, key=lambda kind: -(kind.transfer_ns + kind.wait_ns))
    title = "Matched collectives in the typical step"
    return tabulate(title, columns, kinds, brief=brief, limits={"terminal": Limit(_MOST_LATE)})


def _count_unmatched(job: Job, mark: str, that: str = "") -> str:
    own = job.collectives
    text = f"{mark} {units.number(own.unmatched)} unmatched operations" if own.unmatched else ""
    return text + (f"{mark} {units.number(own.partial)} {that}lack a participant" if own.partial else "")


def _name_kind(kind: CollectiveWaits) -> str:
    return f"{'' if kind.axis == 'unknown' else f'{kind.axis} '}{kind.operation}"


def build_clocks(analysis: Analysis) -> Section | None:
    """Make what was matched, how long bytes moved, and how the clocks of hosts were laid on each other."""
    job = analysis.job
    if job is None or not job.collectives.matched:
        return None
    matched = f"{units.number(job.collectives.matched)} collectives matched"
    answer = f"{matched}{_count_unmatched(job, ',', 'that ')}."
    lines = (_describe_method(job.clock),)
    hosts = (_tabulate_hosts(job),) if len(job.clock.hosts) > 1 else ()
    blocks = (_tabulate_kinds(job), Lines(lines), *hosts)
    return Section("clocks", "Collectives", answer, blocks, is_open=False)


def _describe_method(clock: Clocks) -> str:
    """Say how clocks were laid on each other, and how far the ends of one collective then lie apart."""
    apart = "unknown"
    if clock.residual_p05_ns is not None and clock.residual_p95_ns is not None:
        low, high = units.duration(clock.residual_p05_ns), units.duration(clock.residual_p95_ns)
        apart = f"{low} to {high} (p05 to p95)"
    return (
        f"{_METHODS[clock.method]}. All ranks should end one collective at the same time. Measured difference"
        f" between the end on a rank and the mean end on its peers: {apart}. Smaller differences of start"
        " times are not reported."
    )


def _describe_drift(host: Clock) -> str:
    return "unknown" if host.drift_ppm is None else f"{host.drift_ppm:+.1f} ppm"


def _tabulate_hosts(job: Job) -> Grid:
    columns = (
        make_column(Clock, "hostname", value=lambda host: host.hostname or "unknown host", most=60),
        Column("ranks", "ranks", value=lambda host: _list_places(job, host.ranks), most=80),
        make_column(Clock, "offset_ns", none="not aligned"),
        make_column(Clock, "drift_ppm", value=_describe_drift),
        make_column(Clock, "matched"),
    )
    return tabulate("Clocks of hosts", columns, job.clock.hosts, limits=_limit(MOST_RANKS, "more host"))


def tabulate_ranks(analysis: Analysis, ranks: Sequence[Rank], rest: str = "") -> Grid:
    """Make a table of the walls of ranks, in shares of the typical step of each."""

    def name(rank: Rank) -> str:
        return name_process(rank, "pid {} dev {}") if rank.rank is None else f"{rank.rank}"

    def share(rank: Rank, wall: Wall) -> float:
        step_ns, part_ns = rank.typical.step_ns, getattr(rank.typical.walls, wall)
        return part_ns / step_ns if step_ns else 0.0

    whole = analysis.anchor.typical
    columns = (
        on_terminal("name", "rank", value=name),
        on_page("name", "rank", value=lambda rank: Cell(name_rank(rank), parts=_list_parts(rank))),
        Column("step_ns", "typical", "duration", f"length of its {whole}", lambda rank: rank.typical.step_ns),
        *(
            make_column(
                Walls, wall, unit="percent", meaning="", value=partial(share, wall=wall), brief=_BRIEF[wall]
            )
            for wall in Wall
        ),
        *_make_peak_column(ranks, lambda rank: (rank,)),
    )
    title = f"Time breakdown of the {whole} of each rank"
    return tabulate(title, columns, ranks, limits={"terminal": Limit(_MOST_RANKS)}, rest=rest)


def _list_parts(rank: Rank) -> tuple[Part, ...]:
    """Return the largest causes of a rank with their time in its typical step, and what is left."""
    shown = sorted(rank.causes, key=lambda one: -one.typical_ns)[:_MOST_PARTS]
    parts: list[Part] = [
        (
            one.wall,
            describe_cause(one.cause),
            f"{units.duration(one.typical_ns)} · {units.percent(one.share)}",
        )
        for one in shown
        if one.typical_ns
    ]
    left_ns = rank.typical.step_ns - sum(one.typical_ns for one in shown)
    if left_ns > 0 and len(rank.causes) > _MOST_PARTS:
        share = units.percent(left_ns / rank.typical.step_ns)
        parts.append((None, "all other causes", f"{units.duration(left_ns)} · {share}"))
    return tuple(parts)


def _make_peak_column(ranks: Sequence[Rank], own: Callable[[Any], Sequence[Rank]]) -> tuple[Column, ...]:
    """Make the column of the share of the peak that ranks reach on average; none where it is unknown."""
    measures = {found[0] for rank in ranks if (found := find_peak_share(rank.speed_of_light)) is not None}
    if not measures:
        return ()

    def average(entry: Any) -> float | None:
        found = [find_peak_share(rank.speed_of_light) for rank in own(entry)]
        known = [share for _, share in filter(None, found)]
        return sum(known) / len(known) if known and len(known) == len(found) else None

    name = "MFU" if measures == {"MFU"} else "of peak"
    return (Column("peak", name, "percent", "FLOPs of a step at the peak of the GPU, by the step", average),)


def build_ranks(analysis: Analysis) -> Section | None:
    """Make ranks side by side; `None` for a single one."""
    count = len(analysis.ranks)
    if count < 2:
        return None
    places = range(min(count, MOST_RANKS)) if analysis.job is None else select_places(analysis.job)
    shown = name_rank(analysis.ranks[analysis.diagnosis.rank_index])
    answer = f"{count} ranks; the details are those of {shown}, {explain_choice(analysis)}."
    rest = say_left_out(count, len(places), "the JSON answer")
    table = tabulate_ranks(analysis, [analysis.ranks[place] for place in places], rest)
    return Section("ranks", "Ranks", answer, (table,))

"""The verdict of an analysis in two words and one sentence, and the time that both are about."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.diagnosis import RareStall, Walls, WallShare, WallShares
from wallscope.model.enums import Wall
from wallscope.model.section import Items, Line, Section, Span, Tone
from wallscope.render.texts import visible
from wallscope.summary.diagnosis import LOSSES, Decision, decide_wall, find_overall_wall
from wallscope.summary.verdict import tell_hidden_communication
from wallscope.thresholds.verdict import DOMINANT_LEAD_SHARE, DOMINANT_SHARE, SHOWN_HIDDEN_SHARE
from wallscope.views.sections.words import explain_choice, name_rank

_HEADLINES = {
    **{str(wall): f"{wall.upper()}-BOUND" for wall in Wall},
    "mixed": "NO SINGLE WALL",
    "unknown": "WALL UNKNOWN",
}
_LONGEST_RANGE = 60
_OF_TYPICAL = frozenset({"typical", "median"})
"""Bases whose times are those of the typical step."""


@dataclass(frozen=True, slots=True)
class TimeBasis:
    """What the verdict is about: times and shares of its walls, its name in a sentence, a title of its bars.

    Where the verdict is based on medians of shares, the times are those of the typical step.
    """

    kind: Literal["median", "typical", "mean", "whole", "job"]
    walls: Walls
    whole: str
    title: str = ""
    shares: WallShares | None = None

    @property
    def total_ns(self) -> int:
        """Length of the time."""
        return sum(self.walls.parts())

    def share(self, wall: Wall) -> float:
        """Share of a wall of it."""
        if self.shares is not None:
            found: WallShare = getattr(self.shares, wall)
            mean = found.mean_share
            return mean if self.kind == "mean" and mean is not None else found.share
        part_ns: int = getattr(self.walls, wall)
        return part_ns / max(self.total_ns, 1)


def choose_basis(analysis: Analysis, rank: Rank) -> TimeBasis:
    """Choose the time that the verdict is about; every screen shows its shares first.

    This is the mean over the ranks where they were matched. It is the whole capture or the mean step where
    the verdict is about these. Else it is the median of the shares of the deciding steps, if there are some.
    """
    anchor, job, shares = analysis.anchor, analysis.job, analysis.diagnosis.walls
    window = anchor.window
    if job is not None and job.collectives.matched:
        length = units.duration(sum(job.walls.parts()))
        title = f"Mean of {job.ranks} ranks; waiting for a late rank counts as the cause that made it late"
        return TimeBasis("job", job.walls, f"each {length} {window} (mean of {job.ranks} ranks)", title)
    shown = (
        "" if len(analysis.ranks) == 1 else f"{units.capitalize(name_rank(rank))}, {explain_choice(analysis)}"
    )
    decision = _decide_steps(rank)
    dominant = analysis.diagnosis.dominant_wall
    is_of_steps = decision is not None and decision.dominant == dominant
    if rank.whole_walls is not None and find_overall_wall(rank) == dominant and not is_of_steps:
        length = units.duration(sum(rank.whole_walls.parts()))
        title = f"Whole capture; most of it lies before the first {window}"
        return TimeBasis("whole", rank.whole_walls, f"the whole capture ({length})", title)
    if decision is not None and decision.is_mean:
        walls = _average_steps(rank)
        length = units.duration(sum(walls.parts()))
        title = shown or f"Mean of the steady {window}s"
        return TimeBasis("mean", walls, f"the mean {window} ({length})", title, shares)
    if shares is not None and (counted := count_deciding(analysis, rank)):
        return TimeBasis("median", rank.typical.walls, f"the {window} (median of {counted})", shown, shares)
    whole = f"the {units.duration(rank.typical.step_ns)} {window}"
    return TimeBasis("typical", rank.typical.walls, whole, shown)


def count_deciding(analysis: Analysis, rank: Rank) -> str:
    """Count the steps whose shares decide, in words; empty for one."""
    steady, window = sum(step.steady for step in rank.steps), analysis.anchor.window
    if max(steady, 0 if steady else len(rank.steps)) < 2:
        return ""
    return units.plural(steady, f"steady {window}") if steady else units.plural(len(rank.steps), window)


def name_basis(analysis: Analysis, basis: TimeBasis) -> str:
    """Name the time that the bar and the large number show."""
    window, ranks = analysis.anchor.window, len(analysis.ranks)
    return {
        "median": analysis.anchor.typical,
        "typical": analysis.anchor.typical,
        "mean": f"mean {window}, slow ones included",
        "whole": "whole capture",
        "job": f"{window}, mean of {units.plural(ranks, 'rank')}",
    }[basis.kind]


def _decide_steps(rank: Rank) -> Decision | None:
    """Return what decides the wall of the steady steps alone; `None` without any."""
    walls = _list_walls(rank)
    return decide_wall(walls, np.zeros((len(walls), 3), np.int64)) if len(walls) else None


def _average_steps(rank: Rank) -> Walls:
    """Return the walls of the mean steady step."""
    return Walls(*np.rint(_list_walls(rank).mean(axis=0)).astype(int).tolist())


def _list_walls(rank: Rank) -> npt.NDArray[np.int64]:
    return np.array([step.walls.parts() for step in rank.steps if step.steady], dtype=np.int64)


def name_wall(wall: Wall) -> str:
    """Name the time of a wall, at the beginning of a sentence."""
    return "Host work" if wall is Wall.HOST else wall.capitalize()


def find_dominant(analysis: Analysis) -> str:
    """Return the dominant wall, that of the job where its ranks were matched."""
    job = analysis.job
    return str(
        job.dominant_wall if job is not None and job.collectives.matched else analysis.diagnosis.dominant_wall
    )


def summarize_verdict(analysis: Analysis) -> str:
    """Return the verdict in two words."""
    return _HEADLINES[find_dominant(analysis)].lower()


def build_headline(analysis: Analysis, text: Line) -> Section:
    """Make the verdict in two words, next to the text that explains it."""
    dominant = find_dominant(analysis)
    tone: Wall | Tone = Wall(dominant) if dominant in set(Wall) else "doubt"
    head = Span(_HEADLINES[dominant], tone, is_strong=True)
    return Section("verdict", "", "", (Items((((head, " "), text),)),))


def explain_verdict(analysis: Analysis, rank: Rank, basis: TimeBasis) -> str:
    """Explain the dominant wall in a sentence: its share, of what, and its largest cause."""
    dominant = find_dominant(analysis)
    if dominant == "unknown":
        return " ".join(filter(None, explain_unknown(analysis)))
    shares = sorted(((basis.share(wall), wall) for wall in LOSSES), reverse=True)
    if dominant == "mixed":
        listed = ", ".join(f"{wall} {units.percent(share)}" for share, wall in shares if share)
        largest, second_share = shares[0][0], shares[1][0]
        is_led = largest >= max(DOMINANT_SHARE, second_share + DOMINANT_LEAD_SHARE)
        differs = f" The largest loss differs from {analysis.anchor.window} to {analysis.anchor.window}."
        return f"No wall dominates {basis.whole}: {listed}.{differs if is_led else ''}"
    wall = Wall(dominant)
    lead = f"{name_wall(wall)} takes {units.percent(basis.share(wall))} of {basis.whole}"
    reason = _explain_share(analysis, rank, wall, basis)
    if wall is not Wall.COMPUTE:
        return " ".join((f"{lead}{reason}.", *_locate_host_time(rank, wall, basis)))
    share, second = shares[0]
    loss = (
        f"The largest loss is {second}: {units.percent(share)}."
        if share
        else "No time is lost to the other walls."
    )
    is_of_rank = basis.kind in _OF_TYPICAL
    hidden = tell_hidden_communication(rank, analysis.anchor.typical) if is_of_rank else ()
    return " ".join((f"{lead}{reason}.", loss, *hidden))


def describe_hidden_communication(analysis: Analysis, rank: Rank) -> Iterator[str]:
    """Say how much communication runs, where most of it delays nothing and the headline does not say so."""
    found, window, lost_ns = rank.communication, analysis.anchor.typical, rank.typical.walls.communication
    spare_ns = found.union_ns - lost_ns
    if spare_ns < lost_ns or spare_ns < SHOWN_HIDDEN_SHARE * max(rank.typical.step_ns, 1):
        return
    said = " ".join(tell_hidden_communication(rank, window))
    if said and explain_verdict(analysis, rank, choose_basis(analysis, rank)).endswith(said):
        return
    hidden_ns = found.union_ns - found.exposed_ns
    by = f", {units.duration(hidden_ns)} of it hidden by compute," if hidden_ns else ""
    delay = f"delays it by {units.duration(lost_ns)}" if lost_ns else "does not delay it"
    yield f"Communication runs for {units.duration(found.union_ns)} of the {window}{by} and {delay}."


def _locate_host_time(rank: Rank, wall: Wall, basis: TimeBasis) -> Iterator[str]:
    """Name the range in which most host time of the typical step passes."""
    place = None if rank.host_details is None else rank.host_details.range
    if wall is Wall.HOST and basis.kind in _OF_TYPICAL and place is not None:
        name = visible(place.name, most=_LONGEST_RANGE)
        yield f"{units.duration(place.host_ns)} of the host time is in the range {name}."


def _explain_share(analysis: Analysis, rank: Rank, wall: Wall, basis: TimeBasis) -> str:
    """Say what a wall is mostly made of; of the mean step and the whole capture, where it lies."""
    unit, job = analysis.anchor.window, analysis.job
    stall = find_deciding_stall(rank, basis, wall)
    if stall is not None:
        return _describe_stall(rank, stall, unit)
    if basis.kind == "whole":
        return f", most of which lies before the first {unit}{_describe_steps_alone(rank, unit)}"
    where = "" if job is None else f" on {job.members[analysis.diagnosis.rank_index].name}"
    if basis.kind in {"median", "mean"}:
        where = f" of the typical {units.duration(rank.typical.step_ns)} {unit}{where}"
    return _name_main_cause(rank, wall, where)


def _describe_steps_alone(rank: Rank, unit: str) -> str:
    """Say what takes most of the typical step, where the verdict is about the whole capture."""
    times_ns = dict(zip(Wall, rank.typical.walls.parts(), strict=True))
    largest = max(times_ns, key=lambda wall: times_ns[wall])
    share = units.percent(times_ns[largest] / max(rank.typical.step_ns, 1))
    return f". Of the typical {units.duration(rank.typical.step_ns)} {unit}, {largest} takes {share}"


def find_deciding_stall(rank: Rank, basis: TimeBasis, dominant: str) -> RareStall | None:
    """Return the stall of few steps that makes a wall the dominant one of the mean step, if one does."""
    stalls = [one for one in rank.rare_stalls if one.wall == dominant]
    return stalls[0] if basis.kind == "mean" and stalls else None


def _describe_stall(rank: Rank, stall: RareStall, unit: str) -> str:
    """Say what few steps cost in all, and which loss is the largest of the typical step, without them."""
    steady = sum(step.steady for step in rank.steps)
    said = (
        f": {len(stall.steps)} of {steady} {unit}s take up to {units.duration(stall.most_ns)} more for"
        f" {describe_cause(stall.cause)}, together {units.percent(stall.share)} of the time of all {unit}s"
    )
    parts = {wall: getattr(rank.typical.walls, wall) for wall in LOSSES}
    largest = max(LOSSES, key=lambda wall: parts[wall])
    if largest == stall.wall or not parts[largest]:
        return said
    share = units.percent(parts[largest] / max(rank.typical.step_ns, 1))
    return f"{said}. Without these, the largest loss is {largest}: {share}"


def explain_unknown(analysis: Analysis) -> tuple[str, str]:
    """Return why there is no verdict, without the words of the headline, and what to do, if that is known."""
    first, _, rest = analysis.diagnosis.verdict.partition(". ")
    reason = units.capitalize(first.removeprefix("The wall is unknown: ").rstrip("."))
    cure = rest.partition(". ")[0].rstrip(".")
    return f"{reason}.", f"{cure}." if cure.startswith(("Capture", "Classify")) else ""


def _name_main_cause(rank: Rank, wall: Wall, where: str) -> str:
    own = [entry for entry in rank.causes if entry.wall == wall]
    if not own:
        return ""
    largest = max(own, key=lambda entry: entry.typical_ns)
    name = describe_cause(largest.cause)
    if wall is Wall.COMMUNICATION:
        name = name.partition(", ")[0]
    label = "Largest part" if wall is Wall.COMPUTE else "Main cause"
    return f". {label}: {name}, {units.duration(largest.typical_ns)}{where}"

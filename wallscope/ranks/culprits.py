"""What holds a job up: the units whose replay like their peers shortens the step, one after the other.

A unit is what one repair concerns: the kernels or the host of a rank or node, the layers of a pipeline stage,
or the link of a group. The hosts of all ranks are one unit too, as they may stall in turn. Of units
that gain about the same, the smallest is named. It stays repaired, and the search goes on with the rest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags, Rows
from wallscope.model.analysis import UnitKind
from wallscope.ranks.job_replay import JobGraph, OwnTimes
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    CERTAIN_DEVIATIONS_COUNT,
    CULPRIT_SHARE,
    FEWEST_FOR_VARIATION_COUNT,
    LATE_STEP_SHARE,
    MOST_CULPRITS_COUNT,
    SAME_GAIN_SHARE,
    UNEVEN_STAGE_GAIN_SHARE,
    WIDELY_SHARED_COUNT,
)
from wallscope.trace.intervals import Times


@dataclass(frozen=True, slots=True)
class JobUnit:
    """What can be repaired at once: whose kernels (`is_compute`), hosts or transfers.

    `name` is the host of a node, or the axis of a link. `stage` is the number of a stage, `groups` are those
    of the meetings of a link, whose transfers take `ratio` times as long as others.
    """

    kind: UnitKind
    places: tuple[int, ...]
    is_compute: bool
    name: str = ""
    stage: int = -1
    groups: tuple[int, ...] = ()
    ratio: float | None = None

    @property
    def size(self) -> tuple[int, int]:
        """Sort key: smaller units first; a link is less than its ranks."""
        return int(self.kind is not UnitKind.LINK), len(self.places)


@dataclass(frozen=True, slots=True)
class Culprit:
    """A unit, and the mean step before and after its repair, in ns.

    `over_ns` is what the repair takes off the own time of each step from the first, int64 ns.
    """

    unit: JobUnit
    step_ns: float
    replayed_ns: float
    first_step: int
    over_ns: Times

    @property
    def gain_ns(self) -> float:
        """What the step becomes shorter by."""
        return self.step_ns - self.replayed_ns

    @property
    def is_late(self) -> Flags:
        """Whether the unit takes longer in each step, by at least half of what it does on average."""
        found: Flags = (self.over_ns > 0) & (self.over_ns >= LATE_STEP_SHARE * self.over_ns.mean())
        return found


@dataclass(frozen=True, slots=True)
class JobShape:
    """Where the ranks are: node and stage of each, if known; groups and axis by who meets in them."""

    hostnames: tuple[str | None, ...]
    stage_of: Mapping[int, int]
    links: Mapping[tuple[int, ...], tuple[tuple[int, ...], str]]


def find_culprits(graph: JobGraph, shape: JobShape) -> tuple[Culprit, ...]:
    """Return what holds the job up, in the order of repair; nothing where no repair gains enough."""
    alike = _list_alike(graph, shape)
    own, step_ns = graph.own, graph.measure_step_ns(graph.own)
    units, found = list(_list_units(graph, shape)), list[Culprit]()
    while units and step_ns is not None and len(found) < MOST_CULPRITS_COUNT:
        best = _find_best(graph, shape, alike, own, step_ns, units)
        together = [] if best is None else [best]
        if best is None and graph.steps >= FEWEST_FOR_VARIATION_COUNT:
            together = _find_together(graph, shape, alike, own, step_ns, units)
        if not together:
            break
        for culprit, repaired in together:
            before, own = own, repaired
            found.append(culprit)
            step_ns = culprit.replayed_ns
            units.remove(culprit.unit)
            if culprit.unit.kind is UnitKind.LINK:
                found[-1] = replace(culprit, unit=replace(culprit.unit, ratio=_measure_ratio(before, own)))
    return tuple(found)


def _find_together(  # noqa: PLR0913, PLR0917  # all that is known of the job
    graph: JobGraph,
    shape: JobShape,
    alike: Sequence[list[int]],
    own: OwnTimes,
    step_ns: float,
    units: Sequence[JobUnit],
) -> list[tuple[Culprit, OwnTimes]]:
    """Return units that hide each other: only without all of them the step is shorter.

    Each takes longer in step after step. They are in the order in which repairs gain most.
    """
    late = _list_slow(graph, shape, alike, own, step_ns, units)
    repaired, gain_ns, count = own, 0.0, 0
    while count < len(late) and gain_ns < CULPRIT_SHARE * step_ns:
        repaired = repair_unit(graph, shape, alike, repaired, late[count]) or repaired
        gain_ns, count = step_ns - (graph.measure_step_ns(repaired) or step_ns), count + 1
    if gain_ns < CULPRIT_SHARE * step_ns:
        return []
    left, chain = late[:count], list[tuple[Culprit, OwnTimes]]()
    for unit in reversed(left[:-1]):
        others = own
        for other in left:
            others = others if other is unit else repair_unit(graph, shape, alike, others, other) or others
        without_ns = step_ns - (graph.measure_step_ns(others) or step_ns)
        if without_ns >= (1 - SAME_GAIN_SHARE) * gain_ns:
            left.remove(unit)
    while left:
        tried = []
        for unit in left:
            after = repair_unit(graph, shape, alike, own, unit) or own
            replayed_ns = graph.measure_step_ns(after) or step_ns
            over_ns = _measure_over_ns(graph, own, after, unit)
            tried.append((Culprit(unit, step_ns, replayed_ns, graph.first_step, over_ns), after))
        chain.append(min(tried, key=lambda one: one[0].replayed_ns))
        left.remove(chain[-1][0].unit)
        own, step_ns = chain[-1][1], chain[-1][0].replayed_ns
    return chain


def _list_slow(  # noqa: PLR0913, PLR0917  # all that is known of the job
    graph: JobGraph,
    shape: JobShape,
    alike: Sequence[list[int]],
    own: OwnTimes,
    step_ns: float,
    units: Sequence[JobUnit],
) -> list[JobUnit]:
    """Return ranks that take longer than their peers in step after step, nodes where all their ranks do."""
    over_ns: dict[JobUnit, float] = {}
    sums = {True: graph.sum_segments(own.compute_ns), False: graph.sum_segments(own.rest_ns)}
    for unit in units:
        if unit.kind is not UnitKind.RANK:
            continue
        bound_ns = _bound_gain(graph, alike, sums[unit.is_compute], unit.places)
        if bound_ns is None or bound_ns < CULPRIT_SHARE * step_ns * graph.steps:
            continue
        repaired = repair_unit(graph, shape, alike, own, unit)
        if repaired is None or not _is_steady(graph, own, repaired, unit):
            continue
        each_ns = float(_measure_over_ns(graph, own, repaired, unit).mean())
        if each_ns >= CULPRIT_SHARE * step_ns:
            over_ns[unit] = each_ns
    for node in [unit for unit in units if unit.kind is UnitKind.NODE]:
        inside = [
            one for one in over_ns if one.is_compute == node.is_compute and one.places[0] in node.places
        ]
        if len(inside) == len(node.places):
            over_ns[node] = max(over_ns.pop(one) for one in inside)
    return sorted(over_ns, key=lambda unit: -over_ns[unit])[:MOST_CULPRITS_COUNT]


def _find_best(  # noqa: PLR0913, PLR0917  # all that is known of the job
    graph: JobGraph,
    shape: JobShape,
    alike: Sequence[list[int]],
    own: OwnTimes,
    step_ns: float,
    units: Sequence[JobUnit],
) -> tuple[Culprit, OwnTimes] | None:
    """Return the smallest unit whose gain is about the best, with the times of the job without it."""
    tried = []
    sums = {True: graph.sum_segments(own.compute_ns), False: graph.sum_segments(own.rest_ns)}
    is_balanced = True
    if len(set(shape.stage_of.values())) > 1:
        balanced_ns = _measure_balanced_ns(graph, shape, own)
        is_balanced = balanced_ns is None or step_ns - balanced_ns < UNEVEN_STAGE_GAIN_SHARE * step_ns
    for unit in units:
        least_ns = CULPRIT_SHARE * step_ns
        if unit.kind not in {UnitKind.LINK, UnitKind.STAGE}:
            bound_ns = _bound_gain(graph, alike, sums[unit.is_compute], unit.places)
            if bound_ns is None or bound_ns < least_ns * graph.steps:
                continue
        if unit.kind is UnitKind.STAGE and is_balanced:
            continue
        repaired = repair_unit(graph, shape, alike, own, unit)
        if repaired is not None and unit.is_compute and not _is_steady(graph, own, repaired, unit):
            continue
        if repaired is None or _most_ns(own, repaired) < least_ns * graph.steps:
            continue
        replayed_ns = graph.measure_step_ns(repaired)
        if replayed_ns is not None and step_ns - replayed_ns >= least_ns:
            over_ns = _measure_over_ns(graph, own, repaired, unit)
            tried.append((Culprit(unit, step_ns, replayed_ns, graph.first_step, over_ns), repaired))
    if not tried:
        return None
    most_ns = max(culprit.gain_ns for culprit, _ in tried)
    about = [one for one in tried if one[0].gain_ns >= (1 - SAME_GAIN_SHARE) * most_ns]
    return min(about, key=lambda one: (one[0].unit.size, -one[0].gain_ns))


def _is_steady(graph: JobGraph, before: OwnTimes, after: OwnTimes, unit: JobUnit) -> bool:
    """Return whether a unit takes longer step after step, by more than it varies at random."""
    each = _measure_over_ns(graph, before, after, unit)
    if each.size < FEWEST_FOR_VARIATION_COUNT:
        return bool(each.sum() > 0)
    return bool(each.mean() >= CERTAIN_DEVIATIONS_COUNT * each.std(ddof=1) / np.sqrt(each.size))


def _measure_over_ns(graph: JobGraph, before: OwnTimes, after: OwnTimes, unit: JobUnit) -> Times:
    """Return what a repair takes off each step, summed over ranks or meetings, int64[steps]."""
    if unit.kind is UnitKind.LINK:
        return graph.sum_meetings(before.transfer_ns - after.transfer_ns)
    if unit.is_compute:
        return graph.sum_steps(unit.places, before.compute_ns - after.compute_ns)
    return graph.sum_steps(unit.places, before.rest_ns - after.rest_ns)


def _most_ns(before: OwnTimes, after: OwnTimes) -> int:
    """Return what a repair takes away at most."""
    return sum(
        int(np.maximum(own - left, 0).sum())
        for own, left in (
            (before.compute_ns, after.compute_ns),
            (before.rest_ns, after.rest_ns),
            (before.transfer_ns, after.transfer_ns),
        )
    )


def _measure_ratio(before: OwnTimes, after: OwnTimes) -> float:
    """Return how many times as long the transfers that a repair changes took."""
    changed = before.transfer_ns != after.transfer_ns
    return float(before.transfer_ns[changed].sum()) / max(float(after.transfer_ns[changed].sum()), 1.0)


def _list_units(graph: JobGraph, shape: JobShape) -> Iterator[JobUnit]:
    ranks = range(len(graph.program))
    for members, (groups, axis) in sorted(shape.links.items()):
        yield JobUnit(UnitKind.LINK, members, is_compute=False, name=axis, groups=groups)
    nodes: defaultdict[str, list[int]] = defaultdict(list)
    for place in ranks:
        host = shape.hostnames[place]
        if host is not None:
            nodes[host].append(place)
    for is_compute in (True, False):
        for place in ranks:
            yield JobUnit(UnitKind.RANK, (place,), is_compute=is_compute)
        for host, places in nodes.items():
            if 1 < len(places) < len(ranks):
                yield JobUnit(UnitKind.NODE, tuple(places), is_compute=is_compute, name=host)
    stages = sorted(set(shape.stage_of.values()))
    if len(stages) > 1:
        for stage in stages:
            own = tuple(place for place, one in sorted(shape.stage_of.items()) if one == stage)
            yield JobUnit(UnitKind.STAGE, own, is_compute=True, stage=stage)
    yield JobUnit(UnitKind.JOB, tuple(ranks), is_compute=False)


def repair_unit(
    graph: JobGraph, shape: JobShape, alike: Sequence[list[int]], own: OwnTimes, unit: JobUnit
) -> OwnTimes | None:
    """Return the times of a job whose unit works like its peers, `alike` by rank; `None` without any."""
    if unit.kind is UnitKind.LINK:
        transfer_ns = _even_links(graph, own.transfer_ns, unit.groups)
        return None if transfer_ns is None else replace(own, transfer_ns=transfer_ns)
    if unit.kind is UnitKind.STAGE:
        compute_ns = _balance_stage(graph, shape, own.compute_ns, unit.stage)
        return None if compute_ns is None else replace(own, compute_ns=compute_ns)
    times_ns = own.compute_ns if unit.is_compute else own.rest_ns
    evened_ns = _even_ranks(graph, alike, times_ns, unit.places)
    if evened_ns is None:
        return None
    return replace(own, compute_ns=evened_ns) if unit.is_compute else replace(own, rest_ns=evened_ns)


def _list_alike(graph: JobGraph, shape: JobShape) -> list[list[int]]:
    """Return for each rank those with its program and stage, itself too."""
    alike: defaultdict[tuple[bytes, int | None], list[int]] = defaultdict(list)
    keys = [(program, shape.stage_of.get(place)) for place, program in enumerate(graph.program)]
    for place, key in enumerate(keys):
        alike[key].append(place)
    return [alike[key] for key in keys]


def _find_usual(
    graph: JobGraph, alike: Sequence[list[int]], sums: Times, places: Sequence[int]
) -> dict[int, npt.NDArray[np.float64]] | None:
    """Return the usual sums of the segments of some ranks: the median of others that are alike."""
    chosen, found = set(places), dict[int, npt.NDArray[np.float64]]()
    usual_of: dict[int, npt.NDArray[np.float64]] = {}
    for place in places:
        own = alike[place]
        if id(own) not in usual_of:
            others = [one for one in own if one not in chosen]
            if len(chosen) == len(graph.program):
                others = own if len(own) > 1 else []
            if not others:
                return None
            spans = [_span_of(graph, one) for one in others[:WIDELY_SHARED_COUNT]]
            own_ns = [sums[span] for span in spans]
            is_pair = others is own and len(own) == _PAIR
            usual_of[id(own)] = np.min(own_ns, axis=0) if is_pair else np.median(own_ns, axis=0)
        found[place] = usual_of[id(own)]
    return found


def _span_of(graph: JobGraph, place: int) -> slice:
    return slice(graph.segment_ptr[place], graph.segment_ptr[place + 1])


def _bound_gain(
    graph: JobGraph, alike: Sequence[list[int]], sums: Times, places: Sequence[int]
) -> float | None:
    """Return what a repair of some ranks takes away at most, in ns; `None` where they have no peers."""
    usual = _find_usual(graph, alike, sums, places)
    if usual is None:
        return None
    return sum(float(np.maximum(sums[_span_of(graph, place)] - own, 0).sum()) for place, own in usual.items())


def _even_ranks(
    graph: JobGraph, alike: Sequence[list[int]], times_ns: Times, places: Sequence[int]
) -> Times | None:
    """Set each part of the steps of some ranks to the median of others with their program and stage."""
    sums, changed = graph.sum_segments(times_ns), times_ns.copy()
    usual = _find_usual(graph, alike, sums, places)
    if usual is None:
        return None
    for place, target in usual.items():
        events = slice(graph.event_ptr[place], graph.event_ptr[place + 1])
        first = int(graph.segment_ptr[place])
        own, segment = sums[_span_of(graph, place)], graph.segment[events] - first
        changed[events] = _scale_segments(times_ns[events], segment, own, target)
    return changed


_PAIR = 2
"""Ranks of which one stalls at a time: the other is the usual one."""


def _scale_segments(times_ns: Times, segment: Rows, sums: Times, target: npt.NDArray[np.float64]) -> Times:
    """Scale the times of events so that their segments have other sums; an empty one gets it at its end."""
    factor = np.divide(target, sums, out=np.ones(sums.size), where=sums > 0)
    scaled = np.rint(times_ns * factor[segment]).astype(np.int64)
    empty = np.flatnonzero((sums == 0) & (target > 0))
    if empty.size:
        last = np.searchsorted(segment, empty, side="right") - 1
        scaled[last] += np.rint(target[empty]).astype(np.int64)
    return scaled


def _balance_stage(graph: JobGraph, shape: JobShape, times_ns: Times, stage: int) -> Times | None:
    """Shorten the compute of a stage to the median of the others'; `None` where it has no more."""
    means = _measure_stages(graph, shape, times_ns)
    usual = float(np.median([mean for own, mean in means.items() if own != stage]))
    return (
        _scale_stages(graph, shape, times_ns, {stage: usual / means[stage]}) if means[stage] > usual else None
    )


def _measure_stages(graph: JobGraph, shape: JobShape, times_ns: Times) -> dict[int, float]:
    """Return the mean compute of the ranks of each stage, in ns."""
    of_rank = np.add.reduceat(times_ns, graph.event_ptr[:-1])
    by_stage: defaultdict[int, list[int]] = defaultdict(list)
    for place, own in sorted(shape.stage_of.items()):
        by_stage[own].append(int(of_rank[place]))
    return {own: float(np.mean(values)) for own, values in by_stage.items()}


def _scale_stages(graph: JobGraph, shape: JobShape, times_ns: Times, factors: Mapping[int, float]) -> Times:
    factor = np.ones(len(graph.program))
    for place, own in shape.stage_of.items():
        factor[place] = factors.get(own, 1.0)
    return np.rint(times_ns * np.repeat(factor, np.diff(graph.event_ptr))).astype(np.int64)


def _measure_balanced_ns(graph: JobGraph, shape: JobShape, own: OwnTimes) -> float | None:
    """Return the step of a job whose stages share their compute evenly, as layers could be moved."""
    means = _measure_stages(graph, shape, own.compute_ns)
    ideal = float(np.mean(list(means.values())))
    factors = {stage: ideal / mean for stage, mean in means.items() if mean}
    return graph.measure_step_ns(
        replace(own, compute_ns=_scale_stages(graph, shape, own.compute_ns, factors))
    )


def _even_links(graph: JobGraph, transfer_ns: Times, groups: Sequence[int]) -> Times | None:
    """Set the transfers of some groups to what others take for the same, place by place, by bytes."""
    mine = np.flatnonzero(np.isin(graph.meeting_group, groups))
    changed, has_like = transfer_ns.copy(), False
    cost = transfer_ns / np.maximum(graph.meeting_bytes, 1)
    for kind in np.unique(graph.meeting_kind[mine]):
        is_alike = graph.meeting_kind == kind
        own = mine[is_alike[mine]]
        others = [
            np.flatnonzero(is_alike & (graph.meeting_group == other))
            for other in np.unique(graph.meeting_group[is_alike])
            if other not in {*groups, -1}
        ]
        others = [other for other in others if other.size == own.size]
        if others:
            has_like = True
            usual = np.median([cost[other] for other in others], axis=0) * np.maximum(
                graph.meeting_bytes[own], 1
            )
            changed[own] = np.rint(usual).astype(np.int64)
    return changed if has_like else None

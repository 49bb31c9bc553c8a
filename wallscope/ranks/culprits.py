"""What holds a job up: the units whose replay like their peers shortens the step, one after the other.

A unit is what one repair concerns: the kernels or the host of a rank or node, the layers of a pipeline stage,
or the link of a group. The hosts of all ranks are one unit too, as they may stall in turn. Of units
that gain about the same, the smallest is named. It stays repaired, and the search goes on with the rest.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import numpy.typing as npt

from wallscope.columns import Flags, Rows, sum_by_group
from wallscope.model.analysis import UnitKind
from wallscope.ranks.job_replay import JobGraph, OwnTimes, Part
from wallscope.records import dataclass
from wallscope.thresholds.causes import (
    CERTAIN_DEVIATIONS_COUNT,
    COMPARED_PEERS_COUNT,
    CULPRIT_SHARE,
    FEWEST_FOR_VARIATION_COUNT,
    LATE_STAGE_SHARE,
    LATE_STEP_SHARE,
    MOST_CULPRITS_COUNT,
    SAME_GAIN_SHARE,
    SHARED_LATENESS_SHARE,
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


@dataclass(frozen=True, slots=True)
class _Repair:
    """What a unit takes when it works like its peers: the times of some events, or meetings (`at`)."""

    unit: JobUnit
    part: Part
    at: Rows
    before_ns: Times
    after_ns: Times

    @property
    def most_ns(self) -> int:
        """What it takes away at most, so that the window of steps becomes no shorter than by that."""
        return int(np.maximum(self.before_ns - self.after_ns, 0).sum())

    @property
    def ratio(self) -> float:
        """How many times as long what it changes took."""
        changed = self.before_ns != self.after_ns
        return float(self.before_ns[changed].sum()) / max(float(self.after_ns[changed].sum()), 1.0)


@dataclass(frozen=True, slots=True)
class _RepairedJob:
    """A job after some repairs: `units` are not repaired, and the step takes `step_ns` with the times `own`.

    For each rank `peers` has those with its program and stage, itself too. `sums` has int64 ns of each
    segment: of compute (`True`), and of the rest. `links` are the meetings that can be compared.
    """

    graph: JobGraph
    shape: JobShape
    peers: Sequence[list[int]]
    links: "_LinkMeetings"
    units: Sequence[JobUnit]
    own: OwnTimes
    step_ns: float
    sums: Mapping[bool, Times]

    @property
    def least_ns(self) -> float:
        """What a repair must take off the mean step, for its unit to be named."""
        return CULPRIT_SHARE * self.step_ns

    def without(self, repair: _Repair) -> "_RepairedJob":
        """Return the job after one more repair; its step is as before where that cannot be replayed."""
        own = self.own.change(repair.part, repair.at, repair.after_ns)
        step_ns = self.graph.measure_step_ns(own)
        units = [unit for unit in self.units if unit is not repair.unit]
        return replace(
            self,
            units=units,
            own=own,
            step_ns=self.step_ns if step_ns is None else step_ns,
            sums=_sum_segments(self.graph, own),
        )

    def without_all(self, units: Sequence[JobUnit]) -> "_RepairedJob":
        """Return the job after the repairs of some units, one after the other."""
        return reduce(
            lambda job, unit: job if (repair := _repair_unit(job, unit)) is None else job.without(repair),
            units,
            self,
        )

    def name_culprit(self, repair: _Repair, replayed_ns: float) -> Culprit:
        """Return the unit of a repair with what that saves."""
        unit = repair.unit
        if unit.kind is UnitKind.LINK:
            unit = replace(unit, ratio=repair.ratio)
        return Culprit(unit, self.step_ns, replayed_ns, self.graph.first_step, self.measure_over_ns(repair))

    def measure_over_ns(self, repair: _Repair) -> Times:
        """Return what a repair takes off each step, summed over ranks or meetings, int64[steps]."""
        return self.graph.sum_steps(repair.part, repair.at, repair.before_ns - repair.after_ns)

    def is_steady(self, repair: _Repair) -> bool:
        """Return whether a unit takes longer step after step, by more than it varies at random."""
        each = self.measure_over_ns(repair)
        if each.size < FEWEST_FOR_VARIATION_COUNT:
            return bool(each.sum() > 0)
        return bool(each.mean() >= CERTAIN_DEVIATIONS_COUNT * each.std(ddof=1) / np.sqrt(each.size))

    def is_shared(self, repair: _Repair) -> bool:
        """Return whether most ranks of a unit take longer, by half of what the mean one does or more.

        Of ranks that stall in turn, there may be fewer steps than ranks.
        """
        ranks = np.searchsorted(self.graph.event_ptr, repair.at, side="right") - 1
        own = np.searchsorted(np.array(repair.unit.places), ranks)
        over_ns = sum_by_group(own, repair.before_ns - repair.after_ns, len(repair.unit.places))
        late = int((over_ns >= SHARED_LATENESS_SHARE * over_ns.mean()).sum())
        turns = self.graph.steps if repair.unit.kind is UnitKind.JOB else over_ns.size
        return late > SHARED_LATENESS_SHARE * min(over_ns.size, turns)


def find_culprits(graph: JobGraph, shape: JobShape) -> tuple[Culprit, ...]:
    """Return what holds the job up, in the order of repair; nothing where no repair gains enough."""
    step_ns, found = graph.measure_step_ns(graph.own), list[Culprit]()
    if step_ns is None:
        return ()
    job = _RepairedJob(
        graph,
        shape,
        _list_peers(graph, shape),
        _compare_meetings(graph),
        tuple(_list_units(graph, shape)),
        graph.own,
        step_ns,
        _sum_segments(graph, graph.own),
    )
    while job.units and len(found) < MOST_CULPRITS_COUNT:
        tried = list(_try_units(job))
        best = _find_best(job, tried)
        together = [] if best is None else [best]
        if best is None and graph.steps >= FEWEST_FOR_VARIATION_COUNT:
            together = _find_together(job, tried)
        if not together:
            break
        for repair in together:
            after = job.without(repair)
            found.append(job.name_culprit(repair, after.step_ns))
            job = after
    return tuple(found)


def _try_units(job: _RepairedJob) -> Iterator[_Repair]:
    """Yield the repairs that could gain enough: those that take enough away."""
    late_stages = _list_late_stages(job)
    enough_ns = job.least_ns * job.graph.steps
    for unit in job.units:
        if unit.kind is UnitKind.STAGE and unit.stage not in late_stages:
            continue
        repair = _repair_unit(job, unit, enough_ns)
        if repair is None or repair.most_ns < enough_ns:
            continue
        if unit.kind not in {UnitKind.NODE, UnitKind.JOB} or job.is_shared(repair):
            yield repair


def _find_best(job: _RepairedJob, tried: Sequence[_Repair]) -> _Repair | None:
    """Return the repair of the smallest unit whose gain is about the best; the best ones come first.

    One that takes away less than the best gains can gain no more than it takes away.
    """
    gains: list[tuple[float, _Repair]] = []
    most_ns = job.least_ns
    for repair in sorted(tried, key=lambda one: -one.most_ns):
        if repair.most_ns < (1 - SAME_GAIN_SHARE) * most_ns * job.graph.steps:
            break
        if repair.unit.is_compute and not job.is_steady(repair):
            continue
        replayed_ns = job.graph.measure_step_ns(job.own.change(repair.part, repair.at, repair.after_ns))
        if replayed_ns is not None and job.step_ns - replayed_ns >= job.least_ns:
            gains.append((job.step_ns - replayed_ns, repair))
            most_ns = max(most_ns, job.step_ns - replayed_ns)
    about = [(gain_ns, one) for gain_ns, one in gains if gain_ns >= (1 - SAME_GAIN_SHARE) * most_ns]
    return min(about, key=lambda one: (one[1].unit.size, -one[0]))[1] if about else None


def _find_together(job: _RepairedJob, tried: Sequence[_Repair]) -> list[_Repair]:
    """Return repairs of units that hide each other: only without all of them the step is shorter.

    Each takes longer in step after step. They are in the order in which repairs gain most.
    """
    late = _list_slow(job, tried)
    count, after = 0, job
    while count < len(late) and job.step_ns - after.step_ns < job.least_ns:
        after, count = after.without_all(late[count : count + 1]), count + 1
    gain_ns = job.step_ns - after.step_ns
    if gain_ns < job.least_ns:
        return []
    left = late[:count]
    for unit in reversed(left[:-1]):
        others = [other for other in left if other is not unit]
        if job.step_ns - job.without_all(others).step_ns >= (1 - SAME_GAIN_SHARE) * gain_ns:
            left.remove(unit)
    chain = list[_Repair]()
    while left:
        repairs = [repair for unit in left if (repair := _repair_unit(job, unit)) is not None]
        if not repairs:
            break
        job, best = min(((job.without(one), one) for one in repairs), key=lambda one: one[0].step_ns)
        chain.append(best)
        left.remove(best.unit)
    return chain


def _list_slow(job: _RepairedJob, tried: Sequence[_Repair]) -> list[JobUnit]:
    """Return ranks that take longer than their peers in step after step, nodes where all their ranks do.

    Where most ranks take longer than the others do, that is usual, and the others are quick.
    """
    over_ns: dict[JobUnit, float] = {}
    for repair in tried:
        if repair.unit.kind is UnitKind.RANK and job.is_steady(repair):
            each_ns = float(job.measure_over_ns(repair).mean())
            if each_ns >= job.least_ns:
                over_ns[repair.unit] = each_ns
    slow = {(unit.is_compute, unit.places[0]) for unit in over_ns}
    for unit in list(over_ns):
        peers = job.peers[unit.places[0]]
        if 2 * sum((unit.is_compute, peer) in slow for peer in peers) > len(peers):
            del over_ns[unit]
    for node in [unit for unit in job.units if unit.kind is UnitKind.NODE]:
        inside = [
            one for one in over_ns if one.is_compute == node.is_compute and one.places[0] in node.places
        ]
        if len(inside) == len(node.places):
            over_ns[node] = max(over_ns.pop(one) for one in inside)
    return sorted(over_ns, key=lambda unit: -over_ns[unit])[:MOST_CULPRITS_COUNT]


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


def _repair_unit(job: _RepairedJob, unit: JobUnit, enough_ns: float = 0) -> _Repair | None:
    """Return the times of a unit that works like its peers; `None` without any, or with less to gain."""
    if unit.kind is UnitKind.LINK:
        return _even_links(job, unit)
    if unit.kind is UnitKind.STAGE:
        return _balance_stage(job, unit)
    return _even_ranks(job, unit, enough_ns)


def _list_peers(graph: JobGraph, shape: JobShape) -> list[list[int]]:
    """Return for each rank those with its program and stage, itself too."""
    alike: defaultdict[tuple[bytes, int | None], list[int]] = defaultdict(list)
    keys = [(program, shape.stage_of.get(place)) for place, program in enumerate(graph.program)]
    for place, key in enumerate(keys):
        alike[key].append(place)
    return [alike[key] for key in keys]


def _sum_segments(graph: JobGraph, own: OwnTimes) -> dict[bool, Times]:
    return {True: graph.sum_segments(own.compute_ns), False: graph.sum_segments(own.rest_ns)}


def _find_usual(job: _RepairedJob, unit: JobUnit) -> dict[int, npt.NDArray[np.float64]] | None:
    """Return the usual sums of the segments of the ranks of a unit: the median of others that are alike."""
    chosen, sums = set(unit.places), job.sums[unit.is_compute]
    found = dict[int, npt.NDArray[np.float64]]()
    usual_of: dict[int, npt.NDArray[np.float64]] = {}
    for place in unit.places:
        own = job.peers[place]
        if id(own) not in usual_of:
            others = [one for one in own if one not in chosen]
            if len(chosen) == len(job.graph.program):
                others = own if len(own) > 1 else []
            if not others:
                return None
            own_ns = [sums[_span_of(job.graph, one)] for one in others[:WIDELY_SHARED_COUNT]]
            is_pair = others is own and len(own) == _PAIR
            usual_of[id(own)] = np.min(own_ns, axis=0) if is_pair else np.median(own_ns, axis=0)
        found[place] = usual_of[id(own)]
    return found


_PAIR = 2
"""Ranks of which one stalls at a time: the other is the usual one."""


def _span_of(graph: JobGraph, place: int) -> slice:
    return slice(graph.segment_ptr[place], graph.segment_ptr[place + 1])


def _even_ranks(job: _RepairedJob, unit: JobUnit, enough_ns: float) -> _Repair | None:
    """Set each part of the steps of some ranks to the median of others with their program and stage."""
    graph, sums, usual = job.graph, job.sums[unit.is_compute], _find_usual(job, unit)
    if usual is None:
        return None
    over_ns = [np.maximum(sums[_span_of(graph, place)] - own, 0).sum() for place, own in usual.items()]
    if sum(over_ns) < enough_ns:
        return None
    part: Part = "compute_ns" if unit.is_compute else "rest_ns"
    at, after = [], []
    for place, target in usual.items():
        events = np.arange(graph.event_ptr[place], graph.event_ptr[place + 1])
        own, segment = sums[_span_of(graph, place)], graph.segment[events] - graph.segment_ptr[place]
        at.append(events)
        before_ns = job.own.times_of(part)[events]
        likely_ns = _take_shape(job, part, place, [one for one in job.peers[place] if one not in usual])
        is_known = np.isfinite(likely_ns)
        shaped = np.where(is_known, likely_ns, before_ns)
        sums_ns = np.where(
            sum_by_group(segment, is_known.astype(np.int64), own.size) > 0,
            np.bincount(segment, shaped, own.size),
            own,
        )
        after.append(_scale_segments(shaped, segment, sums_ns, target))
    rows = np.concatenate(at)
    return _Repair(unit, part, rows, job.own.times_of(part)[rows], np.concatenate(after))


def _take_shape(job: _RepairedJob, part: Part, place: int, others: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return what the events of a rank take on others, float64 ns; not a number where theirs are different.

    A rank may lose all in one event of a segment, between two messages that it sends.
    """
    graph, times_ns = job.graph, job.own.times_of(part)
    events = np.arange(graph.event_ptr[place], graph.event_ptr[place + 1])
    within = graph.segment[events] - graph.segment_ptr[place]
    offset = events - np.searchsorted(graph.segment, graph.segment[events])
    shape = graph.segment_shape[_span_of(graph, place)]
    found = np.full((max(min(len(others), COMPARED_PEERS_COUNT), 1), events.size), np.nan)
    for row, other in zip(found, others, strict=False):
        same = (graph.segment_shape[_span_of(graph, other)] == shape)[within]
        begins = np.searchsorted(graph.segment, within[same] + graph.segment_ptr[other])
        row[same] = times_ns[begins + offset[same]]
    known = np.isfinite(found).any(axis=0)
    likely = np.full(events.size, np.nan)
    likely[known] = np.nanmedian(found[:, known], axis=0)
    return likely


def _scale_segments(
    times_ns: npt.NDArray[np.float64],
    segment: Rows,
    sums: npt.NDArray[np.float64],
    target: npt.NDArray[np.float64],
) -> Times:
    """Scale the times of events so that their segments have other sums; an empty one gets it at its end."""
    factor = np.divide(target, sums, out=np.ones(sums.size), where=sums > 0)
    scaled = np.rint(times_ns * factor[segment]).astype(np.int64)
    empty = np.flatnonzero((sums == 0) & (target > 0))
    if empty.size:
        last = np.searchsorted(segment, empty, side="right") - 1
        scaled[last] += np.rint(target[empty]).astype(np.int64)
    return scaled


def _balance_stage(job: _RepairedJob, unit: JobUnit) -> _Repair | None:
    """Shorten the compute of a stage to the median of the others'; `None` where it has no more."""
    means, graph = _measure_stages(job), job.graph
    usual = float(np.median([mean for own, mean in means.items() if own != unit.stage]))
    if means[unit.stage] <= usual:
        return None
    spans = [np.arange(graph.event_ptr[place], graph.event_ptr[place + 1]) for place in unit.places]
    rows = np.concatenate(spans)
    before_ns = job.own.compute_ns[rows]
    after_ns = np.rint(before_ns * (usual / means[unit.stage])).astype(np.int64)
    return _Repair(unit, "compute_ns", rows, before_ns, after_ns)


def _list_late_stages(job: _RepairedJob) -> set[int]:
    """Return the stages that may be late: those with far more compute, all where moving layers helps."""
    means = _measure_stages(job)
    if len(means) < _PAIR:
        return set()
    balanced_ns = _measure_balanced_ns(job, means)
    if balanced_ns is not None and job.step_ns - balanced_ns >= UNEVEN_STAGE_GAIN_SHARE * job.step_ns:
        return set(means)
    usual = {one: np.median([mean for other, mean in means.items() if other != one]) for one in means}
    return {one for one, mean in means.items() if mean >= (1 + LATE_STAGE_SHARE) * usual[one]}


def _measure_stages(job: _RepairedJob) -> dict[int, float]:
    """Return the compute of each stage, in ns: what three of four of its ranks reach, as some may be slow."""
    of_rank = np.add.reduceat(job.own.compute_ns, job.graph.event_ptr[:-1])
    by_stage: defaultdict[int, list[int]] = defaultdict(list)
    for place, own in sorted(job.shape.stage_of.items()):
        by_stage[own].append(int(of_rank[place]))
    return {own: float(np.percentile(values, 25, method="lower")) for own, values in by_stage.items()}


def _measure_balanced_ns(job: _RepairedJob, means: Mapping[int, float]) -> float | None:
    """Return the step of a job whose stages share their compute evenly, as layers could be moved."""
    ideal = float(np.mean(list(means.values())))
    factor = np.ones(len(job.graph.program))
    for place, own in job.shape.stage_of.items():
        factor[place] = ideal / means[own] if means[own] else 1.0
    of_event = np.repeat(factor, np.diff(job.graph.event_ptr))
    balanced_ns = np.rint(job.own.compute_ns * of_event).astype(np.int64)
    return job.graph.measure_step_ns(replace(job.own, compute_ns=balanced_ns))


@dataclass(frozen=True, slots=True)
class _LinkMeetings:
    """Meetings of one kind, as many in each of several groups: `groups[i]` has the meetings `rows[i]`."""

    kinds: tuple[tuple[Rows, Rows], ...]
    kinds_of: Mapping[int, tuple[int, ...]]
    """The kinds of which a group has meetings."""


def _compare_meetings(graph: JobGraph) -> _LinkMeetings:
    """Return the meetings that can be compared, place by place: of one kind and as many in several groups."""
    met = np.flatnonzero(graph.meeting_group >= 0)
    order = met[np.lexsort((graph.meeting_group[met], graph.meeting_kind[met]))]
    kind, group = graph.meeting_kind[order], graph.meeting_group[order]
    begins = (
        np.flatnonzero(np.append(True, (np.diff(kind) != 0) | (np.diff(group) != 0))) if order.size else met
    )
    counts = np.diff(np.append(begins, order.size))
    alike: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for begin, count in zip(begins.tolist(), counts.tolist(), strict=True):
        alike[int(kind[begin]), count].append(begin)
    kinds, kinds_of = list[tuple[Rows, Rows]](), defaultdict[int, list[int]](list)
    for (_, count), own in alike.items():
        if len(own) > 1:
            for begin in own:
                kinds_of[int(group[begin])].append(len(kinds))
            kinds.append((group[own], order[np.array(own)[:, None] + np.arange(count)]))
    return _LinkMeetings(tuple(kinds), {one: tuple(own) for one, own in kinds_of.items()})


def _even_links(job: _RepairedJob, unit: JobUnit) -> _Repair | None:
    """Set the transfers of some groups to what others take for the same, place by place, by bytes."""
    transfer_ns, sizes = job.own.transfer_ns, np.maximum(job.graph.meeting_bytes, 1)
    at, after = [], []
    for one in unit.groups:
        for kind in job.links.kinds_of.get(one, ()):
            groups, rows = job.links.kinds[kind]
            others = rows[~np.isin(groups, unit.groups)][:WIDELY_SHARED_COUNT]
            if len(others):
                (own,) = rows[groups == one]
                at.append(own)
                after.append(np.median(transfer_ns[others] / sizes[others], axis=0) * sizes[own])
    if not at:
        return None
    mine = np.concatenate(at)
    return _Repair(
        unit, "transfer_ns", mine, transfer_ns[mine], np.rint(np.concatenate(after)).astype(np.int64)
    )

"""Jobs played out as profiles: ranks work and meet, with the lateness, jitter and clocks that a test plants.

Everything blocks: a rank works, enters a collective, and goes on when the last participant has come and bytes
have moved. Times are ns; the clocks of hosts are told wrong by an offset and run apart by a drift.
"""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from wallscope.model.analysis import AnchorUnit
from wallscope.model.capture import GraphTracing
from wallscope.model.enums import Absent, DeviceState, Wall
from wallscope.model.profile import (
    OPERATION_KEYS,
    PROFILE_STEPS,
    RECOVERABLE,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Header,
    Profile,
    ProfiledInput,
)
from wallscope.model.profile import Work as Told
from wallscope.model.schemas import AXES, BUDGET_PARTS, CLASSIFIED, COLLECTIVES, SLICES, WINDOWS
from wallscope.profile.build import rank_collectives

US, MS = 1_000, 1_000_000
START_UTC_NS = 1_790_000_000_000_000_000
UNIT: AnchorUnit = "step"


@dataclass(frozen=True)
class Work:
    """Time on the chain of a rank: kernels of a category, or of another cause."""

    ns: float
    cause: str = "compute/gemm"
    name: str = "gemm"
    count: int = 1


@dataclass(frozen=True)
class Meet:
    """A collective of some ranks; bytes move for `ns` once all are in."""

    members: tuple[int, ...]
    ns: float
    axis: str = "dp-gradient"
    operation: str = "all-reduce"
    sent: int = 1 << 24


@dataclass(frozen=True)
class Host:
    """A clock that is told wrong by an offset and runs too fast by a drift."""

    name: str = "node-0"
    offset_ns: int = 0
    drift_ppm: float = 0.0


@dataclass
class _Rank:
    steps: list[list[Work | Meet]]
    at: int = 0
    item: int = 0
    now: float = 0.0
    done: list[tuple[int, Work | Meet, float, float, float]] = field(default_factory=list)
    """Step, what it was, start, when the last participant came, end."""
    bounds: list[tuple[float, float]] = field(default_factory=list)
    begun: float = 0.0


def played(steps, seed=0, exit_ns=2 * US):
    """What each rank did: `steps[rank][step]` are works and meetings; ranks leave one a little apart."""
    rng = np.random.default_rng(seed)
    ranks = [_Rank(own) for own in steps]
    waiting: dict[tuple[int, ...], list[tuple[int, Meet, float]]] = defaultdict(list)
    held: set[int] = set()
    while any(rank.at < len(rank.steps) for rank in ranks):
        moved = False
        for number, rank in enumerate(ranks):
            while number not in held and rank.at < len(rank.steps):
                moved = True
                if rank.item == len(rank.steps[rank.at]):
                    rank.bounds.append((rank.begun, rank.now))
                    rank.at, rank.item, rank.begun = rank.at + 1, 0, rank.now
                    continue
                one = rank.steps[rank.at][rank.item]
                if isinstance(one, Work):
                    rank.done.append((rank.at, one, rank.now, rank.now, rank.now + one.ns))
                    rank.now += one.ns
                    rank.item += 1
                    continue
                present = waiting[one.members]
                present.append((number, one, rank.now))
                held.add(number)
                if len(present) == len(one.members):
                    joined = max(at for _, _, at in present)
                    for other, own, at in present:
                        end = joined + own.ns + abs(rng.normal(0, exit_ns))
                        ranks[other].done.append((ranks[other].at, own, at, joined, end))
                        ranks[other].now, ranks[other].item = end, ranks[other].item + 1
                        held.discard(other)
                    present.clear()
        assert moved, "the ranks wait for each other for ever"
    return ranks


def profiles(ranks, hosts=None, *, has_communicators=True, has_peers=False, seed=1):
    """The profiles of played ranks, `hosts[rank]` being where each ran.

    With `has_peers` all messages are of one communicator, and name the rank that they go to or come from.
    """
    rng = np.random.default_rng(seed)
    hosts = hosts or [Host()] * len(ranks)
    sessions = {number: float(rng.integers(-50 * MS, -MS)) for number in range(len(ranks))}
    return [
        _profile(
            number,
            rank,
            hosts[number],
            sessions[number],
            has_communicators=has_communicators,
            has_peers=has_peers,
        )
        for number, rank in enumerate(ranks)
    ]


def _profile(number, rank, host, session, *, has_communicators, has_peers):  # noqa: PLR0913  # a rank
    def local(at):
        return round((at - session) * (1 + host.drift_ppm * 1e-6))

    works = sorted({(one.cause, one.name) for _, one, *_ in rank.done if isinstance(one, Work)})
    meets = sorted({(one.axis, one.operation) for _, one, *_ in rank.done if isinstance(one, Meet)})
    keys = [
        ("", cause.split("/")[1] if cause[:7] == "compute" else "host", name, None) for cause, name in works
    ]
    keys += [("", operation, "nccl", axis) for axis, operation in meets]
    place = {work: key for key, work in enumerate(works)} | {
        meet: len(works) + key for key, meet in enumerate(meets)
    }
    operations, slices, axes, counted = [], [], [], []
    owned, ran = defaultdict(int), defaultdict(lambda: [0, 0, 0])
    for step, one, start, _, end in rank.done:
        span = (local(start), local(end))
        if isinstance(one, Work):
            key, cause, op = place[one.cause, one.name], one.cause, -1
            count, sent = one.count, None
        else:
            key, cause, op = (
                place[one.axis, one.operation],
                f"communication/{one.axis}/unsplit",
                len(operations),
            )
            count, sent = 1, one.sent
            operations.append((op, *span))
            axes.append((op, one.operation, one.axis, None, key))
            code = hash(one.members) % (1 << 60) if has_communicators else None
            size, peer = len(one.members), None
            if has_peers and one.operation == "send-recv":
                (peer,) = set(one.members) - {number}
                code, size = 1, None
            counted.append((op, one.operation, code, size, None, peer, one.sent, one.sent, "payload"))
        owned[step, key, cause] += span[1] - span[0]
        total = ran[step, key]
        total[0] += count
        total[1] += span[1] - span[0]
        total[2] = None if sent is None else total[2] + sent
        slices.append((step, *span, cause.split("/")[0], "operation" if op >= 0 else None, op))
    begins = {step: start for step, one, start, *_ in reversed(rank.done) if isinstance(one, Work)}
    ends = [*(begins[step] for step in sorted(begins)[1:]), rank.bounds[-1][1]]
    windows = [
        (0, step, local(begins[step]), local(end)) for step, end in zip(sorted(begins), ends, strict=True)
    ]
    return Profile(
        Header(
            number,
            number,
            Told("nvtx", UNIT, "train_step", None, "NVIDIA H100", 132, None, GraphTracing.NONE, ()),
            (
                ProfiledInput(
                    f"print-{number}",
                    f"run_rank{number}.sqlite",
                    "2026.2",
                    host.name,
                    START_UTC_NS + round(session) + host.offset_ns,
                    (),
                ),
            ),
        ),
        pl.DataFrame([_step(window, owned) for window in windows], schema=PROFILE_STEPS, orient="row"),
        pl.DataFrame(
            [
                (key, path, category, name, axis, "nccl" if axis else None, None)
                for key, (path, category, name, axis) in enumerate(keys)
            ],
            schema=OPERATION_KEYS,
            orient="row",
        ),
        pl.DataFrame([(0, *at, count, ns, None, sent) for at, (count, ns, sent) in ran.items()],
                     schema=STEP_WORK, orient="row"),
        pl.DataFrame([(0, *at, ns, 0) for at, ns in owned.items()], schema=STEP_OWNED, orient="row"),
        pl.DataFrame(_causes(owned), schema=STEP_CAUSES, orient="row"),
        RECOVERABLE.to_frame(),
        _collectives(operations, windows, slices, axes, counted),
    )  # fmt: skip


def _step(window, owned):
    _, step, start, end = window
    walls = dict.fromkeys(Wall, 0)
    for (at, _, cause), ns in owned.items():
        if at == step:
            walls[Wall(cause.split("/")[0])] += ns
    budget = dict.fromkeys(BUDGET_PARTS, 0) | {
        "compute_ns": walls[Wall.COMPUTE],
        "idle_ns": end - start - walls[Wall.COMPUTE],
    }
    return (0, step, start, end, True, None, *budget.values(), *walls.values())


def _causes(owned):
    sums = defaultdict(int)
    for (step, _, cause), ns in owned.items():
        sums[step, cause] += ns
    for (step, cause), ns in sums.items():
        computes = cause[:7] == "compute"
        state, absent = (DeviceState.COMPUTE, None) if computes else (DeviceState.IDLE, Absent.BLOCKING)
        yield (0, step, cause, state, absent, ns)


def _collectives(operations, windows, slices, axes, counted):
    told = CLASSIFIED.to_frame().clear(len(operations)).with_columns(
        pl.Series("op", [row[0] for row in operations], dtype=pl.UInt32),
        pl.Series("start_ns", [row[1] for row in operations], dtype=pl.Int64),
        pl.Series("end_ns", [row[2] for row in operations], dtype=pl.Int64),
        pl.lit(0, pl.UInt32).alias("stream"),
        pl.lit("communication").cast(CLASSIFIED["class"]).alias("class"),
        pl.lit("kernel").cast(CLASSIFIED["kind"]).alias("kind"),
    )  # fmt: skip
    own = pl.DataFrame(
        slices, schema={name: SLICES[name] for name in ("step", "start_ns", "end_ns", "wall", "kind", "op")},
        orient="row",
    )  # fmt: skip
    keys = dict.fromkeys(told["op"].to_list(), -1) | {row[0]: row[-1] for row in axes}
    return rank_collectives(
        told,
        np.array([-1 if keys[op] is None else keys[op] for op in told["op"]], np.int64),
        pl.DataFrame(windows, schema=WINDOWS, orient="row"),
        own,
        pl.DataFrame([row[:-1] for row in axes], schema=AXES, orient="row"),
        pl.DataFrame(counted, schema=COLLECTIVES, orient="row"),
    )

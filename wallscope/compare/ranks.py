"""Which rank of both sides speaks, and how the others did."""

from dataclasses import dataclass

from wallscope.compare.typical import typical_ns
from wallscope.errors import ComparisonError
from wallscope.model.comparison import RankChange
from wallscope.model.kinds import Wall
from wallscope.model.profile import Profile

RankId = tuple[str, int]
Runs = tuple[tuple[Profile, ...], ...]


@dataclass(frozen=True, slots=True)
class Pairing:
    """The rank that speaks, with its profiles of each run."""

    rank: RankId | None
    base: tuple[Profile, ...]
    head: tuple[Profile, ...]


def paired(base: Runs, head: Runs, wanted: int | None) -> Pairing:
    """The rank that both sides have in every run and that computes the smallest share; the wanted one if any.

    Sides of one rank each are compared whatever their numbers.

    Raises:
        ComparisonError: they have no rank in common, or not the wanted one.
    """
    sides = [[_by_id(run) for run in runs] for runs in (base, head)]
    common = set.intersection(*(set(run) for runs in sides for run in runs))
    if wanted is not None:
        common &= {("rank", wanted)}
        if not common:
            raise ComparisonError(
                f"--rank {wanted} — is not in every run of both sides — leave it out to see which are"
            )
    if not common:
        if all(len(run) == 1 for runs in sides for run in runs):
            return Pairing(None, *(tuple(run[0] for run in runs) for runs in (base, head)))
        raise ComparisonError("base, head — have no rank in common — give the same ranks on both sides")
    shares = {
        rank: sum(_computing(tuple(run[rank] for run in runs)) for runs in sides) for rank in sorted(common)
    }
    speaking = min(shares, key=lambda rank: (shares[rank], rank))
    return Pairing(speaking, *(tuple(run[speaking] for run in runs) for runs in sides))


def rank_changes(base: Runs, head: Runs, speaking: RankId | None) -> tuple[RankChange, ...]:
    """The typical steps of the other ranks that every run of both sides has."""
    sides = [[_by_id(run) for run in runs] for runs in (base, head)]
    common = set.intersection(*(set(run) for runs in sides for run in runs)) - {speaking}
    listed = []
    for rank in sorted(common) if speaking is not None else ():
        base_ns, head_ns = (round(typical_ns(tuple(run[rank] for run in runs))) for runs in sides)
        header = sides[0][0][rank].header
        listed.append(
            RankChange(header.rank, header.device, base_ns, head_ns, head_ns / base_ns if base_ns else 1.0)
        )
    return tuple(listed)


def _by_id(run: tuple[Profile, ...]) -> dict[RankId, Profile]:
    """The ranks of a run by number, by device where the number is not known, else by place."""
    for ids in (
        [None if profile.header.rank is None else ("rank", profile.header.rank) for profile in run],
        [None if profile.header.device is None else ("device", profile.header.device) for profile in run],
        [("place", place) for place in range(len(run))],
    ):
        known = [rank for rank in ids if rank is not None]
        if len(set(known)) == len(run):
            return dict(zip(known, run, strict=True))
    raise AssertionError


def _computing(profiles: tuple[Profile, ...]) -> float:
    step_ns = typical_ns(profiles)
    return float(typical_ns(profiles, f"{Wall.COMPUTE}/") / step_ns) if step_ns else 0.0

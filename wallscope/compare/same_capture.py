"""Whether two files are one capture: a copy, another export or its analysis does not count as another run."""

from collections.abc import Sequence

from wallscope.model.profile import Profile

Run = tuple[Profile, ...]


def drop_copies(runs: tuple[Run, ...]) -> tuple[Run, ...]:
    """Return the runs of a side, each capture once; `runs` hold the profile of each rank."""
    kept: list[Run] = []
    for run in runs:
        if not any(is_same_capture(run, other) for other in kept):
            kept.append(run)
    return tuple(kept)


def is_same_capture(base: Sequence[Profile], head: Sequence[Profile]) -> bool:
    """Return whether two sets of ranks are one capture, whoever exported it.

    To the ns all steps ran at the same times: versions of the exporter add columns and rename files, and
    leave times as they are.
    """

    def place(profile: Profile) -> tuple[int, int]:
        return min(profile.steps["start_ns"].to_list(), default=0), profile.header.device or 0

    pairs = zip(sorted(base, key=place), sorted(head, key=place), strict=False)
    return len(base) == len(head) and all(_is_same_rank(*pair) for pair in pairs)


def _is_same_rank(base: Profile, head: Profile) -> bool:
    times = [profile.steps.select("start_ns", "end_ns", "compute_ns") for profile in (base, head)]
    ours, theirs = base.header.work, head.header.work
    known = (
        (ours.gpu, theirs.gpu),
        (ours.world_size, theirs.world_size),
        (base.header.rank, head.header.rank),
    )
    return (
        times[0].equals(times[1])
        and (ours.kind, ours.unit) == (theirs.kind, theirs.unit)
        and all(None in pair or pair[0] == pair[1] for pair in known)
    )

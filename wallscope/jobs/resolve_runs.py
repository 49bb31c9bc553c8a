"""The sides of a comparison from what the user names: exports, answers, folders and patterns of them."""

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from wallscope.errors import ComparisonError
from wallscope.model.capture import Options, Progress
from wallscope.urls import is_url, redact_url, strip_local

if TYPE_CHECKING:
    from wallscope.cache_folder import Cache
    from wallscope.model.profile import Profile


_EXPORT, _REPORT, _ANSWER = ".sqlite", ".nsys-rep", ".json"
_TRACE = ".json.gz"


def find_captures(named: str) -> tuple[Path, ...]:
    """The exports and answers that a path or a pattern names, in order of name.

    Raises:
        ComparisonError: there is none.
    """
    path = Path(strip_local(named))
    if is_url(named) and not path.exists():
        raise ComparisonError(
            f"{redact_url(named)} — is a URL, and files of this machine alone are compared — analyze it with"
            " --json, and give the answer"
        )
    if not path.exists() and any(letter in named for letter in "*?["):
        anchor = Path(path.anchor)
        found = sorted(anchor.glob(str(path.relative_to(anchor))))
        if not found:
            raise ComparisonError(f"{named} — no file fits it — check the pattern")
        return tuple(found)
    if path.is_dir():
        held = [
            entry
            for entry in sorted(path.iterdir())
            if entry.suffix in {_EXPORT, _REPORT, _ANSWER} or entry.name.endswith(_TRACE)
        ]
        return _drop_repeated_captures(held) or (path,)
    return (path,)


def _drop_repeated_captures(found: list[Path]) -> tuple[Path, ...]:
    """Of a capture that is there as answer, export and report, the first of these."""
    best = {
        entry.stem: entry
        for suffix in (_REPORT, _EXPORT, _TRACE, _ANSWER)
        for entry in found
        if entry.name.endswith(suffix)
    }
    return tuple(entry for entry in found if best[entry.stem] == entry)


def resolve_runs(
    paths: tuple[Path, ...], options: Options, progress: Progress, cache: "Cache | None" = None
) -> "tuple[tuple[Profile, ...], ...]":
    """Return the runs of some captures, each with the profiles of its ranks.

    The captures of one rank are runs, in order of their start; those of different ranks belong together.

    Raises:
        WallscopeError: a capture cannot be read, or some ranks have more runs than others.
    """
    from wallscope.jobs.answers import load_or_analyze  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import is_answer  # noqa: PLC0415  # same
    from wallscope.profile.codec import read_profiles, unpack_profile  # noqa: PLC0415  # keeps --help fast

    by_rank: dict[tuple[int | None, int | None], list[Profile]] = defaultdict(list)
    for path in paths:
        if is_answer(path):
            found = read_profiles(path)
        else:
            ranks = load_or_analyze(path, options, progress, cache).analysis.ranks
            found = tuple(
                unpack_profile(rank.profile, str(path)) for rank in ranks if rank.profile is not None
            )
        for place, profile in enumerate(found):
            rank = profile.header.rank
            by_rank[(rank, None) if rank is not None else (None, place)].append(profile)
    counts = {len(profiles) for profiles in by_rank.values()}
    if len(counts) > 1:
        spelled = ", ".join(
            f"rank {rank if rank is not None else place}: {len(profiles)}"
            for (rank, place), profiles in by_rank.items()
        )
        raise ComparisonError(
            f"{paths[0].parent} — ranks have different numbers of captures ({spelled}) — give as many of each"
        )
    ordered = [sorted(profiles, key=_start) for profiles in by_rank.values()]
    return tuple(zip(*ordered, strict=True))


def _start(profile: "Profile") -> tuple[int, str]:
    first = profile.header.inputs[0]
    return (first.session_start_utc_ns or 0, first.name)

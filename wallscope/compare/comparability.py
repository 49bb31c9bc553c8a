"""Whether two sides can be compared: what differs, copies of a capture, communication split alike on both."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

import polars as pl

from wallscope.compare.kernel_changes import find_fusion
from wallscope.compare.typical_steps import Key, TypicalStep
from wallscope.errors import ComparisonError
from wallscope.model.capture import Profiler
from wallscope.model.cause_catalogue import UNATTRIBUTED_OPAQUE_GRAPH, UNSPLIT, drop_detail, is_part
from wallscope.model.comparison import Mismatch, MismatchSeverity
from wallscope.model.profile import Profile, Work
from wallscope.profile.time_moves import join_split_causes
from wallscope.records import dataclass
from wallscope.thresholds.verdict import LIKE_WORK_SHARE, OTHER_WORK_SHARE, UNTOLD_PART_SHARE

_UNKNOWN = "unknown"
HIDDEN = "hidden in CUDA graphs"
KERNELS_DIFFER = "kernels of the step"
_SHOWN_CATEGORIES = 4
_OTHER_GPU = "another GPU changes all times"
_OTHER_STEPS = "steps begin and end at other places: compare runs with the same --step-range"
_OTHER_JOB = "a larger job communicates more, and each rank may compute less"
_UNKNOWN_TOKENS = (
    "a larger batch seems slower: give --tokens-per-step and --head-tokens-per-step to compare throughput"
)
_PROFILERS = {
    Profiler.NSYS: "Nsight Systems",
    Profiler.TORCH: "PyTorch's: each slows the host at its own cost, so time of the host is not comparable",
}
_SPLIT, _NOT_SPLIT = "separated from transfer", "not separated from transfer"

Profiles = tuple[Profile, ...]


def find_mismatches(base: tuple[Work, TypicalStep], head: tuple[Work, TypicalStep]) -> tuple[Mismatch, ...]:
    """Return what differs between the sides: what forbids a verdict first, then what was tuned, then notes.

    Of unknown work is a side without steps, and one whose steps hold other kernels than those of the other
    without a word about tokens.
    """
    found = [*_compare_hardware(base[0], head[0]), *_work(base[0], head[0]), *_tuning(base[0], head[0])]
    found.extend(_compare_kernels(base, head))
    order = ("incomparable", "changed", "note")
    return tuple(sorted(found, key=lambda entry: order.index(entry.severity)))


def _compare_hardware(base: Work, head: Work) -> Iterator[Mismatch]:
    if base.gpu != head.gpu:
        severity: MismatchSeverity = "incomparable" if base.gpu and head.gpu else "changed"
        yield Mismatch("GPU", base.gpu or _UNKNOWN, head.gpu or _UNKNOWN, severity, _OTHER_GPU, "either")
    elif base.gpu is None:
        yield Mismatch("GPU", _UNKNOWN, _UNKNOWN, "note", _OTHER_GPU, "either")


def _work(base: Work, head: Work) -> Iterator[Mismatch]:
    if "whole-trace" in {base.kind, head.kind} or base.unit != head.unit:
        yield Mismatch("steps", _name_steps(base), _name_steps(head), "incomparable")
    elif (base.kind, base.name) != (head.kind, head.name):
        yield Mismatch("steps", _name_steps(base), _name_steps(head), "changed", _OTHER_STEPS, "either")
    tokens = (base.tokens_per_step, head.tokens_per_step)
    if None in tokens and tokens[0] != tokens[1]:
        spelled = [_UNKNOWN if one is None else str(one) for one in tokens]
        yield Mismatch("tokens a step", spelled[0], spelled[1], "note", _UNKNOWN_TOKENS, "either")
    elif tokens[0] != tokens[1]:
        effect = "times are compared per token, at the smaller number of tokens"
        yield Mismatch("tokens a step", str(tokens[0]), str(tokens[1]), "changed", effect)
    if base.world_size != head.world_size:
        known = None not in tokens or None in {base.world_size, head.world_size}
        sizes = [str(size or _UNKNOWN) for size in (base.world_size, head.world_size)]
        severity: MismatchSeverity = "changed" if known else "incomparable"
        yield Mismatch("ranks of the job", sizes[0], sizes[1], severity, _OTHER_JOB, "either")


def _name_steps(work: Work) -> str:
    if work.kind == "whole-trace":
        return "none found"
    return f"{work.unit}s by {work.name or work.kind}"


def _tuning(base: Work, head: Work) -> Iterator[Mismatch]:
    if base.graphs != head.graphs:
        yield Mismatch("CUDA graphs", str(base.graphs), str(head.graphs), "changed")
    sizes = [{entry.axis: entry.participants for entry in work.communicators} for work in (base, head)]
    for axis in sorted(sizes[0].keys() & sizes[1].keys()):
        if sizes[0][axis] != sizes[1][axis]:
            spelled = [", ".join(map(str, side[axis])) for side in sizes]
            yield Mismatch(f"ranks in {axis} groups", spelled[0], spelled[1], "changed")

    yield from _compare_settings(dict(base.settings), dict(head.settings))


def _compare_settings(base: dict[str, str], head: dict[str, str]) -> Iterator[Mismatch]:
    """Yield every declared setting that differs; one that only one side declares is unknown on the other."""
    if bool(base) != bool(head):
        known = ["declared" if side else _UNKNOWN for side in (base, head)]
        yield Mismatch("run configuration", known[0], known[1], "note")
        return
    for key in sorted(base.keys() | head.keys()):
        ours, theirs = base.get(key, _UNKNOWN), head.get(key, _UNKNOWN)
        if ours != theirs:
            yield Mismatch(key, ours, theirs, "changed", is_setting=True)


def find_capture_mismatches(base: Profile, head: Profile) -> Iterator[Mismatch]:
    """Yield what differs between the captures of both sides: their ranks and their profilers."""
    yield from _ranks_apart(base, head)
    yield from _profilers_apart(base, head)


def _ranks_apart(base: Profile, head: Profile) -> Iterator[Mismatch]:
    ours, theirs = base.header.rank, head.header.rank
    if ours == theirs:
        return
    spelled = ["unknown" if one is None else str(one) for one in (ours, theirs)]
    effect = "ranks of one job may do different work"
    yield Mismatch("rank", spelled[0], spelled[1], "changed", effect, "either")


def _profilers_apart(base: Profile, head: Profile) -> Iterator[Mismatch]:
    ours, theirs = (one.header.inputs[0].profiler if one.header.inputs else None for one in (base, head))
    if ours is None or theirs is None or ours == theirs:
        return
    yield Mismatch("profiler", _PROFILERS[ours], _PROFILERS[theirs], "changed")


def describe_configuration(work: Work, step: TypicalStep) -> dict[str, str]:
    """Return how a run was tuned, by name, as far as its capture and its declared configuration show it."""
    seen = {
        "CUDA graphs": str(work.graphs),
        "precision of matrix multiplication": _find_precision_of_side(step),
        "EP transport": _find_transport(step),
        "tokens a step": "" if work.tokens_per_step is None else str(work.tokens_per_step),
    }
    sizes = {
        f"ranks in {entry.axis} groups": ", ".join(map(str, entry.participants))
        for entry in work.communicators
    }
    return {name: value for name, value in {**seen, **sizes, **dict(work.settings)}.items() if value}


def _compare_kernels(base: tuple[Work, TypicalStep], head: tuple[Work, TypicalStep]) -> Iterator[Mismatch]:
    for what, value_of in (
        ("precision of matrix multiplication", _find_precision_of_side),
        ("EP transport", _find_transport),
    ):
        sides = [value_of(step) or (HIDDEN if is_opaque(step) else "none") for _, step in (base, head)]
        if sides[0] != sides[1] and set(sides) != {"none", HIDDEN}:
            yield Mismatch(what, sides[0], sides[1], "changed")
    counts = [_compute_counts(side[1]) for side in (base, head)]
    alike = _common_shares(*counts)
    if alike >= LIKE_WORK_SHARE:
        return
    if base[0].kind == head[0].kind:
        is_fused = find_fusion(base[1], head[1])
        alike = _common_shares(
            *(_compute_counts(side[1], lambda key: not is_fused(key)) for side in (base, head))
        )
    has_tokens = None not in {base[0].tokens_per_step, head[0].tokens_per_step}
    is_tuned = base[0].graphs != head[0].graphs
    is_other = alike < OTHER_WORK_SHARE and not has_tokens and not is_tuned
    severity: MismatchSeverity = "incomparable" if is_other else "changed"
    base_text, head_text = map(_counts_as_text, counts) if is_other else _write_unlike_counts(*counts)
    yield Mismatch(KERNELS_DIFFER, base_text, head_text, severity)


def _common_shares(base: dict[str, Fraction], head: dict[str, Fraction]) -> float:
    """Return how much of the compute kernels both sides have in common, by category: 1 is all."""
    names = base.keys() | head.keys()
    both = sum(max(base.get(name, Fraction()), head.get(name, Fraction())) for name in names)
    common = sum(min(base.get(name, Fraction()), head.get(name, Fraction())) for name in names)
    return float(common / both) if both else 1.0


def _compute_counts(
    step: TypicalStep, is_meant: Callable[[Key], bool] = lambda _: True
) -> dict[str, Fraction]:
    counts: dict[str, Fraction] = defaultdict(Fraction)
    for key, ran in step.ran.items():
        if key.axis is None and ran.exposed_ns is None and is_meant(key):
            counts[key.category] += ran.count
    return counts


def _counts_as_text(counts: dict[str, Fraction]) -> str:
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_SHOWN_CATEGORIES]
    return ", ".join(f"{float(count):.0f} {category}" for category, count in largest) or "none"


def _write_unlike_counts(base: dict[str, Fraction], head: dict[str, Fraction]) -> tuple[str, str]:
    """Write how many kernels of each category both sides run, of those that differ most."""
    apart = {name: abs(head.get(name, Fraction()) - base.get(name, Fraction())) for name in {*base, *head}}
    largest = sorted(apart, key=lambda name: (-apart[name], name))[:_SHOWN_CATEGORIES]
    shown = [name for name in largest if apart[name] >= 1] or largest
    texts = [", ".join(f"{float(side.get(name, 0)):.0f} {name}" for name in shown) for side in (base, head)]
    return texts[0], texts[1]


def _find_precision_of_side(step: TypicalStep) -> str:
    """Return the precision in which most matrix multiplication runs, by work."""
    return _most(step, lambda key: None if key.precision == "unknown" else key.precision)


def _find_transport(step: TypicalStep) -> str:
    return _most(step, lambda key: key.backend if key.axis == "ep" else None)


def is_opaque(step: TypicalStep) -> bool:
    """Return whether kernels of the step are hidden in CUDA graphs that were traced as a whole."""
    return any(cause.startswith(UNATTRIBUTED_OPAQUE_GRAPH) for cause in step.causes)


def _most(step: TypicalStep, value_of: Callable[[Key], str | None]) -> str:
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for key, ran in step.ran.items():
        name = value_of(key)
        if name is not None:
            sums[name] += ran.work_ns
    return max(sorted(sums), key=lambda name: sums[name]) if sums else ""


@dataclass(frozen=True, slots=True)
class AlignedParts:
    """The profiles of both sides with communication split alike, and which side did not split some."""

    base: Profiles
    head: Profiles
    mismatches: tuple[Mismatch, ...]


def align_parts(base: Profiles, head: Profiles, gated: Sequence[str]) -> AlignedParts:
    """Join the communication of an axis on both sides where one leaves over 5 % of it undivided.

    So it is where a gate asks for it as one.

    Raises:
        ComparisonError: a gate asks for a part that a side does not split.
    """
    shares = [_left_shares(side) for side in (base, head)]
    divided = {name for side in shares for name, left in side.items() if left < 1}
    undivided = {name for name in divided for side in shares if side.get(name, 0.0) > UNTOLD_PART_SHARE}
    for name in gated:
        if is_part(name) and drop_detail(name) in undivided:
            raise ComparisonError(
                f"--fail-on {name} — a side does not separate waiting from transfer — gate"
                f" {drop_detail(name)}, or give the exports of all ranks on both sides"
            )
    whole = undivided | (divided & set(gated))
    if not whole:
        return AlignedParts(base, head, ())
    texts = [
        _NOT_SPLIT if any(side.get(name, 0.0) > UNTOLD_PART_SHARE for name in undivided) else _SPLIT
        for side in shares
    ]
    found = (Mismatch("waiting for peers", texts[0], texts[1], "note"),) if undivided else ()
    ours, theirs = (tuple(join_split_causes(one, whole) for one in side) for side in (base, head))
    return AlignedParts(ours, theirs, found)


def _left_shares(profiles: Iterable[Profile]) -> dict[str, float]:
    """Return the share of the communication of each axis, named as one, that is not divided into parts."""
    sums: dict[str, int] = defaultdict(int)
    left: dict[str, int] = defaultdict(int)
    for profile in profiles:
        own = profile.causes.filter(pl.col("cause").str.starts_with("communication/"))
        for cause, ns in own.group_by("cause").agg(pl.col("ns").sum()).iter_rows():
            if is_part(cause) or cause.endswith(f"/{UNSPLIT}"):
                sums[drop_detail(cause)] += ns
                left[drop_detail(cause)] += ns if not is_part(cause) else 0
    return {name: left[name] / ns for name, ns in sums.items() if ns}


def drop_copies(runs: tuple[Profiles, ...]) -> tuple[Profiles, ...]:
    """Return the runs of a side, each capture once; `runs` hold the profile of each rank."""
    kept: list[Profiles] = []
    for run in runs:
        if not any(is_same_capture(run, other) for other in kept):
            kept.append(run)
    return tuple(kept)


def is_same_capture(base: Sequence[Profile], head: Sequence[Profile]) -> bool:
    """Return whether two sets of ranks are one capture, whoever exported it.

    To the ns all steps ran at the same times: versions of the exporter add columns and rename files, and
    leave times as they are.
    """

    def start(profile: Profile) -> tuple[int, int]:
        return min(profile.steps["start_ns"].to_list(), default=0), profile.header.device or 0

    pairs = zip(sorted(base, key=start), sorted(head, key=start), strict=False)
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


def describe_copies(given: tuple[int, int], kept: tuple[int, int]) -> Iterator[Mismatch]:
    """Yield a note where fewer runs of a side count than were given: each capture counts once."""
    if given == kept:
        return
    texts = [
        f"{count} of {number} given, as others are copies" if count != number else str(count)
        for number, count in zip(given, kept, strict=True)
    ]
    yield Mismatch("runs that count", texts[0], texts[1], "note")

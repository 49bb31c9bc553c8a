"""Whether two sides can be compared at all, and what was tuned between them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from fractions import Fraction

from wallscope.compare.typical import Key, TypicalStep
from wallscope.model.comparison import Mismatch, MismatchSeverity
from wallscope.model.profile import Work
from wallscope.thresholds import LIKE_WORK_SHARE, OTHER_WORK_SHARE

_UNKNOWN = "unknown"
HIDDEN = "hidden in CUDA graphs"
_SHOWN_CATEGORIES = 4


def mismatches(
    base: tuple[Work, TypicalStep], head: tuple[Work, TypicalStep], *, is_same: bool
) -> tuple[Mismatch, ...]:
    """What differs between the sides: what forbids a verdict first, then what was tuned, then notes.

    Of unknown work is a side without steps, and one whose steps hold other kernels than those of the other
    without a word about tokens.
    """
    found = [*_hardware(base[0], head[0]), *_work(base[0], head[0]), *_tuning(base[0], head[0])]
    found.extend(_kernels(base, head))
    if is_same:
        found.append(Mismatch("capture", "the same", "the same", "note"))
    order = ("incomparable", "changed", "note")
    return tuple(sorted(found, key=lambda entry: order.index(entry.severity)))


def _hardware(base: Work, head: Work) -> Iterator[Mismatch]:
    if base.gpu != head.gpu:
        severity: MismatchSeverity = "incomparable" if base.gpu and head.gpu else "changed"
        yield Mismatch("GPU", base.gpu or _UNKNOWN, head.gpu or _UNKNOWN, severity)
    elif base.gpu is None:
        yield Mismatch("GPU", _UNKNOWN, _UNKNOWN, "note")


def _work(base: Work, head: Work) -> Iterator[Mismatch]:
    if "whole-trace" in {base.kind, head.kind} or base.unit != head.unit:
        yield Mismatch("steps", _steps(base), _steps(head), "incomparable")
    elif (base.kind, base.name) != (head.kind, head.name):
        yield Mismatch("steps", _steps(base), _steps(head), "changed")
    tokens = (base.tokens_per_step, head.tokens_per_step)
    if None in tokens and tokens[0] != tokens[1]:
        spelled = [_UNKNOWN if one is None else str(one) for one in tokens]
        yield Mismatch("tokens a step", spelled[0], spelled[1], "note")
    elif tokens[0] != tokens[1]:
        yield Mismatch("tokens a step", str(tokens[0]), str(tokens[1]), "changed")
    if base.world_size != head.world_size:
        known = None not in tokens or None in {base.world_size, head.world_size}
        sizes = [str(size or _UNKNOWN) for size in (base.world_size, head.world_size)]
        yield Mismatch("ranks of the job", sizes[0], sizes[1], "changed" if known else "incomparable")


def _steps(work: Work) -> str:
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

    yield from _settings(dict(base.settings), dict(head.settings))


def _settings(base: dict[str, str], head: dict[str, str]) -> Iterator[Mismatch]:
    """Every declared setting that differs; one that only one side declares is unknown on the other."""
    if bool(base) != bool(head):
        known = ["declared" if side else _UNKNOWN for side in (base, head)]
        yield Mismatch("run configuration", known[0], known[1], "note")
        return
    for key in sorted(base.keys() | head.keys()):
        ours, theirs = base.get(key, _UNKNOWN), head.get(key, _UNKNOWN)
        if ours != theirs:
            yield Mismatch(key, ours, theirs, "changed")


def configuration_of(work: Work, step: TypicalStep) -> dict[str, str]:
    """How a run was tuned, as far as its capture and its declared configuration tell, by name."""
    seen = {
        "CUDA graphs": str(work.graphs),
        "precision of matrix multiplication": _precision(step),
        "EP transport": _transport(step),
        "tokens a step": "" if work.tokens_per_step is None else str(work.tokens_per_step),
    }
    sizes = {
        f"ranks in {entry.axis} groups": ", ".join(map(str, entry.participants))
        for entry in work.communicators
    }
    return {name: value for name, value in {**seen, **sizes, **dict(work.settings)}.items() if value}


def _kernels(base: tuple[Work, TypicalStep], head: tuple[Work, TypicalStep]) -> Iterator[Mismatch]:
    for what, told in (("precision of matrix multiplication", _precision), ("EP transport", _transport)):
        sides = [told(step) or (HIDDEN if is_opaque(step) else "none") for _, step in (base, head)]
        if sides[0] != sides[1] and set(sides) != {"none", HIDDEN}:
            yield Mismatch(what, sides[0], sides[1], "changed")
    counts = [_compute_counts(side[1]) for side in (base, head)]
    alike = _alike(*counts)
    if alike >= LIKE_WORK_SHARE:
        return
    has_tokens = None not in {base[0].tokens_per_step, head[0].tokens_per_step}
    is_tuned = base[0].graphs != head[0].graphs
    is_other = alike < OTHER_WORK_SHARE and not has_tokens and not is_tuned
    severity: MismatchSeverity = "incomparable" if is_other else "changed"
    yield Mismatch("kernels of the step", _spelled(counts[0]), _spelled(counts[1]), severity)


def _alike(base: dict[str, Fraction], head: dict[str, Fraction]) -> float:
    """How much of the compute kernels both sides have in common, by category: 1 is all."""
    names = base.keys() | head.keys()
    both = sum(max(base.get(name, Fraction()), head.get(name, Fraction())) for name in names)
    common = sum(min(base.get(name, Fraction()), head.get(name, Fraction())) for name in names)
    return float(common / both) if both else 1.0


def _compute_counts(step: TypicalStep) -> dict[str, Fraction]:
    counts: dict[str, Fraction] = defaultdict(Fraction)
    for key, ran in step.ran.items():
        if key.axis is None and ran.exposed_ns is None:
            counts[key.category] += ran.count
    return counts


def _spelled(counts: dict[str, Fraction]) -> str:
    largest = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:_SHOWN_CATEGORIES]
    return ", ".join(f"{float(count):.0f} {category}" for category, count in largest) or "none"


def _precision(step: TypicalStep) -> str:
    """The precision in which most matrix multiplication runs, by work."""
    return _most(step, lambda key: None if key.precision == "unknown" else key.precision)


def _transport(step: TypicalStep) -> str:
    return _most(step, lambda key: key.backend if key.axis == "ep" else None)


def is_opaque(step: TypicalStep) -> bool:
    """Whether kernels of the step are hidden in CUDA graphs that were traced as a whole."""
    return any(cause.startswith("unattributed/opaque-graph") for cause in step.causes)


def _most(step: TypicalStep, told: Callable[[Key], str | None]) -> str:
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for key, ran in step.ran.items():
        name = told(key)
        if name is not None:
            sums[name] += ran.work_ns
    return max(sorted(sums), key=lambda name: sums[name]) if sums else ""

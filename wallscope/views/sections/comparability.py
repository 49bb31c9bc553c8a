"""Whether two sides can be compared, and how the numbers of a comparison are made."""

from wallscope import units
from wallscope.model.comparison import Comparison, MismatchSeverity, StepChange
from wallscope.model.profile import ProfiledInput
from wallscope.model.report import ComparisonReport, SideSteps
from wallscope.views.blocks import Block, Cell, Column, Grid, Section, cells, text
from wallscope.views.words import COMPARISON_WORDS

_FOLLOWS: dict[MismatchSeverity, str] = {
    "incomparable": "no verdict",
    "changed": "part of what is compared",
    "note": "to be kept in mind",
}
_REPLICATION = {
    "runs": "Runs were taken as what varies: Student's interval on the logarithms of their typical steps.",
    "steps": "One run a side: blocks of consecutive steps were drawn again and again, from a seed made of the"
    " lengths of the steps, so that the same captures give the same interval. What runs differ by is added.",
    "same": "Both sides are the same capture: nothing varies.",
    "none": "Too few steps or nothing that varies: there is no interval.",
}


def comparability(report: ComparisonReport) -> Section:
    """Can they be compared, and what was changed beside time?"""
    found = report.comparison.mismatches
    tuned = sum(entry.severity == "changed" for entry in found)
    answer = "Yes; nothing that a capture tells was changed between them."
    if not report.comparison.comparable:
        reasons = [
            f"{entry.what}, {entry.base} and {entry.head}"
            for entry in found
            if entry.severity == "incomparable"
        ]
        answer = f"No: {'; '.join(reasons)}."
    elif tuned:
        answer = f"Yes; {units.plural(tuned, 'setting')} differ{'s' if tuned == 1 else ''} between them."
    columns = (text("what differs"), text("base"), text("head"), text("what follows"))
    rows = tuple(cells(entry.what, entry.base, entry.head, _FOLLOWS[entry.severity]) for entry in found)
    table = (Grid("What differs beside time", columns, rows, is_wordy=True),) if rows else ()
    return Section("comparable", "Can they be compared?", answer, (*table, *_sides(report)))


def _sides(report: ComparisonReport) -> tuple[Block, ...]:
    comparison = report.comparison
    told = [
        (
            entry.name,
            entry.commit or "not told",
            entry.testbed or "not told",
            entry.gpu or "unknown",
            _rank(entry.rank, entry.device),
            units.number(side.work.world_size),
            units.number(side.work.tokens_per_step),
            str(side.work.graphs),
            side.work.name or side.work.kind,
        )
        for entry, side in ((comparison.base, report.base), (comparison.head, report.head))
    ]
    names = (
        "name",
        "commit",
        "testbed",
        "GPU",
        "rank that is compared",
        "ranks of the job",
        "tokens a step",
        "CUDA graphs",
        "steps by",
    )
    rows = tuple((Cell(name), Cell(base), Cell(head)) for name, base, head in zip(names, *told, strict=True))
    return (Grid("The sides", (text("of"), text("base"), text("head")), rows),)


def _rank(rank: int | None, device: int | None) -> str:
    if rank is not None:
        return f"rank {rank}"
    return "unknown" if device is None else f"device {device}"


def compared_how(report: ComparisonReport) -> Section:
    """Definitions, what the interval rests on, captures and versions."""
    comparison = report.comparison
    step = comparison.step
    rests = [
        ("confidence", units.percent(step.confidence)),
        ("margin", f"{units.percent(step.margin_ratio)} and {units.duration(step.margin_ns)}"),
        ("ratio, head over base", f"{step.ratio:.4f}"),
        ("its interval", _ratios(step.ratio_low, step.ratio_high)),
        (
            "could be told",
            "unknown"
            if step.minimum_detectable_ratio is None
            else f"a change of {units.percent(step.minimum_detectable_ratio - 1)}",
        ),
        ("the steps of this pair alone", _ratios(step.pair_ratio_low, step.pair_ratio_high)),
        ("deviation between runs", _noise(step)),
        ("scaled to tokens", "no" if step.tokens is None else units.number(step.tokens)),
        ("drawn again", _REPLICATION[step.replication]),
    ]
    captures = tuple(
        row for name, side in (("base", report.base), ("head", report.head)) for row in _captures(name, side)
    )
    blocks: tuple[Block, ...] = (
        Grid(
            "Words",
            (text("word"), text("what it means")),
            tuple(cells(*row) for row in COMPARISON_WORDS.items()),
        ),
        Grid("What the verdict rests on", (text("of"), text("is")), tuple(cells(*row) for row in rests)),
        Grid(
            "Captures",
            (
                text("side"),
                text("capture"),
                text("taken"),
                text("nsys"),
                text("host"),
                text("fingerprint", "of its content"),
                text("findings", "codes of what limits it: wallscope explain CODE"),
                Column("steps", "that are listed above, counting or not"),
            ),
            captures,
            is_wordy=True,
        ),
        Grid("Versions", (text("of"), text("is")), tuple(cells(*row) for row in _versions(comparison))),
    )
    return Section(
        "computed",
        "How is each number computed?",
        "Definitions, intervals, captures, versions.",
        blocks,
        is_open=False,
    )


def _ratios(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{low:.4f} … {high:.4f}"


def _noise(step: StepChange) -> str:
    """What runs differ by, and who says so."""
    if step.run_noise is None:
        return "unknown"
    return f"{units.percent(step.run_noise)}, {step.run_noise_source or 'unknown whence'}"


def _versions(comparison: Comparison) -> tuple[tuple[str, str], ...]:
    return (("wallscope", comparison.wallscope_version), ("comparison", comparison.schema))


def _captures(name: str, side: SideSteps) -> list[tuple[Cell, ...]]:
    counts = dict(side.steps["run"].value_counts().iter_rows())
    return [_capture(name, entry, counts.get(run)) for run, entry in enumerate(side.inputs)]


def _capture(name: str, entry: ProfiledInput, steps: int | None) -> tuple[Cell, ...]:
    return cells(
        name,
        entry.name,
        units.utc(entry.session_start_utc_ns),
        entry.nsys_version or "unknown",
        entry.hostname or "unknown",
        entry.fingerprint,
        ", ".join(entry.findings) or "none",
        units.number(steps),
    )

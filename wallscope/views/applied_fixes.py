"""What came of applied recommendations, in words: bound, replayed and measured gain, and the next loss."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wallscope import units
from wallscope.model.advice import Fix
from wallscope.model.calibration import FixCalibration
from wallscope.model.comparison import AppliedFix, is_perhaps_chance
from wallscope.model.ledger import AppliedEntry, Ledger
from wallscope.model.section import Lines, Section
from wallscope.render.texts import visible

if TYPE_CHECKING:
    import polars as pl

_MOST_EVIDENCE, _LONGEST_EVIDENCE = 2, 160
_SHORT, _FEWEST_CASES_FOR_RANGE = 12, 2


def list_ledger(ledger: Ledger) -> "pl.DataFrame":
    """List the entries of a ledger as rows (`LEDGER_ROWS`)."""
    import polars as pl  # noqa: PLC0415  # kept answers need no tables

    from wallscope.model.schemas import LEDGER_ROWS  # noqa: PLC0415  # same

    rows = [
        (
            entry.testbed,
            entry.base,
            entry.head,
            entry.recorded_utc_ns,
            entry.verdict,
            entry.applied.id,
            ";".join(entry.applied.alternatives),
            ";".join(entry.applied.precisions),
            *(getattr(entry.applied, name) for name in LEDGER_ROWS.names()[8:]),
        )
        for entry in ledger.entries
    ]
    return pl.DataFrame(rows, schema=LEDGER_ROWS, orient="row")


def build_applied_list(ledger: Ledger) -> Iterator[Section]:
    """Make the ledger for a terminal: entries by testbed, then the calibration."""
    pairs = units.plural(ledger.pairs, "pair")
    head = f"{pairs} of neighboring commits compared"
    if ledger.without_fixes:
        some = units.plural(ledger.without_fixes, "pair")
        head += f"; {some} without recommendations in the base, as older records have none"
    yield Section("head", "", "", (Lines((head,)),))
    if not ledger.entries:
        yield Section("none", "", "", (Lines(("No recommendation is recognized as applied.",)),))
    yield from build_entry_lists(ledger.entries, "")
    if ledger.calibration:
        lines = [f"{one.id}: {describe_calibration(one)}" for one in ledger.calibration]
        yield Section("calibration", "Calibration: what recommendations realized", "", (Lines(tuple(lines)),))


def build_entry_lists(entries: Sequence[AppliedEntry], title: str) -> Iterator[Section]:
    """Make a section a testbed with its applied recommendations; `title` comes before the testbed."""
    for bed in dict.fromkeys(entry.testbed for entry in entries):
        lines = [_describe_entry(entry) for entry in entries if entry.testbed == bed]
        head = f"{title}{visible(bed, most=_LONGEST_EVIDENCE)}"
        yield Section("entries", head, "", (Lines(tuple(lines)),))


def _describe_entry(entry: AppliedEntry) -> str:
    ends = f"{entry.base[:_SHORT]} → {entry.head[:_SHORT]}"
    return f"{ends}  {entry.applied.id}: {describe_applied_fix(entry.applied)}"


def describe_calibration(one: FixCalibration) -> str:
    """Say which share of its bound a recommendation realized, and in how many cases.

    >>> describe_calibration(FixCalibration("bf16", 1, 0.7, 0.7, 0.7))
    '70.0 % of the bound in 1 case'
    >>> describe_calibration(FixCalibration("bf16", 5, 0.6, 0.7, 0.8))
    '60.0 % to 80.0 % of the bound in 5 cases (median 70.0 %)'
    >>> describe_calibration(FixCalibration("bf16", 5, 0.6, 0.7, 0.8, 2))
    '60.0 % to 80.0 % of the bound in 5 cases (median 70.0 %), 2 of them perhaps by chance'
    """
    low, middle, high = (units.percent(max(share, 0.0)) for share in (one.low, one.median, one.high))
    cases = units.plural(one.cases, "case")
    if one.cases < _FEWEST_CASES_FOR_RANGE:
        return f"{middle} of the bound in {cases}{', perhaps by chance' if one.perhaps_chance else ''}"
    chance = f", {one.perhaps_chance} of them perhaps by chance" if one.perhaps_chance else ""
    return f"{low} to {high} of the bound in {cases} (median {middle}){chance}"


def describe_applied_fix(one: AppliedFix) -> str:
    """Say that a recommendation was applied, what shows it, and what it gained."""
    shown = "; ".join(visible(text, most=_LONGEST_EVIDENCE) for text in one.evidence[:_MOST_EVIDENCE])
    parts = [
        f"Applied: {name_applied_fix(one)}. {units.capitalize(describe_gain(one))}.",
        *_explain_reached_bound(one),
        f"Evidence: {shown}.",
    ]
    if one.alternatives:
        parts.append(f"{' or '.join(one.alternatives)} would look the same.")
    parts.append(f"The next wall is {one.next_wall} ({units.duration(one.next_wall_ns)}).")
    return " ".join(parts)


def name_applied_fix(one: AppliedFix) -> str:
    """Return the title of a recommendation, with the precision that was applied instead of what it names."""
    return (
        f"{one.title}, here {' and '.join(map(str.upper, one.precisions))}" if one.precisions else one.title
    )


def _explain_reached_bound(one: AppliedFix) -> Iterator[str]:
    """Say why the gain is larger than the bound, if it is, and what the bound or expected gain assumes."""
    if one.share is not None and one.share > 1:
        yield (
            "The gain is more than the bound, so the commit changed more than this, or the bound is too low."
        )
    if one.assumption and one.bound_ns is not None:
        what = "The bound" if one.expected_ns is None else "The expected gain"
        yield f"{what} {visible(one.assumption, most=_LONGEST_EVIDENCE)}."


def describe_gain(one: AppliedFix) -> str:
    """Put the measured gain next to the bound and the replay.

    The interval of the gain follows where it is known, and how much of the bound is realized.
    """
    whole = "mean step" if one.window == "mean" else "typical step"
    way = "shorter" if one.measured_ns >= 0 else "longer"
    text = f"the {whole} is {units.duration(abs(one.measured_ns))} {way}"
    if one.low_ns is not None and one.high_ns is not None:
        write = units.duration if one.low_ns >= 0 and one.measured_ns >= 0 else units.signed_duration
        chance = ", so it may be chance" if is_perhaps_chance(one) else ""
        text += f" (95 % interval of the gain {write(one.low_ns)} to {write(one.high_ns)}{chance})"
    if one.is_joint:
        text += ", with other recommendations that were applied too"
    if one.bound_ns is None:
        return f"{text}; its upper bound was not known"
    bound = units.duration(one.bound_ns)
    share = "" if one.share is None else units.percent(max(one.share, 0.0))
    text += f". This is {share} of its upper bound of {bound}" if share else f". Its upper bound was {bound}"
    if one.replayed_ns is not None and one.replayed_ns not in {one.bound_ns, one.expected_ns}:
        text += f", and the replay gained {units.duration(one.replayed_ns)}"
    if one.expected_ns is not None:
        text += f". At assumed kernel times, {units.duration(one.expected_ns)} were expected"
    return text


def describe_experience(fix: Fix) -> str:
    """Say what a fix realized of its bound in the records of the project; empty without a case."""
    if fix.experience is None:
        return ""
    return f"in these records, it reached {describe_calibration(fix.experience)}"

"""What came of applied recommendations, in words: bound, replayed and measured gain, and the next loss."""

from wallscope import units
from wallscope.model.comparison import AppliedFix
from wallscope.render.texts import visible

_MOST_EVIDENCE, _LONGEST_EVIDENCE = 2, 160


def describe_applied_fix(one: AppliedFix) -> str:
    """Say that a recommendation was applied, what shows it, and what it gained."""
    shown = "; ".join(visible(text, most=_LONGEST_EVIDENCE) for text in one.evidence[:_MOST_EVIDENCE])
    parts = [f"{one.title}: {describe_gain(one)}.", f"Shown by: {shown}."]
    if one.alternatives:
        parts.append(f"The same would be seen with {' or '.join(one.alternatives)}.")
    parts.append(f"The next wall is {one.next_wall}, {units.duration(one.next_wall_ns)}.")
    return " ".join(parts)


def describe_gain(one: AppliedFix) -> str:
    """Put the measured gain next to the bound and the replay.

    The interval of the gain follows where it is known, and how much of the bound is realized.
    """
    whole = "mean step" if one.window == "mean" else "typical step"
    way = "shorter" if one.measured_ns >= 0 else "longer"
    text = f"the {whole} is {units.duration(abs(one.measured_ns))} {way}"
    if one.low_ns is not None and one.high_ns is not None:
        low, high = (units.signed_duration(-time_ns) for time_ns in (one.high_ns, one.low_ns))
        text += f" (95 % interval {low} to {high})"
    if one.is_joint:
        text += ", with other recommendations that were applied too"
    if one.bound_ns is None:
        return f"{text}; no bound was known"
    text += f"; the bound was {units.duration(one.bound_ns)}"
    if one.assumption:
        text += " by its assumption"
    if one.replayed_ns is not None and one.replayed_ns != one.bound_ns:
        text += f", the replay gained {units.duration(one.replayed_ns)}"
    return (
        text if one.share is None else f"{text}: {units.percent(max(one.share, 0.0))} of the bound realized"
    )

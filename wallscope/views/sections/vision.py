"""How much of a step a vision tower, its projectors and the decoder take, and what that suggests."""

from wallscope import units
from wallscope.advice.vision_parts import VisionTimes, find_imbalance, list_vision_times
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.section import Line, Lines, Section
from wallscope.thresholds.verdict import MATERIAL_SHARE, UNEVEN_ENCODER_SHARE


def build_vision(analysis: Analysis, rank: Rank) -> Section | None:
    """Make the section on the parts of a model with vision; `None` unless ranges name them."""
    of_ranks = list_vision_times(analysis)
    times = of_ranks[analysis.ranks.index(rank)]
    if times is None:
        return None
    whole = analysis.anchor.typical
    parts = (
        ("vision tower", times.encoder_ns),
        ("projectors", times.projector_ns),
        ("decoder", times.decoder_ns),
    )
    shown = [f"{name} {units.percent(ns / max(times.step_ns, 1))}" for name, ns in parts]
    answer = f"Device time in ranges of the {whole}: {', '.join(shown)}."
    lines: list[Line] = [(text,) for text in (*_describe_backward(times), *_describe_vision_ranks(of_ranks))]
    lines.append(("Mock data without images would hide the tower: such runs are about twice as fast.",))
    return Section("vision", "Vision and language", answer, (Lines(tuple(lines)),))


def _describe_backward(times: VisionTimes) -> list[str]:
    """Say whether the tower is trained, as far as the capture shows it."""
    if times.encoder_backward_ns is None:
        return ["The capture does not link backward passes to ranges: these are forward times alone."]
    if times.encoder_backward_ns <= MATERIAL_SHARE * times.encoder_ns:
        return ["The tower has no backward pass: it is frozen."]
    share = units.percent(times.encoder_backward_ns / max(times.step_ns, 1))
    return [f"The tower is trained: its backward pass takes {share}, which freezing it would save."]


def _describe_vision_ranks(of_ranks: tuple[VisionTimes | None, ...]) -> list[str]:
    """Say how evenly ranks share the images; nothing of a single rank."""
    imbalance = find_imbalance(of_ranks)
    if imbalance is None:
        return []
    known = [one.encoder_ns for one in of_ranks if one is not None]
    spread = f"{units.duration(min(known))} to {units.duration(max(known))}"
    text = f"Time of the tower on {units.plural(len(known), 'rank')}: {spread}."
    even = imbalance < UNEVEN_ENCODER_SHARE
    return [text if even else f"{text} Spread images evenly: ranks with fewer wait for the others."]

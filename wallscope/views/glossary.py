"""The glossary, made from the texts that the commands and pages show."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from wallscope.advice.definitions import CauseNote, cause_notes, finding_notes
from wallscope.model.cause_catalogue import CALL, list_cause_meanings
from wallscope.model.enums import Wall
from wallscope.trace.kernel_classes import load_shipped_kernel_rules
from wallscope.views.sections.walls import STATE_NAMES
from wallscope.views.sections.words import COMPARISON_WORDS, STATE_WORDS, WALL_WORDS, WORDS

_HEAD = """# Glossary

The terms of wallscope. `wallscope explain WORD` shows more about a term, cause, wall, fix or finding.

This page is made from the texts of the program (`make golden` writes it).
"""


def write_glossary() -> str:
    """The page: words, walls, states, causes, kernels, findings."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    yield from _table("Words of an answer", ("word", "meaning"), WORDS)
    yield from _table("Words of a comparison", ("word", "meaning"), COMPARISON_WORDS)
    yield from _table(
        "Walls", ("wall", "time attributed to it"), {f"`{wall}`": said for wall, said in WALL_WORDS.items()}
    )
    states = {STATE_NAMES[state]: said for state, said in STATE_WORDS.items()}
    yield from _table("What the device did", ("part of a step", "meaning"), states)
    for wall in Wall:
        yield from _causes(wall)
    yield from _kernels()
    yield from _findings()


def _table(title: str, header: tuple[str, str], rows: Mapping[str, str]) -> Iterator[str]:
    yield f"## {title}\n"
    yield f"| {' | '.join(header)} |\n|---|---|"
    yield from (f"| {word} | {_cell(said)} |" for word, said in rows.items())
    yield ""


def _causes(wall: Wall) -> Iterator[str]:
    """The causes of a wall, and how each kind of them is computed."""
    own = {cause: said for cause, said in list_cause_meanings() if cause.startswith(f"{wall}/")}
    rows = {f"`{cause}`": said for cause, said in own.items()}
    yield from _table(f"Causes of {wall}", ("cause", "meaning"), rows)
    told: dict[CauseNote, list[str]] = {}
    for cause in own:
        told.setdefault(_note(cause), []).append(cause)
    yield "How they are computed:\n"
    for note, causes in told.items():
        name = causes[0] if len(causes) == 1 else note.pattern
        yield f"- `{name}`: {note.computed}"
    yield ""


def _note(cause: str) -> CauseNote:
    known = cause.replace(CALL, "cudaStreamSynchronize")
    return next(note for note in cause_notes() if fnmatchcase(known, note.pattern))


def _kernels() -> Iterator[str]:
    """What kernels are called by their names, the patterns of each kind."""
    yield "## Kernels\n"
    yield (
        "Kernels are recognized by their names: the first pattern that matches decides"
        " ([kernels.toml](../wallscope/trace/kernels.toml) has their order)."
    )
    yield "\n| what | library | patterns |\n|---|---|---|"
    patterns: dict[tuple[str, str], list[str]] = {}
    for rule in load_shipped_kernel_rules():
        patterns.setdefault((rule.category, rule.backend or ""), []).append(rule.pattern)
    for (category, backend), listed in sorted(
        patterns.items(), key=lambda entry: (entry[0][1] != "", entry[0])
    ):
        yield f"| `{category}` | {backend} | {' '.join(f'`{_cell(pattern)}`' for pattern in listed)} |"
    yield ""


def _findings() -> Iterator[str]:
    yield "## Findings\n"
    yield "What may limit a claim, and how the next capture avoids it.\n"
    yield "| finding | meaning | evidence | cure |\n|---|---|---|---|"
    for entry in finding_notes():
        yield f"| `{entry.code}` | {_cell(entry.means)} | {_cell(entry.evidence)} | {_cell(entry.cure)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")

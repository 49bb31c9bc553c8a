"""A comparison as Markdown, for pull requests and job summaries."""

from collections.abc import Iterable

from wallscope import units
from wallscope.model.comparison import Comparison
from wallscope.render.comparison_text import headline, operation_name, sureness, testbeds, verdict_word
from wallscope.render.foreign import visible

_MOST_CAUSES = 8
_MOST_OPERATIONS = 10
_NO_MENTION = "@\u200b"  # GitHub notifies whoever an @ names, escaped or not
_SPECIAL = str.maketrans({letter: f"\\{letter}" for letter in "\\`*_{}[]<>#|!"} | {"@": _NO_MENTION})


def comparison_markdown(comparison: Comparison) -> str:
    """The whole comparison; foreign names are escaped, so that they can't make links or mentions."""
    lines = [
        f"### wallscope: {verdict_word(comparison).lower()}",
        "",
        f"`{_code(comparison.base.name)}` → `{_code(comparison.head.name)}`  ",
        f"**{_escaped(headline(comparison))}**",
        "",
        _escaped(sureness(comparison)),
        "",
    ]
    if testbeds(comparison):
        lines[3:3] = [f"{_escaped(testbeds(comparison))}  "]
    for entry in comparison.explanations:
        size = "" if entry.delta_ns is None else f"**{units.signed_duration(entry.delta_ns)}** "
        lines.append(f"- {size}{_escaped(entry.message)}")
    if comparison.explanations:
        lines.append("")
    if comparison.gates:
        rows = [
            ("held" if gate.held else "**failed**", f"`{_code(gate.gate)}`", _escaped(gate.evidence))
            for gate in comparison.gates
        ]
        lines.extend(_table(("gate", "", "evidence"), ((gate, state, said) for state, gate, said in rows)))
    walls = [
        (
            str(row.wall),
            units.milliseconds(row.base_ns),
            units.milliseconds(row.head_ns),
            units.signed_milliseconds(row.delta_ns),
        )
        for row in comparison.deltas.walls
    ]
    step = comparison.step
    change_ns = step.head_typical_ns - step.base_typical_ns
    total = (
        f"**{comparison.window}**",
        units.milliseconds(step.base_typical_ns),
        units.milliseconds(step.head_typical_ns),
        f"**{units.signed_milliseconds(change_ns)}**",
    )
    lines.extend(_table(("wall", "base", "head", "change"), [*walls, total]))
    lines.extend(_details(comparison))
    if comparison.mismatches:
        lines.extend(
            _table(
                ("what differs", "base", "head"),
                ((entry.what, _escaped(entry.base), _escaped(entry.head)) for entry in comparison.mismatches),
            )
        )
    return "\n".join(lines).rstrip() + "\n"


def _details(comparison: Comparison) -> list[str]:
    if not comparison.deltas.causes:
        return []
    causes = [
        (
            _escaped(row.cause),
            units.milliseconds(row.base_ns),
            units.milliseconds(row.head_ns),
            units.signed_milliseconds(row.delta_ns),
        )
        for row in comparison.deltas.causes[:_MOST_CAUSES]
    ]
    operations = [
        (
            _escaped(operation_name(row)),
            _escaped(row.cause),
            units.signed_milliseconds(row.delta_ns),
            units.signed_milliseconds(row.count_delta_ns),
            units.signed_milliseconds(row.rate_delta_ns),
        )
        for row in comparison.deltas.operations[:_MOST_OPERATIONS]
    ]
    left = sum(row.delta_ns for row in comparison.deltas.causes[_MOST_CAUSES:])
    rest = sum(row.delta_ns for row in comparison.deltas.operations[_MOST_OPERATIONS:])
    causes.append(("the rest", "", "", units.signed_milliseconds(left)))
    operations.append(("the rest", "", units.signed_milliseconds(rest), "", ""))
    return [
        "<details><summary>Causes and operations</summary>",
        "",
        *_table(("cause", "base", "head", "change"), causes),
        *_table(("operation", "owns time as", "change", "by count", "by each"), operations),
        "</details>",
        "",
    ]


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    aligned = ["---"] + [
        "---:" if name in {"base", "head", "change", "by count", "by each"} else "---" for name in header[1:]
    ]
    return [_row(header), _row(tuple(aligned)), *map(_row, rows), ""]


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return visible(text, most=500).translate(_SPECIAL)


def _code(text: str) -> str:
    return visible(text, most=120).replace("`", "'").replace("|", "\\|")

"""A comparison as Markdown, for pull requests and job summaries."""

from collections.abc import Iterable

from wallscope import units
from wallscope.model.comparison import Comparison
from wallscope.render.markdown import code, escaped
from wallscope.views.comparison_text import headline, operation_name, sureness, testbeds, verdict_word

_MOST_CAUSES = 8
_MOST_OPERATIONS = 10
_NUMBERS = frozenset({"base", "head", "change", "by count", "by each"})


def comparison_markdown(comparison: Comparison) -> str:
    """The whole comparison; foreign names are escaped, so that they can't make links or mentions."""
    lines = [
        f"### wallscope: {verdict_word(comparison).lower()}",
        "",
        f"{code(comparison.base.name)} → {code(comparison.head.name)}  ",
        f"**{escaped(headline(comparison))}**",
        "",
        escaped(sureness(comparison)),
        "",
    ]
    if testbeds(comparison):
        lines[3:3] = [f"{escaped(testbeds(comparison))}  "]
    for entry in comparison.explanations:
        size = "" if entry.delta_ns is None else f"**{units.signed_duration(entry.delta_ns)}** "
        lines.append(f"- {size}{escaped(entry.message)}")
    if comparison.explanations:
        lines.append("")
    if comparison.gates:
        rows = [
            ("held" if gate.held else "**failed**", code(gate.gate), escaped(gate.evidence))
            for gate in comparison.gates
        ]
        lines.extend(_listed(("gate", "", "evidence"), ((gate, state, said) for state, gate, said in rows)))
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
    lines.extend(_listed(("wall", "base", "head", "change"), [*walls, total]))
    lines.extend(_details(comparison))
    if comparison.mismatches:
        lines.extend(
            _listed(
                ("what differs", "base", "head"),
                ((entry.what, escaped(entry.base), escaped(entry.head)) for entry in comparison.mismatches),
            )
        )
    return "\n".join(lines).rstrip() + "\n"


def _details(comparison: Comparison) -> list[str]:
    if not comparison.deltas.causes:
        return []
    causes = [
        (
            escaped(row.cause),
            units.milliseconds(row.base_ns),
            units.milliseconds(row.head_ns),
            units.signed_milliseconds(row.delta_ns),
        )
        for row in comparison.deltas.causes[:_MOST_CAUSES]
    ]
    operations = [
        (
            escaped(operation_name(row)),
            escaped(row.cause),
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
        *_listed(("cause", "base", "head", "change"), causes),
        *_listed(("operation", "owns time as", "change", "by count", "by each"), operations),
        "</details>",
        "",
    ]


def _listed(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> list[str]:
    def row(cells: Iterable[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return [row(header), row("---:" if name in _NUMBERS else "---" for name in header), *map(row, rows), ""]

"""The answer as Markdown, for pull requests and job summaries: under 60 kB for any export."""

from collections.abc import Iterator

from wallscope import units
from wallscope.model.advice import Fix, select_first_fixes
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding
from wallscope.model.section import Cell, append_row
from wallscope.render.markdown import code, escaped, render_table
from wallscope.views.phrases import (
    describe_capture,
    describe_steps,
    describe_throughput,
    explain_choice,
    name_rank,
)
from wallscope.views.sections.findings import sort_findings
from wallscope.views.sections.fixes import count_preconditions, describe_answer, describe_replay
from wallscope.views.sections.walls import tabulate_losses, tabulate_walls

MOST_BYTES = 60_000
_MOST_FIXES = 3
_MOST_SETTINGS = 8
_MOST_UNMET = 6
_MOST_UNKNOWN = 3
_MOST_FINDINGS = 12
_LONGEST_VERDICT = 1_500
_LEFT_OUT = "_The rest is left out: `wallscope analyze` shows it._"


def markdown(analysis: Analysis) -> str:
    """The first screen of the answer and what it rests on; foreign names are escaped."""
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    blocks = (
        _verdict(analysis, rank),
        _fixes(analysis),
        _walls(analysis, rank),
        _causes(analysis, rank),
        _findings(analysis.capture.findings),
        _footer(analysis),
    )
    return _fitted(["\n".join(block).strip("\n") for block in blocks if block])


def _fitted(blocks: list[str]) -> str:
    """Whole blocks as long as they fit; what does not is said."""
    kept: list[str] = []
    left_bytes = MOST_BYTES - len(_LEFT_OUT.encode()) - 3
    for block in blocks:
        left_bytes -= len(block.encode()) + 2
        if left_bytes < 0:
            return "\n\n".join([*kept, _LEFT_OUT]) + "\n"
        kept.append(block)
    return "\n\n".join(kept) + "\n"


def _verdict(analysis: Analysis, rank: Rank) -> list[str]:
    """What wall it is, and by what steps; without steps that is said."""
    diagnosis, anchor = analysis.diagnosis, analysis.anchor
    lead, _, rest = diagnosis.verdict.partition(". ")
    facts = [*describe_steps(anchor, rank)]
    if len(analysis.ranks) > 1:
        facts.append(f"of {len(analysis.ranks)} ranks this is {name_rank(rank)}, {explain_choice(analysis)}")
    facts += describe_throughput(diagnosis.throughput)
    if diagnosis.memory_pressure.level != "unknown":
        evidence = "; ".join(diagnosis.memory_pressure.evidence)
        facts.append(f"memory pressure {diagnosis.memory_pressure.level}{': ' if evidence else ''}{evidence}")
    return [
        f"### wallscope: {diagnosis.dominant_wall}",
        "",
        f"**{escaped(lead.rstrip('.') + '.', _LONGEST_VERDICT)}** {escaped(rest, _LONGEST_VERDICT)}".rstrip(),
        "",
        escaped(describe_capture(analysis, rank.input)),
        "",
        *([] if analysis.job is None else [escaped(analysis.job.verdict, _LONGEST_VERDICT), ""]),
        *(f"- {escaped(line)}" for line in facts),
    ]


def _fixes(analysis: Analysis) -> list[str]:
    """The first fixes with settings, preconditions and ceilings."""
    found = analysis.fixes or ()
    shown = select_first_fixes(found)[:_MOST_FIXES]
    if not shown:
        return []
    lines = [f"#### First fixes; ceilings of the {analysis.anchor.typical}, which do not add up", ""]
    for number, fix in enumerate(shown, start=1):
        lines += [f"{number}. {line}" if place == 0 else line for place, line in enumerate(_fix(fix))]
    if analysis.replay is not None:
        lines += ["", escaped(describe_replay(analysis.replay), 400)]
    if left := len(found) - len(shown):
        lines += ["", f"{left} more in the JSON answer."]
    return lines


def _fix(fix: Fix) -> Iterator[str]:
    ceiling = "no ceiling known" if fix.speedup_ceiling is None else f"up to {fix.speedup_ceiling:.2f}x"
    if fix.recoverable_ns is not None:
        ceiling += f", {units.milliseconds(fix.recoverable_ns)}"
    yield f"**{escaped(fix.title)}** ({fix.wall}; {ceiling})"
    settings = [f"{entry.system}: {code(entry.write(), 200)}" for entry in fix.settings]
    for line in settings[:_MOST_SETTINGS]:
        yield f"   - {line}"
    if len(settings) > _MOST_SETTINGS:
        yield f"   - {units.plural(len(settings) - _MOST_SETTINGS, 'more setting')}"
    for entry in [entry for entry in fix.preconditions if entry.status == "unmet"][:_MOST_UNMET]:
        cure = f" → {escaped(entry.unblock)}" if entry.unblock else ""
        yield f"   - **blocked:** {escaped(entry.text)}{cure}"
    if fix.replay is not None:
        yield f"   - {escaped(describe_answer(fix.replay), 300)}"
    if fix.preconditions:
        yield f"   - preconditions: {count_preconditions(fix)}{_to_check(fix)}"


def _to_check(fix: Fix) -> str:
    """The preconditions that nothing told, as far as there is room."""
    unknown = [entry.text for entry in fix.preconditions if entry.status == "unknown"]
    more = f"; {len(unknown) - _MOST_UNKNOWN} more" if len(unknown) > _MOST_UNKNOWN else ""
    return f"; to check: {escaped('; '.join(unknown[:_MOST_UNKNOWN]))}{more}" if unknown else ""


def _walls(analysis: Analysis, rank: Rank) -> list[str]:
    step_ns = rank.typical.step_ns
    whole, total = Cell(analysis.anchor.typical, tone="strong"), Cell(step_ns, tone="strong")
    table = append_row(tabulate_walls(analysis, rank), {"wall": whole, "time": total})
    return ["#### Who pays, each nanosecond once", "", *render_table(table)]


def _causes(analysis: Analysis, rank: Rank) -> list[str]:
    """Write losses by what they own, the most first; the rest is added up."""
    table = tabulate_losses(analysis, rank)
    return [] if table is None else [f"#### {table.title}", "", *render_table(table)]


def _findings(findings: tuple[Finding, ...]) -> list[str]:
    """What limits the claims, the gravest first."""
    if not findings:
        return ["Nothing in the capture limits these claims."]
    graded = sort_findings(findings)
    lines = [f"<details><summary>{units.plural(len(findings), 'limit')} of these claims</summary>", ""]
    for entry in graded[:_MOST_FINDINGS]:
        cure = f" → {escaped(entry.cure)}" if entry.cure else ""
        lines.append(f"- {entry.severity}, {code(entry.code)}: {escaped(entry.message)}{cure}")
    if len(graded) > _MOST_FINDINGS:
        lines.append(f"- {len(graded) - _MOST_FINDINGS} more in the JSON answer")
    return [*lines, "", "</details>"]


def _footer(analysis: Analysis) -> list[str]:
    return [f"<sub>wallscope {analysis.wallscope_version}, times of the session; shares of the step</sub>"]

"""The answer as Markdown, for pull requests and job summaries: under 60 kB for any export."""

from collections.abc import Iterator

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.capture import Finding, Severity
from wallscope.model.catalogue import meaning
from wallscope.model.diagnosis import WallShare
from wallscope.model.fixes import Fix, first_screen
from wallscope.model.kinds import Wall
from wallscope.render.markdown_text import code, escaped, table
from wallscope.views.details import rank_name
from wallscope.views.fixes import checked, replay_line, replayed
from wallscope.views.terminal import chosen, headline, steps_found, throughput_lines

MOST_BYTES = 60_000
_MOST_FIXES = 3
_MOST_SETTINGS = 8
_MOST_UNMET = 6
_MOST_UNKNOWN = 3
_MOST_CAUSES = 10
_MOST_FINDINGS = 12
_LONGEST_VERDICT = 1_500
_NUMBERS = frozenset({"time", "share", "p10-p90 of steps", "ceiling", "ms"})
_LEFT_OUT = "_The rest is left out: `wallscope analyze` shows it._"
_GRAVEST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.INFO)


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
    told = [*steps_found(anchor, rank).plain.split("\n")]
    if len(analysis.ranks) > 1:
        told.append(f"of {len(analysis.ranks)} ranks this is {rank_name(rank)}, {chosen(analysis)}")
    if diagnosis.throughput is not None:
        told += throughput_lines(diagnosis.throughput)
    if diagnosis.memory_pressure.level != "unknown":
        evidence = "; ".join(diagnosis.memory_pressure.evidence)
        told.append(f"memory pressure {diagnosis.memory_pressure.level}{': ' if evidence else ''}{evidence}")
    return [
        f"### wallscope: {diagnosis.dominant_wall}",
        "",
        f"**{escaped(lead.rstrip('.') + '.', _LONGEST_VERDICT)}** {escaped(rest, _LONGEST_VERDICT)}".rstrip(),
        "",
        escaped(headline(analysis.inputs[rank.input], analysis).plain),
        "",
        *([] if analysis.job is None else [escaped(analysis.job.verdict, _LONGEST_VERDICT), ""]),
        *(f"- {escaped(line)}" for line in told),
    ]


def _fixes(analysis: Analysis) -> list[str]:
    """The first fixes with settings, preconditions and ceilings."""
    found = analysis.fixes or ()
    shown = first_screen(found)[:_MOST_FIXES]
    if not shown:
        return []
    lines = [f"#### First fixes; ceilings of the {analysis.anchor.typical}, which do not add up", ""]
    for number, fix in enumerate(shown, start=1):
        lines += [f"{number}. {line}" if place == 0 else line for place, line in enumerate(_fix(fix))]
    if analysis.replay is not None:
        lines += ["", escaped(replay_line(analysis.replay), 400)]
    if left := len(found) - len(shown):
        lines += ["", f"{left} more in the JSON answer."]
    return lines


def _fix(fix: Fix) -> Iterator[str]:
    ceiling = "no ceiling known" if fix.speedup_ceiling is None else f"up to {fix.speedup_ceiling:.2f}x"
    if fix.recoverable_ns is not None:
        ceiling += f", {units.milliseconds(fix.recoverable_ns)}"
    yield f"**{escaped(fix.title)}** ({fix.wall}; {ceiling})"
    settings = [f"{entry.system}: {code(entry.written(), 200)}" for entry in fix.settings]
    for line in settings[:_MOST_SETTINGS]:
        yield f"   - {line}"
    if len(settings) > _MOST_SETTINGS:
        yield f"   - {units.plural(len(settings) - _MOST_SETTINGS, 'more setting')}"
    for entry in [entry for entry in fix.preconditions if entry.status == "unmet"][:_MOST_UNMET]:
        cure = f" → {escaped(entry.unblock)}" if entry.unblock else ""
        yield f"   - **blocked:** {escaped(entry.text)}{cure}"
    if fix.replay is not None:
        yield f"   - {escaped(replayed(fix.replay), 300)}"
    if fix.preconditions:
        yield f"   - preconditions: {checked(fix)}{_to_check(fix)}"


def _to_check(fix: Fix) -> str:
    """The preconditions that nothing told, as far as there is room."""
    unknown = [entry.text for entry in fix.preconditions if entry.status == "unknown"]
    more = f"; {len(unknown) - _MOST_UNKNOWN} more" if len(unknown) > _MOST_UNKNOWN else ""
    return f"; to check: {escaped('; '.join(unknown[:_MOST_UNKNOWN]))}{more}" if unknown else ""


def _walls(analysis: Analysis, rank: Rank) -> list[str]:
    shares = analysis.diagnosis.walls
    rows = []
    for wall, time_ns in zip(Wall, rank.typical.walls.parts(), strict=True):
        share = time_ns / rank.typical.step_ns if rank.typical.step_ns else None
        told = None if shares is None else getattr(shares, wall)
        name = f"**{wall}**" if wall == analysis.diagnosis.dominant_wall else str(wall)
        rows.append((name, units.milliseconds(time_ns), units.percent(share), _spread(told)))
    total = (f"**{analysis.anchor.typical}**", f"**{units.milliseconds(rank.typical.step_ns)}**", "", "")
    header = ("wall", "time", "share", "p10-p90 of steps")
    return ["#### Who pays, each nanosecond once", "", *table(header, [*rows, total], _NUMBERS)]


def _spread(told: WallShare | None) -> str:
    if told is None or told.p10 is None or told.p90 is None:
        return ""
    return f"{units.percent(told.p10)} to {units.percent(told.p90)}"


def _causes(analysis: Analysis, rank: Rank) -> list[str]:
    """Losses by what they own, the most first; the rest is added up."""
    lost = [entry for entry in rank.causes if entry.wall != Wall.COMPUTE and entry.typical_ns > 0]
    lost.sort(key=lambda entry: (-entry.typical_ns, entry.cause))
    if not lost:
        return []
    won = {entry.cause: entry.speedup_ceiling for entry in analysis.opportunities}
    rows = [
        (
            code(entry.cause),
            units.milliseconds(entry.typical_ns),
            units.percent(entry.share),
            f"{won[entry.cause]:.2f}x" if entry.cause in won else "",
            escaped(meaning(entry.cause), 300),
        )
        for entry in lost[:_MOST_CAUSES]
    ]
    if rest := lost[_MOST_CAUSES:]:
        time_ns = sum(entry.typical_ns for entry in rest)
        share = sum(entry.share for entry in rest)
        rows.append((f"{len(rest)} smaller", units.milliseconds(time_ns), units.percent(share), "", ""))
    header = ("cause", "time", "share", "ceiling", "what it is")
    return [f"#### Losses of the {analysis.anchor.typical}", "", *table(header, rows, _NUMBERS)]


def _findings(findings: tuple[Finding, ...]) -> list[str]:
    """What limits the claims, the gravest first."""
    if not findings:
        return ["Nothing in the capture limits these claims."]
    graded = sorted(findings, key=lambda entry: _GRAVEST_FIRST.index(entry.severity))
    lines = [f"<details><summary>{units.plural(len(findings), 'limit')} of these claims</summary>", ""]
    for entry in graded[:_MOST_FINDINGS]:
        cure = f" → {escaped(entry.cure)}" if entry.cure else ""
        lines.append(f"- {entry.severity}, {code(entry.code)}: {escaped(entry.message)}{cure}")
    if len(graded) > _MOST_FINDINGS:
        lines.append(f"- {len(graded) - _MOST_FINDINGS} more in the JSON answer")
    return [*lines, "", "</details>"]


def _footer(analysis: Analysis) -> list[str]:
    return [f"<sub>wallscope {analysis.wallscope_version}, times of the session; shares of the step</sub>"]

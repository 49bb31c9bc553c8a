"""The answer as one HTML file: no request leaves it, the same input makes the same bytes."""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from wallscope import units
from wallscope.model.analysis import Analysis, Rank
from wallscope.model.catalogue import meaning
from wallscope.model.fixes import Fix
from wallscope.model.kinds import Wall
from wallscope.model.report import Report
from wallscope.render.blocks import Section
from wallscope.render.colours import WALL_COLOURS
from wallscope.render.details import rank_name
from wallscope.render.fixes import checked, first_screen
from wallscope.render.foreign import visible
from wallscope.render.sections.causes import causes
from wallscope.render.sections.phases import phases, ranks
from wallscope.render.sections.proof import GRAVITY, computed, limits
from wallscope.render.sections.steps import steps
from wallscope.render.sections.timeline import timeline
from wallscope.render.sections.walls import walls
from wallscope.render.terminal import headline, steps_found, throughput_lines
from wallscope.render.timeline_pack import Pack, pack
from wallscope.shipped import report as shipped

_LONGEST_TEXT = 2_000
_MOST_OPPORTUNITIES = 4
_MOST_FIXES = 3
_MOST_LIMITS = 3


def page(report: Report) -> str:
    """The whole page."""
    packed = pack(report.timelines)
    analysis = report.analysis
    rank = analysis.ranks[analysis.diagnosis.rank_index]
    scripts = [shipped(name) for name in ("timeline_data.js", "timeline.js", "page.js")]
    plotly = _plotly()
    template = _environment().get_template("page.html.j2")
    return template.render(
        title=f"{analysis.inputs[0].name}: {_first_sentence(analysis.diagnosis.verdict)}",
        policy=_policy([*scripts, plotly]),
        style=Markup(shipped("page.css")),  # noqa: S704  # our own file
        scripts=[Markup(script) for script in scripts],  # noqa: S704  # our own files
        plotly=_deflated(plotly),
        timelines=Markup(packed.base64),  # noqa: S704  # base64
        analysis=analysis,
        rank=rank,
        first=_first_screen(analysis, rank),
        sections=tuple(_sections(report, rank, packed)),
    )


def _sections(report: Report, rank: Rank, packed: Pack) -> Iterator[Section]:
    analysis = report.analysis
    made = (
        steps(analysis, rank),
        ranks(analysis),
        causes(analysis, rank),
        timeline(report, packed),
        *walls(analysis, rank),
        phases(analysis, rank),
        limits(analysis.capture.findings),
        computed(analysis, rank),
    )
    yield from (section for section in made if section is not None)


def _first_screen(analysis: Analysis, rank: Rank) -> dict[str, Any]:
    """What is wrong and what to do."""
    export, diagnosis = analysis.inputs[0], analysis.diagnosis
    lead, _, rest = diagnosis.verdict.partition(". ")
    told = [steps_found(analysis.anchor, rank).plain.replace("\n", ", ")]
    if len(analysis.ranks) > 1:
        told.append(f"{rank_name(rank)}, which computed the smallest share of {len(analysis.ranks)} ranks")
    if diagnosis.throughput is not None:
        told += throughput_lines(diagnosis.throughput)
    graded = sorted(analysis.capture.findings, key=lambda entry: GRAVITY[entry.severity])
    return {
        "headline": headline(export, analysis).plain,
        "captured": units.utc(export.session_start_utc_ns),
        "lead": f"{lead.rstrip('.')}.",
        "rest": rest,
        "told": told,
        "whole": analysis.anchor.typical,
        "step": units.milliseconds(rank.typical.step_ns),
        "walls": tuple(_wall(analysis, rank, wall) for wall in Wall),
        "pressure": diagnosis.memory_pressure,
        "opportunities": analysis.opportunities[:_MOST_OPPORTUNITIES],
        "more_opportunities": max(len(analysis.opportunities) - _MOST_OPPORTUNITIES, 0),
        "fixes": tuple(map(_fix, first_screen(analysis.fixes or ())[:_MOST_FIXES])),
        "more_fixes": max(len(analysis.fixes or ()) - _MOST_FIXES, 0),
        "findings": tuple(graded[:_MOST_LIMITS]),
        "more_findings": max(len(graded) - _MOST_LIMITS, 0),
    }


def _fix(fix: Fix) -> dict[str, Any]:
    """A fix with its settings a system, and how its preconditions stand."""
    systems = dict.fromkeys(setting.system for setting in fix.settings)
    return {
        "fix": fix,
        "settings": [
            (system, [one.written() for one in fix.settings if one.system == system]) for system in systems
        ],
        "unmet": [needed for needed in fix.preconditions if needed.status == "unmet"],
        "checked": checked(fix),
    }


def _wall(analysis: Analysis, rank: Rank, wall: Wall) -> dict[str, Any]:
    time_ns = getattr(rank.typical.walls, wall)
    share = time_ns / rank.typical.step_ns if rank.typical.step_ns else 0.0
    told = None if analysis.diagnosis.walls is None else getattr(analysis.diagnosis.walls, wall)
    spread = ""
    if told is not None and told.p10 is not None and told.p90 is not None:
        spread = f"{units.percent(told.p10)} to {units.percent(told.p90)}"
    return {
        "name": str(wall),
        "share": units.percent(share),
        "width": f"{100 * share:.4f}",
        "time": units.milliseconds(time_ns),
        "median": "" if told is None or not spread else units.percent(told.share),
        "spread": spread,
        "is_dominant": wall == analysis.diagnosis.dominant_wall,
        "is_wide": share >= 0.08,
    }


def _first_sentence(verdict: str) -> str:
    return verdict.partition(". ")[0]


def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(shipped),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_harmless,
    )
    environment.globals["units"] = units
    environment.globals["colours"] = {str(wall): colour for wall, colour in WALL_COLOURS.items()}
    environment.filters["spec"] = _spec
    environment.filters["meaning"] = meaning
    environment.filters["verbatim"] = lambda text: Markup(escape(text))  # noqa: S704  # escaped here
    return environment


def _harmless(value: Any) -> Any:
    """Whatever is written: text with letters that can not be seen spelled out; escaping follows."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value, _LONGEST_TEXT)


def _spec(figure: Any) -> Markup:
    """A figure as JSON that can stand in a script element."""
    text = json.dumps({"traces": figure.traces, "layout": figure.layout}, ensure_ascii=True, allow_nan=False)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return Markup(safe)  # noqa: S704  # no letter of it means anything in HTML


def _plotly() -> str:
    """The library as plotly ships it; the package itself is heavy to import and not needed."""
    return files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8")


def _deflated(text: str) -> Markup:
    return Markup(b64encode(zlib.compress(text.encode(), 9)).decode("ascii"))  # noqa: S704  # base64


def _policy(scripts: list[str]) -> str:
    """Nothing may be fetched, and no script may run but these."""
    digests = " ".join(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in scripts)
    return (
        f"default-src 'none'; script-src {digests}; style-src 'unsafe-inline'; img-src data: blob:;"
        " base-uri 'none'; form-action 'none'"
    )

"""One HTML file that asks for nothing: no request leaves it, the same input makes the same bytes."""

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from wallscope import units
from wallscope.model.cause_catalogue import describe_cause
from wallscope.model.section import Cell, Column, Grid, Section, Value
from wallscope.render.foreign import visible
from wallscope.render.texts import as_cell, select_columns, select_rows, write_value
from wallscope.resources import read_report as shipped

_LONGEST_TEXT = 2_000
_MANY_ROWS = 24
"""A table of more scrolls in its place."""
_TEXT = Column("text", "")
_WITH_TIMELINE = ("timeline_data.js", "timeline.js", "page.js")
_PLAIN = ("page.js",)


def offline(
    template: str, title: str, sections: Iterable[Section | None], timelines: str = "", **told: Any
) -> str:
    """A template of `reports/` filled in, with style, scripts and plotly inside.

    Args:
        template: its file name; it extends `frame.html.j2`.
        title: what stands in the browser's tab.
        sections: the questions, in order; those that are not asked here are `None`.
        timelines: a pack of timelines in base64, empty without any.
        told: what else the template reads.
    """
    scripts = [shipped(name) for name in (_WITH_TIMELINE if timelines else _PLAIN)]
    plotly = _plotly()
    return (
        _environment()
        .get_template(template)
        .render(
            title=title,
            policy=_policy([*scripts, plotly]),
            style=Markup(shipped("page.css")),  # noqa: S704  # our own file
            scripts=[Markup(script) for script in scripts],  # noqa: S704  # our own files
            plotly=_deflated(plotly),
            timelines=Markup(timelines),  # noqa: S704  # base64
            sections=tuple(section for section in sections if section is not None),
            **told,
        )
    )


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
    environment.filters["spec"] = _spec
    environment.filters["written"] = lambda cell: _write_cell(cell, _TEXT)
    environment.filters["laid_out"] = lay_out
    environment.filters["meaning"] = describe_cause
    environment.filters["verbatim"] = lambda text: Markup(escape(text))  # noqa: S704  # escaped here
    return environment


def _harmless(value: Any) -> Any:
    """Whatever is written: text with letters that can not be seen spelled out; escaping follows."""
    return value if isinstance(value, Markup) or not isinstance(value, str) else visible(value, _LONGEST_TEXT)


def lay_out(grid: Any) -> Any:
    """A table as the template writes it: columns and cells of a page alone, in text."""
    if not isinstance(grid, Grid):
        return grid
    columns = select_columns(grid, "page")
    rows, rest = select_rows(grid, "page")
    return {
        "caption": grid.title,
        "columns": [
            {
                "heading": column.title,
                "meaning": column.meaning,
                "is_text": column.is_text,
                "is_wide": column.widths[0] > 0,
            }
            for _, column in columns
        ],
        "rows": [[_write_cell(row[place], column) for place, column in columns] for row in rows],
        "note": " ".join((*grid.notes, *([rest] if rest else []))),
        "is_wordy": grid.is_wordy,
        "is_long": len(rows) > _MANY_ROWS,
    }


def _write_cell(value: Value | Cell, column: Column) -> dict[str, Any]:
    cell = as_cell(value)
    return {
        "text": Markup(escape(write_value(cell.value, column))),  # noqa: S704  # escaped here
        "wall": cell.wall,
        "hint": cell.hint,
        "step": cell.step,
        "at_ns": cell.at_ns,
        "anchor": cell.anchor,
        "is_strong": cell.tone == "strong",
    }


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

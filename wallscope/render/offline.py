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
from wallscope.model.catalogue import meaning
from wallscope.render.blocks import Section
from wallscope.render.foreign import visible
from wallscope.shipped import report as shipped

_LONGEST_TEXT = 2_000
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

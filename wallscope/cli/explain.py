"""`wallscope explain`: what a word of the answer means."""

from typing import Annotated

import typer

from wallscope.cli.output import print_out


def explain(
    word: Annotated[
        str,
        typer.Argument(
            metavar="WORD", help="A cause, fix, finding, wall, or topic, as the answer spells it."
        ),
    ],
) -> None:
    """Say what a cause, fix or finding means, how it is computed, the SQL that shows it, and sources."""
    from wallscope.advice.explain import explain_word  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_explanation  # noqa: PLC0415

    print_out(render_sections(build_explanation(explain_word(word))))

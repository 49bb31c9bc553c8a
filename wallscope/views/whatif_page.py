"""Answers to what-if questions as one HTML file: what wins most first, then what bounds the step."""

from typing import Any

from wallscope import units
from wallscope.model.kinds import Wall
from wallscope.model.whatif import WhatIf
from wallscope.render.foreign import visible
from wallscope.render.offline import offline
from wallscope.views.blocks import Section
from wallscope.views.path_figures import changed
from wallscope.views.sections.whatif import bounds, changes, sureness, sweep
from wallscope.views.whatif import checked
from wallscope.views.words import WALL_WORDS

_MOST_ANSWERS = 6


def whatif_page(found: WhatIf) -> str:
    """The whole page."""
    name = visible(found.inputs[0].name)
    return offline(
        "whatif.html.j2",
        f"{name}: what if",
        _sections(found),
        found=found,
        first=_first_screen(found, name),
    )


def _sections(found: WhatIf) -> tuple[Section | None, ...]:
    return (changes(found), sweep(found), bounds(found), sureness(found))


def _first_screen(found: WhatIf, name: str) -> dict[str, Any]:
    """What the step takes now and with what wins most."""
    export = found.inputs[0]
    rank = "" if found.rank is None else f"rank {found.rank}"
    best = sorted(found.answers, key=lambda answer: -answer.won_ns)
    return {
        "origin": " · ".join(
            part for part in (name, rank, f"captured {units.utc(export.session_start_utc_ns)}") if part
        ),
        "headline": f"The typical {found.unit} takes {units.duration(found.step_ns)}, bound by {found.wall}",
        "checked": checked(found),
        "answers": [
            {
                "asked": changed(answer),
                "step": units.duration(answer.step_ns),
                "won": units.signed_duration(-answer.won_ns),
                "speedup": f"{answer.speedup:.3f}x",
                "wall": str(answer.next_wall),
            }
            for answer in best[:_MOST_ANSWERS]
        ],
        "more": max(len(best) - _MOST_ANSWERS, 0),
        "walls": [
            {
                "name": str(wall),
                "meaning": WALL_WORDS[wall],
                "time": units.milliseconds(part),
                "share": units.percent(part / max(found.step_ns, 1)),
                "is_wall": wall == found.wall,
            }
            for wall, part in zip(Wall, found.walls.parts(), strict=True)
        ],
    }

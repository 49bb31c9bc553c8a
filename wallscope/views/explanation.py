"""What a word means, on a terminal."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from wallscope.model.advice import Explanation, ExplanationSection
from wallscope.render.foreign import visible
from wallscope.render.grids import titled


def explanation(told: Explanation) -> RenderableType:
    """Headed by the word and its meaning; a section each for the rest."""
    head = Text.assemble((visible(told.word), "bold"), f" ({told.kind}): {told.meaning}")
    return Group(head, *(part for section in told.sections for part in (Text(), _section(section))))


def _section(section: ExplanationSection) -> RenderableType:
    if section.verbatim:
        return titled(section.heading, Text("\n".join(section.lines)))
    return titled(section.heading, Group(*(Padding(Text(line), 0) for line in section.lines)))

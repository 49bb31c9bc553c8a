"""The glossary is made from what the program says, and says all of it."""

from pathlib import Path

from wallscope.advice.definitions import finding_notes
from wallscope.model.enums import DeviceState, Wall
from wallscope.views.sections.findings import write_glossary
from wallscope.views.sections.words import STATE_WORDS, WALL_WORDS

PATH = Path(__file__).resolve().parent.parent / "docs" / "glossary.md"


def test_the_glossary_is_made_from_the_texts_of_the_program(request):
    if request.config.getoption("--golden"):
        PATH.write_text(write_glossary(), encoding="utf-8")

    assert PATH.read_text(encoding="utf-8") == write_glossary()


def test_every_wall_state_and_finding_is_in_it():
    """Causes are on a page of their own, which tests/test_docs.py compares with the catalog."""
    glossary = write_glossary()

    assert [
        word
        for word in (*(entry.code for entry in finding_notes()), *Wall)
        if f"\n| `{word}` | " not in glossary
    ] == []
    assert (set(WALL_WORDS), set(STATE_WORDS)) == (set(Wall), set(DeviceState))

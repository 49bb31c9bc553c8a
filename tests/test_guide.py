"""The guide quotes what the commands print, word by word."""

import re
from pathlib import Path

import pytest
from rich.console import Console

from fixtures.example import write_example
from wallscope.model.options import Options
from wallscope.pipeline import analyze
from wallscope.render.terminal import render_sections
from wallscope.views.analysis import render_analysis
from wallscope.views.capture_help import build_capture_help

GUIDE = Path(__file__).resolve().parent.parent / "docs" / "guide.md"


def printed(answer):
    """What a terminal of 80 columns shows."""
    console = Console(width=80, file=None, highlight=False, color_system=None)
    with console.capture() as page:
        console.print(answer)
    return "\n".join(line.rstrip() for line in page.get().split("\n")).strip("\n")


@pytest.fixture(scope="module")
def verdict(tmp_path_factory):
    """The first screen of the example: all that stands before the budget."""
    path = tmp_path_factory.mktemp("guide") / "run.sqlite"
    write_example(path)
    shown = printed(render_analysis(analyze(path, Options(), lambda _: None)))
    return shown.partition("\n\nWhat the device did")[0]


def test_the_guide_quotes_what_the_commands_print(verdict, request):
    text = GUIDE.read_text(encoding="utf-8")
    quoted = text
    for name, block in (("verdict", verdict), ("capture", printed(render_sections(build_capture_help())))):
        quoted = re.sub(
            rf"<!-- {name} -->\n.*?<!-- end of {name} -->",
            lambda _, name=name, block=block: f"<!-- {name} -->\n```\n{block}\n```\n<!-- end of {name} -->",
            quoted,
            flags=re.DOTALL,
        )
    if request.config.getoption("--golden"):
        GUIDE.write_text(quoted, encoding="utf-8")

    assert GUIDE.read_text(encoding="utf-8") == quoted


@pytest.mark.parametrize(
    "page",
    [*sorted(GUIDE.parent.glob("*.md")), GUIDE.parent.parent / "README.md"],
    ids=lambda page: page.name,
)
def test_links_and_pictures_of_the_docs_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)|(?:src|srcset)=\"([^\"]+)\"", text)

    assert [
        target for pair in named for target in pair if target and not (page.parent / target).exists()
    ] == []


def test_pictures_of_the_docs_are_small():
    sizes = {path.name: path.stat().st_size for path in (GUIDE.parent / "images").iterdir()}

    assert {name: size for name, size in sizes.items() if size >= 300_000} == {}
    assert len(sizes) == 6

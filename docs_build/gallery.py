"""The gallery: reports of generated captures, written by the commands themselves when the site is built.

docs_build/scenes.py makes the captures, and docs_build/pictures.py the reports and their thumbnails.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs_build.scenes import PAGES


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A report of the gallery.

    Attributes:
        page: its name in `PAGES`.
        title: what was captured.
        shows: what a reader can learn from the report.
    """

    page: str
    title: str
    shows: str


EXHIBITS = (
    Exhibit(
        "example",
        "A mixture-of-experts model with exposed all-to-all",
        "One of 16 ranks, which `wallscope demo` writes. Expert all-to-all runs alone on the GPU, and in"
        " every layer the host waits for token counts.",
    ),
    Exhibit(
        "host-bound",
        "A data loader that keeps the GPU waiting",
        "Host-bound: no kernel runs while the next batch is loaded. More loader workers would hide nearly"
        " all of it.",
    ),
    Exhibit(
        "communication-bound",
        "Two ranks, one of them late",
        "Communication-bound: both ranks are captured, so waiting for the late one is separated from the"
        " transfer.",
    ),
    Exhibit(
        "memory-bound",
        "Activations that are offloaded and reloaded",
        "Memory-bound: kernels of the backward pass wait for copies from the host.",
    ),
    Exhibit(
        "job",
        "A job of four ranks with a slower GPU",
        "The first sentence names the rank that holds the job up, and the map shows what the others lose.",
    ),
    Exhibit(
        "comparison",
        "Two runs, of which the second is slower",
        "A comparison with a failed gate: how much slower, how certain that is, and which cause grew.",
    ),
)


def list_gallery_files(folder: Path) -> list[Path]:
    """Return the reports of the gallery that are built, in its order."""
    paths = [folder / "files" / f"{exhibit.page}.html" for exhibit in EXHIBITS]
    return [path for path in paths if path.is_file()]


def write_gallery_page() -> str:
    """Return the page of the gallery: a card for each report, with its thumbnail."""
    cards = (line for exhibit in EXHIBITS for line in _write_card(exhibit))
    return "\n".join([_HEAD, '<div class="cards" markdown>', "", *cards, "</div>", ""])


_HEAD = """---
hide: [navigation, toc]
---

# Gallery

Reports as `--html` writes them: one file each, without a server or a network. All captures are generated.
"""


def _write_card(exhibit: Exhibit) -> Iterator[str]:
    yield '<div class="card" markdown>\n'
    yield f"## {exhibit.title}\n"
    yield f"<!-- picture: thumbnail-{exhibit.page} | {exhibit.title}: the first screen of the report -->\n"
    yield f"{exhibit.shows}\n"
    yield f"`{PAGES[exhibit.page]}`\n"
    yield f"[Open the report](gallery/{exhibit.page}.html){{ .md-button }}\n"
    yield "</div>\n"

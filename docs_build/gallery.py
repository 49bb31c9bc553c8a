"""The gallery: reports of the shipped example and of public captures, written by the program itself.

python -m docs_build.gallery [--captures DIR]

Captures are read from their folder and never copied. A report whose capture is absent is left out, with the
reason.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from wallscope.api import ComparisonResult, Result, analyze, diff
from wallscope.demo.example import write_example
from wallscope.units import duration

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "gallery"
CAPTURES = ROOT.parent / "shared" / "traces"
"""Where the tests look for public captures too."""


@dataclass(frozen=True, slots=True)
class Exhibit:
    """A report of the gallery: `captures` are the files it needs, one for `analyze` and two for `diff`.

    Attributes:
        name: of the page, without suffix.
        title: what was captured.
        source: who published the capture.
        captures: paths below the folder of captures; none for the example.
        shows: what a reader can learn from the report.
    """

    name: str
    title: str
    source: str
    captures: tuple[str, ...]
    shows: str


EXHIBITS = (
    Exhibit(
        "example",
        "A mixture-of-experts model with exposed all-to-all",
        "The shipped example, a generated export: `wallscope demo` writes it",
        (),
        "Communication-bound: the expert all-to-all runs alone on the GPU. In every layer the host waits for"
        " token counts.",
    ),
    Exhibit(
        "deepseek",
        "DeepSeek-V3 training, DualPipe (PyTorch profiler trace)",
        "DeepSeek, [profile-data](https://github.com/deepseek-ai/profile-data)",
        ("kineto/ds_train.json.gz",),
        "Compute-bound, with nearly all communication hidden. No step is marked: the capture is one window.",
    ),
    Exhibit(
        "nersc-loader",
        "Two versus eight data-loader workers (comparison)",
        "NERSC, [SC21 deep learning tutorial](https://github.com/NERSC/sc21-dl-tutorial)",
        ("nersc_sc21_baseline.sqlite", "nersc_sc21_8workers.sqlite"),
        "What a comparison says after data loading stops being the largest loss.",
    ),
    Exhibit(
        "two-ranks",
        "Two ranks of an FSDP training run in one export",
        "nsys-ai, a cut of an H100 training run",
        ("nsysai_mfu_before.sqlite",),
        "Several ranks: collectives are matched, and the report names which rank arrives late and why.",
    ),
    Exhibit(
        "host-bound",
        "A host-bound CUDA C++ program",
        "my_clue, a clustering program on a T4",
        ("clue_r3.sqlite",),
        "Five kernels repeated 20 times, with the GPU waiting for the host. No framework settings apply.",
    ),
)


def build_gallery(captures: Path, folder: Path, report: Callable[[str], None]) -> None:
    """Write the reports whose captures are there, and `index.json` with verdicts and reasons."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.html"):
        old.unlink()
    entries = []
    for exhibit in EXHIBITS:
        absent = [name for name in exhibit.captures if not (captures / name).is_file()]
        if absent:
            reason = f"The capture {', '.join(absent)} is not on the machine that built this site."
            entries.append({"name": exhibit.name, "skipped": reason})
            report(f"{exhibit.name}: skipped, {captures} holds no {', '.join(absent)}")
            continue
        result = _result(exhibit, captures)
        path = folder / f"{exhibit.name}.html"
        result.to_html(path)
        entries.append({"name": exhibit.name, "verdict": _verdict(result)})
        report(f"{exhibit.name}: {path.stat().st_size / 1e6:.1f} MB")
    text = json.dumps(entries, indent=1, ensure_ascii=False)
    (folder / "index.json").write_text(f"{text}\n", encoding="utf-8")


def _result(exhibit: Exhibit, captures: Path) -> Result | ComparisonResult:
    if not exhibit.captures:
        with TemporaryDirectory() as scratch:
            path = Path(scratch) / "moe_step.sqlite"
            write_example(path)
            result = analyze(path)
            _ = result.report  # made while the export is there
            return result
    paths = [captures / name for name in exhibit.captures]
    return analyze(paths[0]) if len(paths) == 1 else diff(*paths)


def _verdict(result: Result | ComparisonResult) -> str:
    """The verdict in one paragraph."""
    if isinstance(result, Result):
        return " ".join(result.verdict.split())
    step = result.comparison.step
    times = f"{duration(step.base_typical_ns)} → {duration(step.head_typical_ns)}"
    return f"{result.verdict}: typical step {times} ({step.ratio - 1:+.1%})"


def list_gallery_files(folder: Path = FOLDER) -> list[Path]:
    """Return the reports that `make gallery` wrote."""
    return sorted(folder.glob("*.html"))


def write_gallery_page(folder: Path = FOLDER) -> str:
    """Return the page of the gallery: what was built, and why the rest was not."""
    index = folder / "index.json"
    entries = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else []
    built = {entry["name"]: entry for entry in entries}
    return "\n".join(
        [_HEAD, *(line for exhibit in EXHIBITS for line in _section(exhibit, built.get(exhibit.name)))]
    )


_HEAD = """# Gallery

Reports as `--html` writes them: one file each, without a server or a network. `make gallery` builds them,
`make docs` puts them into the site.
"""


def _section(exhibit: Exhibit, entry: dict[str, str] | None) -> Iterable[str]:
    yield f"## {exhibit.title}\n\n{exhibit.shows}\n"
    if entry is None:
        yield "Not built: run `make gallery` before `make docs`.\n"
    elif "skipped" in entry:
        yield f"Not built: {entry['skipped']}\n"
    else:
        yield f"> {entry['verdict']}\n\n[Open the report](gallery/{exhibit.name}.html){{ .md-button }}\n"
    yield f"Source: {exhibit.source}.\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser("python -m docs_build.gallery", description=__doc__.partition("\n")[0])
    parser.add_argument("--captures", type=Path, default=CAPTURES, help="folder of public captures")
    build_gallery(parser.parse_args().captures, FOLDER, lambda line: print(line, file=sys.stderr))  # noqa: T201

"""What `analyze` writes, and where: each result whole or not at all, none over an input."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.folders import check_folder, holds_only, write_folder
from wallscope.cli.output import check_different, check_output, write_whole
from wallscope.cli.progress import reported
from wallscope.errors import OptionError, OutputError
from wallscope.files import write_chunks

if TYPE_CHECKING:
    from wallscope.analysis import Accounted
    from wallscope.answers import Answer
    from wallscope.cache import Cache
    from wallscope.model.analysis import Analysis
    from wallscope.model.capture import Progress
    from wallscope.model.options import Options
    from wallscope.render.exported import Format

_STANDARD_OUTPUT = "-"

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Write the answer as JSON; - is standard output."),
]
HtmlFile = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the report as one HTML page that works offline."),
]
MarkdownFile = Annotated[
    Path | None,
    typer.Option(
        "--markdown",
        metavar="FILE",
        help="Write it as Markdown for a pull request or job summary; - is standard output.",
    ),
]
CsvFolder = Annotated[
    Path | None,
    typer.Option("--csv", metavar="DIR", help="Write the tables behind the answer as CSV, into a folder."),
]
ParquetFolder = Annotated[
    Path | None, typer.Option("--parquet", metavar="DIR", help="Write the same tables as Parquet.")
]
PerfettoFile = Annotated[
    Path | None,
    typer.Option(
        "--perfetto",
        metavar="FILE",
        help="Write a trace for ui.perfetto.dev, with walls and causes beside it.",
    ),
]


@dataclass(frozen=True, slots=True)
class Made:
    """What is written: the answer, and its parts where something is made from them."""

    answer: "Answer"
    parts: "Accounted | None"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The places that the user named, by what is written there."""

    json: Path | None = None
    html: Path | None = None
    markdown: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    perfetto: Path | None = None

    def check(self, inputs: tuple[Path | None, ...]) -> None:
        """Refuse bad places before the work begins.

        Raises:
            OutputError: one cannot be written, is an input, is named twice, or lies in another one.
        """
        files = {
            "--json": self.json,
            "--html": self.html,
            "--markdown": self.markdown,
            "--perfetto": self.perfetto,
        }
        for file in files.values():
            check_output(file, inputs)
        if str(self.perfetto) == _STANDARD_OUTPUT:
            raise OutputError("--perfetto - — a trace is no text — name a file")
        folders: dict[str, tuple[Path | None, Format]] = {
            "--csv": (self.csv, "csv"),
            "--parquet": (self.parquet, "parquet"),
        }
        places = files | {option: folder for option, (folder, _) in folders.items()}
        check_different(places)
        for option, (folder, kind) in folders.items():
            if str(folder) == _STANDARD_OUTPUT:
                raise OutputError(f"{option} - — is no folder — name one")
            check_folder(folder, inputs, partial(_is_ours, kind=kind))
            others = [place for name, place in places.items() if place and name != option]
            for other in others:
                if folder and other.resolve().is_relative_to(folder.resolve()):
                    raise OutputError(f"{other} — lies in the folder of {option} — name a place elsewhere")

    @property
    def takes_standard_output(self) -> bool:
        """Whether a result goes to standard output, so that nothing else may."""
        return _STANDARD_OUTPUT in {str(self.json), str(self.html), str(self.markdown)}

    def check_job(self) -> None:
        """Refuse what is made of one export alone.

        Raises:
            OptionError: such a result is asked for.
        """
        single = {
            "--html": self.html,
            "--csv": self.csv,
            "--parquet": self.parquet,
            "--perfetto": self.perfetto,
        }
        for option, place in single.items():
            if place is not None:
                raise OptionError(f"{option} — is of one export — give it that of one rank alone")

    def made(self, file: Path, options: "Options", progress: "Progress", cache: "Cache | None") -> "Made":
        """The answer, out of the cache where that is enough for what was asked for.

        Raises:
            WallscopeError: one of its children, each with a line for the user.
        """
        from wallscope.answers import answer_of, answered  # noqa: PLC0415  # keeps --help fast

        with_page = self.html is not None
        if self.csv is None and self.parquet is None and self.perfetto is None:
            return Made(answered(file, options, progress, cache, with_page=with_page), None)
        from wallscope.analysis import accounted  # noqa: PLC0415  # an answer in the cache needs none

        parts = accounted(file, options, progress)
        return Made(answer_of(parts, progress, with_page=with_page), parts)

    def write(self, made: "Made") -> None:
        """Write all that was asked for.

        Raises:
            OutputError: a file cannot be written.
        """
        if self.html is not None and made.answer.page is not None:
            write_whole(self.html, made.answer.page)
        if made.parts is not None:
            self._write_parts(made.parts)
        self.write_answer(made.answer.analysis, made.answer.text)

    def write_answer(self, analysis: "Analysis", text: str) -> None:
        """Write what is made from the answer alone; `text` is its JSON.

        Raises:
            OutputError: a file cannot be written.
        """
        if self.json is not None:
            write_whole(self.json, text)
        if self.markdown is not None:
            from wallscope.render.markdown import markdown  # noqa: PLC0415  # only when asked for

            write_whole(self.markdown, markdown(analysis))

    def _write_parts(self, found: "Accounted") -> None:
        """What is made from more than the answer: tables, and the trace."""
        from wallscope.analysis import exported  # noqa: PLC0415  # only when asked for
        from wallscope.render.exported import write_tables  # noqa: PLC0415  # same
        from wallscope.render.perfetto import gzipped, perfetto  # noqa: PLC0415  # same

        wanted: tuple[tuple[Format, Path | None], ...] = (("csv", self.csv), ("parquet", self.parquet))
        with reported() as progress:
            tables = exported(found)
            for kind, folder in wanted:
                if folder is not None:
                    progress(f"writing {folder.name}")
                    name = found.analysis.inputs[0].name
                    write_folder(folder, partial(write_tables, kind=kind, source=name, frame=tables.frame))
            if self.perfetto is not None:
                progress(f"writing {self.perfetto.name}")
                traced = tables.traced()
                pieces = perfetto(traced.tracks(), traced.earliest_ns())
                is_packed = self.perfetto.suffix == ".gz"
                write_chunks(self.perfetto, gzipped(pieces) if is_packed else pieces)


def _is_ours(folder: Path, kind: "Format") -> bool:
    """Whether a folder holds tables of that kind and nothing else, so that it may be replaced."""
    from wallscope.render import exported  # noqa: PLC0415  # only for a folder that is there

    manifest = folder / exported.MANIFEST
    if not holds_only(folder, exported.files(kind)) or not manifest.is_file():
        return False
    return exported.is_ours(manifest.read_text(encoding="utf-8", errors="replace"), kind)

"""What `analyze` writes, and where: each result whole or not at all, none over an input."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.folders import check_folder, holds_only, write_folder
from wallscope.cli.output import check_different, check_output, write_whole
from wallscope.errors import OutputError
from wallscope.files import real, write_chunks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from wallscope.analysis import Accounted
    from wallscope.cache.answers import RenderedAnalysis
    from wallscope.jobs.merge import JobAnswer
    from wallscope.model.capture import Progress
    from wallscope.model.trace import Track
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
                if folder and real(other).is_relative_to(real(folder)):
                    raise OutputError(f"{other} — lies in the folder of {option} — name a place elsewhere")

    @property
    def takes_standard_output(self) -> bool:
        """Whether a result goes to standard output, so that nothing else may."""
        return _STANDARD_OUTPUT in {str(self.json), str(self.html), str(self.markdown)}

    @property
    def are_of_parts(self) -> bool:
        """Whether something is made from more than the answer: tables, or the trace."""
        return any(place is not None for place in (self.csv, self.parquet, self.perfetto))

    def write(self, found: "RenderedAnalysis") -> None:
        """Write what is made from the answer.

        Raises:
            OutputError: a file cannot be written.
        """
        if self.json is not None:
            write_whole(self.json, found.text)
        if self.html is not None and found.page is not None:
            write_whole(self.html, found.page)
        if self.markdown is not None:
            from wallscope.views.markdown import markdown  # noqa: PLC0415  # only when asked for

            write_whole(self.markdown, markdown(found.analysis))

    def write_parts(self, found: "Accounted", progress: "Progress") -> None:
        """Write what is made from more than the answer.

        Raises:
            OutputError: a file cannot be written.
        """
        from wallscope.analysis import exported  # noqa: PLC0415  # only when asked for
        from wallscope.render.exported import write_tables  # noqa: PLC0415  # same

        wanted: tuple[tuple[Format, Path | None], ...] = (("csv", self.csv), ("parquet", self.parquet))
        tables = exported(found)
        for kind, folder in wanted:
            if folder is not None:
                progress(f"writing {folder.name}")
                name = found.analysis.inputs[0].name
                writer = partial(write_tables, kind=kind, source=name, frame=tables.frame)
                write_folder(folder, writer, partial(_is_ours, kind=kind))
        if self.perfetto is not None:
            progress(f"writing {self.perfetto.name}")
            traced = tables.traced()
            self._write_trace(traced.tracks(), traced.earliest_ns())

    def write_parts_of_job(self, job: "JobAnswer", progress: "Progress") -> str | None:
        """Write tables and trace of a job of several exports; its page, where one was asked for.

        All is made from the profiles of its ranks.

        Raises:
            OutputError: a file cannot be written.
        """
        if not self.are_of_parts and self.html is None:
            return None
        from wallscope.jobs.merge import job_report, list_job_tables  # noqa: PLC0415  # when asked for
        from wallscope.ranks.tables import earliest_ns, job_tracks  # noqa: PLC0415  # same
        from wallscope.render.exported import write_tables  # noqa: PLC0415  # same
        from wallscope.views.page import page  # noqa: PLC0415  # same

        tables, frame = list_job_tables(job.analysis, job.known)
        source = f"{len(job.analysis.inputs)} exports"
        writer = partial(write_tables, source=source, frame=frame, tables=tables)
        wanted: tuple[tuple[Format, Path | None], ...] = (("csv", self.csv), ("parquet", self.parquet))
        for kind, folder in wanted:
            if folder is not None:
                progress(f"writing {folder.name}")
                write_folder(folder, partial(writer, kind=kind), partial(_is_ours, kind=kind))
        if self.perfetto is not None:
            progress(f"writing {self.perfetto.name}")
            drawn = job_tracks(job.known)
            self._write_trace(drawn, earliest_ns(drawn))
        return None if self.html is None else page(job_report(job.analysis, job.known))

    def _write_trace(self, job_tracks: "Iterable[Track]", earliest_ns: int) -> None:
        from wallscope.render.perfetto import gzipped, perfetto  # noqa: PLC0415  # only when asked for

        if self.perfetto is not None:
            pieces = perfetto(job_tracks, earliest_ns)
            write_chunks(self.perfetto, gzipped(pieces) if self.perfetto.suffix == ".gz" else pieces)


def _is_ours(folder: Path, kind: "Format") -> bool:
    """Whether a folder holds tables of that kind and nothing else, so that it may be replaced."""
    from wallscope.render import exported  # noqa: PLC0415  # only for a folder that is there

    manifest = folder / exported.MANIFEST
    if not holds_only(folder, exported.files(kind)) or not manifest.is_file():
        return False
    return exported.is_ours(manifest.read_text(encoding="utf-8", errors="replace"), kind)

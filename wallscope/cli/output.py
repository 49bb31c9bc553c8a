"""Where results go: standard output, files and folders that appear whole or not at all, never over inputs.

`--brief` and `--max-rows` belong here: the same answers in few words, for coding agents.
"""

import io
import os
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.streams import announce_output
from wallscope.errors import OptionError, OutputError
from wallscope.files import defer_signals, name_aside, resolve_path, write_chunks
from wallscope.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from rich.console import RenderableType
    from typer.models import OptionInfo

    from wallscope.jobs.answers import RenderedAnalysis
    from wallscope.jobs.merge import JobAnswer
    from wallscope.model.brief import Brief
    from wallscope.model.capture import Progress
    from wallscope.model.report import Track
    from wallscope.pipeline import AnalyzedCapture
    from wallscope.render.data import Format

_STANDARD_OUTPUT = "-"
_LOGS = ("-wal", "-shm", "-journal")
OUTPUT = "Output"
"""Group of options in `--help`."""


def declare_target(text: str, metavar: str = "FILE") -> "OptionInfo":
    """Return an option that names what a command writes; `text` is its help."""
    info: OptionInfo = typer.Option(metavar=metavar, rich_help_panel=OUTPUT, help=text)
    return info


JsonFile = Annotated[Path | None, declare_target("Write the result as JSON; - is standard output.")]
HtmlFile = Annotated[Path | None, declare_target("Write the report as one offline HTML page.")]
MarkdownFile = Annotated[
    Path | None, declare_target("Write Markdown for a pull request or job summary; - is standard output.")
]
CsvFolder = Annotated[Path | None, declare_target("Write all tables as CSV to a folder.", metavar="DIR")]
ParquetFolder = Annotated[
    Path | None, declare_target("Write all tables as Parquet to a folder.", metavar="DIR")
]
PerfettoFile = Annotated[
    Path | None, declare_target("Write a trace for ui.perfetto.dev, with tracks for walls and causes.")
]
_DEFAULT_ROWS, _MOST_ROWS = 3, 50  # as in model/brief.py, which `--help` does not import
IsBrief = Annotated[
    bool,
    typer.Option(
        "--brief",
        help="Answer in under 600 tokens: verdict, numbers, recommendations, confidence, next command; --json"
        " then writes the same.",
    ),
]
MaxRows = Annotated[
    int | None,
    typer.Option(
        "--max-rows",
        metavar="N",
        min=1,
        max=_MOST_ROWS,
        help=f"Rows of each list in a brief answer, {_DEFAULT_ROWS} by default.",
    ),
]


def print_out(answer: "RenderableType") -> None:
    """Print to standard output, as wide as the terminal, 80 columns elsewhere; no letter of it is obeyed."""
    from rich.console import Console  # noqa: PLC0415  # keeps --help fast
    from rich.segment import SegmentLines  # noqa: PLC0415

    from wallscope.render.texts import spell_out  # noqa: PLC0415

    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=sys.stdout.isatty(),
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=False,
    )
    lines = [
        [segment._replace(text=spell_out(segment.text)) for segment in line]
        for line in console.render_lines(answer, pad=False)
    ]
    console.print(SegmentLines(lines, new_lines=True))
    _to_standard_output("\n".join(line.rstrip() for line in page.getvalue().split("\n")))


def _to_standard_output(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def check_output(target: Path | None, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a bad target before the work begins.

    Raises:
        OutputError: the target is an input, no regular file, or in no folder that can be written.
    """
    if target is None or str(target) == _STANDARD_OUTPUT:
        return
    status = read_status(target, "file")
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise OutputError(f"{target} — is not a regular file — name another file")
    if status is not None and any(path and path.exists() and target.samefile(path) for path in inputs):
        raise OutputError(f"{target} — is an input — name another file")
    _check_companion(target, inputs)
    folders = [resolve_path(path) for path in inputs if path is not None and path.is_dir()]
    if any(resolve_path(target).is_relative_to(folder) for folder in folders):
        raise OutputError(f"{target} — lies in a folder that is an input — name a file elsewhere")
    if not target.absolute().parent.is_dir():
        raise OutputError(f"{target} — its folder does not exist — create it first")


def _check_companion(target: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse the name of a log of an input: SQLite would take a result there for changes of the export.

    Raises:
        OutputError: it is one.
    """
    place = resolve_path(target)
    for path in inputs:
        if path is not None and str(place).removeprefix(str(resolve_path(path))) in _LOGS:
            raise OutputError(f"{target} — is the name of a log of {path.name} — name another file")


def read_status(target: Path, kind: str) -> os.stat_result | None:
    """What stands at a target, links not followed; `None` without anything.

    Raises:
        OutputError: it cannot be read; `kind` is what the message asks for.
    """
    try:
        return target.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise OutputError(f"{target} — cannot be written: {error} — name another {kind}") from error


def check_different(targets: dict[str, Path | None]) -> None:
    """Refuse two results in one place; `targets` are the options and what each of them names.

    Raises:
        OutputError: two of them name the same file, or both standard output.
    """
    taken: dict[Path | str, str] = {}
    for option, target in targets.items():
        if target is None:
            continue
        is_standard = str(target) == _STANDARD_OUTPUT
        place = _STANDARD_OUTPUT if is_standard else resolve_path(target)
        if place in taken:
            name = "standard output" if is_standard else str(target)
            raise OutputError(f"{name} — is named by {taken[place]} and by {option} — name two places")
        taken[place] = option


def write_file(target: Path, text: str) -> None:
    """Write aside, then rename: the target holds all of the text, or what it held before. Say so.

    Raises:
        OutputError: the file cannot be written.
    """
    if str(target) == _STANDARD_OUTPUT:
        _to_standard_output(text)
        return
    write_chunks(target, (text.encode("utf-8", "backslashreplace"),))  # names may hold any bytes
    announce_output(target)


def check_folder(
    target: Path | None, inputs: tuple[Path | None, ...], is_ours: "Callable[[Path], bool]"
) -> None:
    """Refuse a bad folder before the work begins; one that `is_ours` may be replaced.

    Raises:
        OutputError: it holds or is an input, is not a folder, holds something else, or cannot be made.
    """
    if target is None:
        return
    status = read_status(target, "folder")
    if status is not None and not stat.S_ISDIR(status.st_mode):
        raise OutputError(f"{target} — is not a folder — name a new or an empty one")
    _check_companion(target, inputs)
    _check_apart(target, inputs)
    if not resolve_path(target).parent.is_dir():
        raise OutputError(f"{target} — the folder around it does not exist — create it first")
    if status is not None and any(target.iterdir()) and not is_ours(target):
        raise OutputError(f"{target} — holds other files — name a new or an empty folder")


def _check_apart(target: Path, inputs: tuple[Path | None, ...]) -> None:
    """Refuse a folder that holds an input or lies in one."""
    place = resolve_path(target)
    for path in inputs:
        if path is not None and resolve_path(path).is_relative_to(place):
            raise OutputError(f"{target} — is an input or holds one — name another folder")
        if path is not None and path.is_dir() and place.is_relative_to(resolve_path(path)):
            raise OutputError(f"{target} — lies in a folder that is an input — name a folder elsewhere")


def write_folder(
    target: Path, write: "Callable[[Path], None]", is_ours: "Callable[[Path], bool]", what: str = ""
) -> None:
    """Let `write` fill a temporary folder, then move it to the target: all of it, or what was there. Say so.

    What was there is looked at again once it is aside: files may have come while the work went on.

    Raises:
        OutputError: the folder cannot be written, or holds something else than `is_ours` by now.
    """
    import shutil  # noqa: PLC0415  # keeps --help fast

    place = resolve_path(target)
    aside = name_aside(place)
    is_replaced, kept = False, ""
    try:
        aside.mkdir(mode=0o700)
        made, former = aside / "made", aside / "former"
        made.mkdir()
        write(made)
        with defer_signals():
            try:
                if place.exists():
                    place.rename(former)
                if former.exists() and any(former.iterdir()) and not is_ours(former):
                    raise OutputError(f"{target} — holds other files — name a new or an empty folder")
                made.rename(place)
            finally:
                is_replaced = not made.exists()  # a signal may come right behind the rename
                if not is_replaced and former.exists():
                    kept = f", and what was there is in {former}"
                    former.rename(place)
                    kept = ""
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputError(f"{target} — cannot be written: {reason}{kept} — name another folder") from error
    finally:
        if is_replaced or not (aside / "former").exists():
            with defer_signals():
                shutil.rmtree(aside, ignore_errors=True)
    announce_output(target, what)


def holds_only(folder: Path, names: frozenset[str]) -> bool:
    """Whether nothing but regular files of these names is in a folder."""
    return all(stat.S_ISREG(path.lstat().st_mode) and path.name in names for path in folder.iterdir())


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
            raise OutputError("--perfetto - — a trace is not text — name a file")
        folders: dict[str, tuple[Path | None, Format]] = {
            "--csv": (self.csv, "csv"),
            "--parquet": (self.parquet, "parquet"),
        }
        places = files | {option: folder for option, (folder, _) in folders.items()}
        check_different(places)
        for option, (folder, kind) in folders.items():
            if str(folder) == _STANDARD_OUTPUT:
                raise OutputError(f"{option} - — is not a folder — name one")
            check_folder(folder, inputs, partial(is_table_folder, kind=kind))
            others = [place for name, place in places.items() if place and name != option]
            for other in others:
                if folder and resolve_path(other).is_relative_to(resolve_path(folder)):
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
            write_file(self.json, found.text)
        if self.html is not None and found.page is not None:
            write_file(self.html, found.page)
        if self.markdown is not None:
            from wallscope.views.analysis import write_analysis_markdown  # noqa: PLC0415  # only when asked for

            write_file(self.markdown, write_analysis_markdown(found.analysis))

    def write_parts(self, found: "AnalyzedCapture", progress: "Progress") -> None:
        """Write what is made from more than the answer.

        Raises:
            OutputError: a file cannot be written.
        """
        from wallscope.pipeline import build_tables  # noqa: PLC0415  # only when asked for
        from wallscope.render.data import write_tables  # noqa: PLC0415  # same

        wanted: tuple[tuple[Format, Path | None], ...] = (("csv", self.csv), ("parquet", self.parquet))
        tables = build_tables(found)
        for kind, folder in wanted:
            if folder is not None:
                progress(f"writing {folder.name}")
                name = found.analysis.inputs[0].name
                writer = partial(write_tables, kind=kind, source=name, frame=tables.frame)
                write_folder(folder, writer, partial(is_table_folder, kind=kind))
        if self.perfetto is not None:
            progress(f"writing {self.perfetto.name}")
            traced = tables.build_tracks()
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
        from wallscope.render.data import write_tables  # noqa: PLC0415  # same
        from wallscope.views.page_analysis import write_analysis_page  # noqa: PLC0415  # same

        tables, frame = list_job_tables(job.analysis, job.known)
        source = f"{len(job.analysis.inputs)} exports"
        writer = partial(write_tables, source=source, frame=frame, tables=tables)
        wanted: tuple[tuple[Format, Path | None], ...] = (("csv", self.csv), ("parquet", self.parquet))
        for kind, folder in wanted:
            if folder is not None:
                progress(f"writing {folder.name}")
                write_folder(folder, partial(writer, kind=kind), partial(is_table_folder, kind=kind))
        if self.perfetto is not None:
            progress(f"writing {self.perfetto.name}")
            drawn = job_tracks(job.known)
            self._write_trace(drawn, earliest_ns(drawn))
        return (
            None
            if self.html is None
            else write_analysis_page(job_report(job.analysis, job.known, job.overviews))
        )

    def _write_trace(self, job_tracks: "Iterable[Track]", earliest_ns: int) -> None:
        from wallscope.render.perfetto import compress, write_trace  # noqa: PLC0415  # only when asked for

        if self.perfetto is not None:
            chunks = write_trace(job_tracks, earliest_ns)
            write_chunks(self.perfetto, compress(chunks) if self.perfetto.suffix == ".gz" else chunks)
            announce_output(self.perfetto)


def is_table_folder(folder: Path, kind: "Format") -> bool:
    """Whether a folder holds tables of that kind and nothing else, so that it may be replaced."""
    from wallscope.render import data  # noqa: PLC0415  # only for a folder that is there

    manifest = folder / data.MANIFEST
    if not holds_only(folder, data.name_table_files(kind)) or not manifest.is_file():
        return False
    return data.is_ours(manifest.read_text(encoding="utf-8", errors="replace"), kind)


def count_rows(*, brief: bool, max_rows: int | None) -> int | None:
    """Return how many rows each list of a brief answer has; `None` where the full answer is asked for.

    Raises:
        OptionError: rows are counted for a full answer.
    """
    if max_rows is not None and not brief:
        raise OptionError(f"--max-rows {max_rows} — only limits brief answers — add --brief")
    return (max_rows or _DEFAULT_ROWS) if brief else None


def show_brief(brief: "Brief", json: Path | None, *, is_printed: bool = True) -> None:
    """Write a brief answer as JSON where asked for, and print it unless standard output is taken."""
    from wallscope.render.data import write_brief, write_brief_json  # noqa: PLC0415  # keeps --help fast

    if is_printed and str(json) != "-":
        _to_standard_output(write_brief(brief))
    if json is not None:
        write_file(json, write_brief_json(brief))

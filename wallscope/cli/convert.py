"""`wallscope convert`: what was read, as tables that other tools take."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from wallscope.cli.options import Export, Verbose
from wallscope.cli.output import check_folder, is_table_folder, write_folder
from wallscope.cli.progress import is_talkative, report_progress


class TableFormat(StrEnum):
    """The files that tables are written as."""

    PARQUET = "parquet"
    CSV = "csv"


def convert(
    file: Export,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or an empty folder for the tables.")],
    *,
    to: Annotated[TableFormat, typer.Option("--to", help="The format of the files.")] = TableFormat.PARQUET,
    verbose: Verbose = False,
) -> None:
    """Write the contents of an export as Parquet or CSV.

    Tables: operations, calls, ranges, waits, collectives.
    """
    from wallscope.model.capture_columns import CAPTURE_TABLES  # noqa: PLC0415  # keeps --help fast
    from wallscope.read_input import read_any_capture  # noqa: PLC0415
    from wallscope.render.data import write_tables  # noqa: PLC0415
    from wallscope.views.captured import frame_capture  # noqa: PLC0415

    is_talkative(verbose=verbose)
    is_ours = partial(is_table_folder, kind=to.value)
    check_folder(folder, (file,), is_ours)
    with report_progress() as progress:
        capture = read_any_capture(file, progress)
        progress(f"writing {folder.name}")
        frame = partial(frame_capture, capture)
        write_folder(
            folder,
            lambda place: write_tables(place, to.value, capture.export.name, frame, CAPTURE_TABLES),
            is_ours,
        )

"""`wallscope analyze` of several exports: one job."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.output import print_out
from wallscope.cli.outputs import Outputs
from wallscope.cli.progress import reported

if TYPE_CHECKING:
    from wallscope.cache import Cache
    from wallscope.model.analysis import Analysis
    from wallscope.model.options import Options

Exports = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="A .sqlite export, a parquetdir or arrowdir folder, or a report where nsys is installed;"
        " several, a folder of exports or a pattern: the ranks of one job.",
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Leave out exports that cannot be analysed, and say which.")
]
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="How many exports are analysed side by side."),
]


def is_job(files: Sequence[Path]) -> bool:
    """Whether several exports are asked for, or a folder or pattern of some."""
    from wallscope.jobs.inputs import is_many  # noqa: PLC0415  # keeps --help fast

    return is_many(files)


def analyze_job(  # noqa: PLR0913  # options are parameters
    files: Sequence[Path],
    options: "Options",
    outputs: Outputs,
    *,
    jobs: int,
    keep_going: bool,
    cache: "Cache | None",
) -> "Analysis":
    """Analyse the exports of a job and print or write what they tell together.

    Raises:
        WallscopeError: no export is meant, or one cannot be analysed.
    """
    from wallscope.answers import Answer  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import exports_of  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.joining import analyzed_job  # noqa: PLC0415
    from wallscope.render.document import document  # noqa: PLC0415
    from wallscope.render.terminal import summary  # noqa: PLC0415

    with reported() as progress:
        exports = exports_of(files)
        analysis = analyzed_job(exports, options, progress, jobs=jobs, keep_going=keep_going, cache=cache)
        page = outputs.write_parts_of_job(analysis, progress)
    outputs.write(Answer(analysis, document(analysis), page))
    if not outputs.takes_standard_output:
        print_out(summary(analysis))
    return analysis

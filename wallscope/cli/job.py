"""`wallscope analyze` of several exports: one job."""

from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.output import print_out
from wallscope.cli.outputs import Outputs
from wallscope.cli.progress import reported
from wallscope.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.cache_folder import Cache
    from wallscope.jobs.remote import Source
    from wallscope.model.analysis import Analysis
    from wallscope.model.options import Options

Exports = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="A .sqlite export, a parquetdir or arrowdir folder, or a report where nsys is installed;"
        " several, a folder of exports or a pattern: the ranks of one job. URLs too, as s3://runs/*.sqlite.",
    ),
]
KeepGoing = Annotated[
    bool, typer.Option("--keep-going", help="Leave out exports that cannot be analysed, and say which.")
]
Jobs = Annotated[
    int,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="How many exports are analysed side by side."),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        help="Analyse on a Dask cluster instead: tcp://HOST:PORT of its scheduler, or the file it wrote.",
    ),
]


def is_job(files: "Sequence[Source]") -> bool:
    """Whether several exports are asked for, or a folder or pattern of some."""
    from wallscope.jobs.inputs import is_many  # noqa: PLC0415  # keeps --help fast

    return is_many(files)


def check_one_way(jobs: int, dask: str | None) -> None:
    """Refuse processes and a cluster at once.

    Raises:
        OptionError: both are asked for.
    """
    if jobs > 1 and dask is not None:
        raise OptionError("--jobs and --dask — are two ways to analyse side by side — give one of them")


def analyze_job(  # noqa: PLR0913  # options are parameters
    files: "Sequence[Source]",
    options: "Options",
    outputs: Outputs,
    *,
    jobs: int,
    dask: str | None,
    keep_going: bool,
    cache: "Cache | None",
) -> "Analysis":
    """Analyse the exports of a job and print or write what they tell together.

    Raises:
        WallscopeError: no export is meant, or one cannot be analysed.
    """
    from wallscope.cache.answers import RenderedAnalysis  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import find_exports  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.merge import run_job  # noqa: PLC0415
    from wallscope.render.document import document  # noqa: PLC0415
    from wallscope.views.summary import summary  # noqa: PLC0415

    with reported() as progress:
        exports = find_exports(files)
        job = run_job(exports, options, progress, jobs=jobs, dask=dask, keep_going=keep_going, cache=cache)
        page = outputs.write_parts_of_job(job, progress)
    outputs.write(RenderedAnalysis(job.analysis, document(job.analysis), page))
    if not outputs.takes_standard_output:
        print_out(summary(job.analysis))
    return job.analysis

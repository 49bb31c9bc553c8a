"""`wallscope analyze`: what limits a run, of one export or of the ranks of a job."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.diff import judge, read_gates
from wallscope.cli.ledger import read_experience
from wallscope.cli.options import (
    RUNNING,
    Configuration,
    Device,
    Flops,
    KernelRules,
    Logs,
    NoCache,
    PythonFunctions,
    Rank,
    ReadBy,
    StepRange,
    Steps,
    Streams,
    Time,
    Tokens,
    UnprofiledStep,
    Verbose,
    make_selection,
    make_step_facts,
    open_cache,
    parse_stream_map,
)
from wallscope.cli.output import (
    OUTPUT,
    CsvFolder,
    HtmlFile,
    IsBrief,
    JsonFile,
    MarkdownFile,
    MaxRows,
    Outputs,
    ParquetFolder,
    PerfettoFile,
    count_rows,
    print_out,
    show_brief,
)
from wallscope.cli.recorded import add_recorded_facts
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.cache_folder import Cache
    from wallscope.jobs.answers import RenderedAnalysis
    from wallscope.jobs.inputs import Source
    from wallscope.model.capture import Options

Exports = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="A .sqlite export, a parquetdir or arrowdir folder, a report (needs nsys), or a trace of"
        " PyTorch's profiler. Several files, a folder or a pattern are the ranks of one job. URLs work too:"
        " s3://runs/*.sqlite.",
    ),
]
KeepGoing = Annotated[
    bool,
    typer.Option(
        "--keep-going", rich_help_panel=RUNNING, help="Skip exports that cannot be analyzed, and name them."
    ),
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", metavar="N", min=1, rich_help_panel=RUNNING, help="Exports to analyze in parallel."
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        "--dask",
        metavar="ADDRESS",
        rich_help_panel=RUNNING,
        help="Analyze on a Dask cluster: tcp://HOST:PORT of its scheduler, or its scheduler file.",
    ),
]
Full = Annotated[
    bool,
    typer.Option(
        "--full", rich_help_panel=OUTPUT, help="Print all causes, fixes, kernels, host, memory and limits."
    ),
]
FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="GATE",
        rich_help_panel=OUTPUT,
        help="Exit with 1 if a part of the step is above a limit: communication>30% (share of the step),"
        " host/framework>2ms, step>400ms. In diff, the same gates limit the increase. Repeatable.",
    ),
]
Experience = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="STORE",
        rich_help_panel=RUNNING,
        help="Store of records: recommendations say which share of their bounds they realized in it.",
    ),
]
_MOST_NAMED = 3


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
        raise OptionError("--jobs and --dask — cannot be combined — give one of them")


def analyze_job(  # noqa: PLR0913  # options are parameters
    files: "Sequence[Source]",
    options: "Options",
    outputs: Outputs,
    *,
    jobs: int,
    dask: str | None,
    keep_going: bool,
    cache: "Cache | None",
) -> "RenderedAnalysis":
    """Analyze the exports of a job, and write what is made of each of them.

    Raises:
        WallscopeError: no export is found, or one cannot be analyzed.
    """
    from wallscope.jobs.answers import RenderedAnalysis  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import find_exports  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.merge import run_job  # noqa: PLC0415

    with report_progress() as progress:
        exports = find_exports(files)
        job = run_job(
            exports,
            options,
            progress,
            jobs=jobs,
            dask=dask,
            keep_going=keep_going,
            cache=cache,
            with_timeline=outputs.html is not None,
        )
        page = outputs.write_parts_of_job(job, progress)
    return RenderedAnalysis(job.analysis, page)


def _show_answer(  # noqa: PLR0913  # options are parameters
    found: "RenderedAnalysis",
    outputs: Outputs,
    files: "Sequence[str]",
    brief_rows: int | None,
    *,
    is_full: bool,
    has_configuration: bool,
) -> None:
    """Print the answer unless an output goes to standard output, then write the outputs.

    In brief the JSON and what is printed are the brief answer.
    """
    if brief_rows is not None:
        from wallscope.views.brief import brief_analysis  # noqa: PLC0415  # only when asked for

        brief = brief_analysis(found.analysis, tuple(files), brief_rows)
        show_brief(brief, outputs.json, is_printed=not outputs.takes_standard_output)
        replace(outputs, json=None).write(found)
        return
    import shlex  # noqa: PLC0415  # keeps --help fast

    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    if not outputs.takes_standard_output:
        named = visible(" ".join(map(shlex.quote, files)) if len(files) <= _MOST_NAMED else "FILE...")
        if is_full:
            from wallscope.views.analysis import render_analysis  # noqa: PLC0415  # only when asked for

            print_out(render_analysis(found.analysis, named, is_full=True))
        else:
            from wallscope.views.first_screen import render_first_screen  # noqa: PLC0415  # keeps --help fast

            print_out(render_first_screen(found.analysis, named, has_configuration=has_configuration))
    outputs.write(found)


def analyze(  # noqa: PLR0913  # options are parameters
    files: Exports,
    *,
    full: Full = False,
    json: JsonFile = None,
    html: HtmlFile = None,
    markdown: MarkdownFile = None,
    csv: CsvFolder = None,
    parquet: ParquetFolder = None,
    perfetto: PerfettoFile = None,
    kernels: KernelRules = None,
    step_range: StepRange = None,
    stream: Streams = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    unprofiled_step_ms: UnprofiledStep = None,
    log: Logs = None,
    tokens_per_step: Tokens = None,
    flops_per_step: Flops = None,
    config: Configuration = None,
    reader: ReadBy = "pages",
    python_functions: PythonFunctions = False,
    jobs: Jobs = 1,
    dask: Dask = None,
    keep_going: KeepGoing = False,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    fail_on: FailOn = None,
    ledger: Experience = None,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Name what limits a training step, and how to speed it up.

    The step is limited by compute, communication, memory or the host. The first screen shows the verdict, the
    time breakdown, three recommendations and how sure they are; --full shows everything.
    """
    from wallscope.jobs.answers import build_answer  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import fetch_source, list_input_files, load_or_analyze_source, parse_source  # noqa: PLC0415  # same
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.model.enums import Reader  # noqa: PLC0415

    is_talkative(verbose=verbose)
    outputs = Outputs(json, html, markdown, csv, parquet, perfetto)
    sources = tuple(map(parse_source, files))
    outputs.check(inputs=(*list_input_files(sources), kernels, config, *(log or ())))
    check_one_way(jobs, dask)
    limits = read_gates(fail_on)
    rows = count_rows(brief=brief, max_rows=max_rows)
    options = Options(
        kernels,
        step_range,
        make_selection(rank, device, steps, time),
        parse_stream_map(stream),
        make_step_facts(unprofiled_step_ms, tokens_per_step, flops_per_step, log),
        config,
        Reader(reader),
        python_functions,
        () if ledger is None else read_experience(ledger),
    )
    options = add_recorded_facts(sources, options)
    if dask is not None or is_job(sources):
        cache = open_cache(refused=no_cache)
        found = analyze_job(
            sources, options, outputs, jobs=jobs, dask=dask, keep_going=keep_going, cache=cache
        )
        _show_answer(
            found, outputs, files, rows, is_full=full, has_configuration=options.configuration is not None
        )
        judge(limits, found.analysis)
        return
    (source,) = sources
    with report_progress() as progress:
        if outputs.are_of_parts:
            from wallscope.pipeline import analyze_capture  # noqa: PLC0415  # an answer in the cache needs none

            with fetch_source(source) as file:
                made = analyze_capture(
                    file, options, progress, keeps_slices=True, with_details=outputs.show_details
                )
                outputs.write_parts(made, progress)
                found = build_answer(made, progress, with_page=html is not None)
        else:
            cache = open_cache(refused=no_cache)
            found = load_or_analyze_source(
                source,
                options,
                progress,
                cache,
                with_page=html is not None,
                with_details=outputs.show_details,
            )
    _show_answer(
        found, outputs, files, rows, is_full=full, has_configuration=options.configuration is not None
    )
    judge(limits, found.analysis)

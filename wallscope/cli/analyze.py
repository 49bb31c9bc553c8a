"""`wallscope analyze`: the main job."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.cache import NoCache, cache_of
from wallscope.cli.gates import FailOn, judge, read_gates
from wallscope.cli.job import Dask, Exports, Jobs, KeepGoing, analyze_job, check_one_way, is_job
from wallscope.cli.output import print_out
from wallscope.cli.outputs import (
    CsvFolder,
    HtmlFile,
    JsonFile,
    MarkdownFile,
    Outputs,
    ParquetFolder,
    PerfettoFile,
)
from wallscope.cli.progress import reported, talkative
from wallscope.cli.selection import Device, Rank, Steps, Time, selection
from wallscope.cli.step_facts import Flops, Tokens, UnprofiledStep, step_facts
from wallscope.model.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wallscope.model.kinds import Axis

Export = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A .sqlite export, a parquetdir or arrowdir folder, or a report where nsys is installed.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say on standard error what is being done.")]


KernelRules = Annotated[
    Path | None,
    typer.Option(
        "--kernels", metavar="FILE", help="TOML file of kernel-name rules, asked before the shipped ones."
    ),
]
StepRange = Annotated[
    str | None,
    typer.Option(
        "--step-range",
        metavar="REGEX",
        help="NVTX ranges that are steps, in each rank's process; else known names are looked for.",
    ),
]


Streams = Annotated[
    list[str] | None,
    typer.Option(
        "--stream",
        metavar="N=AXIS",
        help="What a CUDA stream communicates for (ep, dp-gradient, dp-parameter, tp, cp, pp); repeatable.",
    ),
]
ReadBy = Annotated[
    Reader,
    typer.Option(
        help="How a .sqlite export is read: pages is fast and leaves what is unusual to SQLite, sqlite is the"
        " plain way.",
    ),
]


Configuration = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="How the run was configured: a Megatron Bridge YAML, Megatron-LM arguments or a log, or TOML.",
    ),
]


def stream_map(texts: list[str] | None) -> "Mapping[int, Axis]":
    """The axes of streams that the options spell.

    Raises:
        SelectionError: one cannot be read.
    """
    if not texts:
        return {}
    from wallscope.trace.parallel_axes import stream_axes  # noqa: PLC0415  # keeps --help fast

    return stream_axes(texts)


def analyze(  # noqa: PLR0913  # options are parameters
    files: Exports,
    *,
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
    tokens_per_step: Tokens = None,
    flops_per_step: Flops = None,
    config: Configuration = None,
    reader: ReadBy = Reader.PAGES,
    jobs: Jobs = 1,
    dask: Dask = None,
    keep_going: KeepGoing = False,
    fail_on: FailOn = None,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Say which wall a training step hits: compute, communication, memory or host, and what each loss is."""
    from wallscope.cache.answers import build_answer  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.remote import fetch_source, load_or_analyze_source, parse_source  # noqa: PLC0415  # same
    from wallscope.model.options import Options  # noqa: PLC0415
    from wallscope.views.summary import summary  # noqa: PLC0415

    talkative(verbose=verbose)
    outputs = Outputs(json, html, markdown, csv, parquet, perfetto)
    sources = tuple(map(parse_source, files))
    outputs.check(inputs=(*(source for source in sources if isinstance(source, Path)), kernels, config))
    check_one_way(jobs, dask)
    limits = read_gates(fail_on)
    options = Options(
        kernels,
        step_range,
        selection(rank, device, steps, time),
        stream_map(stream),
        step_facts(unprofiled_step_ms, tokens_per_step, flops_per_step),
        config,
        reader,
    )
    if dask is not None or is_job(sources):
        cache = cache_of(refused=no_cache)
        found_job = analyze_job(
            sources, options, outputs, jobs=jobs, dask=dask, keep_going=keep_going, cache=cache
        )
        judge(limits, found_job)
        return
    (source,) = sources
    with reported() as progress:
        if outputs.are_of_parts:
            from wallscope.analysis import accounted  # noqa: PLC0415  # an answer in the cache needs none

            with fetch_source(source) as file:
                made = accounted(file, options, progress)
                outputs.write_parts(made, progress)
                found = build_answer(made, progress, with_page=html is not None)
        else:
            cache = cache_of(refused=no_cache)
            found = load_or_analyze_source(source, options, progress, cache, with_page=html is not None)
    outputs.write(found)
    if not outputs.takes_standard_output:
        print_out(summary(found.analysis))
    judge(limits, found.analysis)

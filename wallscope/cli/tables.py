"""`wallscope info`, `steps`, `kernels`, `ranges`, `gaps`, `at`, `convert`: tables of what was read."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import (
    Device,
    Export,
    KernelRules,
    Rank,
    StepRange,
    Steps,
    Streams,
    Time,
    Verbose,
    make_selection,
    parse_moment,
    parse_stream_map,
)
from wallscope.cli.output import (
    IsBrief,
    MaxRows,
    check_different,
    check_output,
    count_rows,
    declare_target,
    print_out,
    show_brief,
    write_file,
)
from wallscope.cli.streams import is_talkative, report_progress

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from rich.console import RenderableType

    from wallscope.attribution.prepared import Trace
    from wallscope.model.capture import Options
    from wallscope.render.frame_tables import FrameColumn

from enum import StrEnum
from functools import partial

from wallscope.cli.output import check_folder, is_table_folder, write_folder


def info(file: Export, *, brief: IsBrief = False, max_rows: MaxRows = None, verbose: Verbose = False) -> None:
    """Show what an export holds: versions, machine, tables."""
    from wallscope.kineto.any_capture import read_any_contents  # noqa: PLC0415
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_contents  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    with report_progress() as progress:
        progress("counting rows")
        contents = read_any_contents(file, progress)
    if rows is not None:
        from wallscope.views.brief_listings import brief_contents  # noqa: PLC0415  # only when asked for

        show_brief(brief_contents(contents, str(file), rows), None)
        return
    print_out(render_sections(build_contents(contents)))


Csv = Annotated[Path | None, declare_target("Write all rows as CSV; - is standard output.")]
Json = Annotated[Path | None, declare_target("Write all rows as JSON; - is standard output.")]


def steps(  # noqa: PLR0913  # options are parameters
    file: Export,
    *,
    step_range: StepRange = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """List the steps with their time breakdown.

    A step that is not steady (warm-up, graph capture, cut off) is listed with the reason. CSV and JSON also
    hold the GPU activity of each step.
    """
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.preparation import tabulate_steps  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.frame_tables import STEPS, render_frame  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    check_targets((csv, json), inputs=(file,))
    options = Options(None, step_range, make_selection(rank, device, steps, time))
    with report_progress() as progress:
        frame = tabulate_steps(file, options, progress)
    if rows is not None:
        from wallscope.views.brief_listings import describe_steps_table  # noqa: PLC0415  # only when asked for

        show_table_brief("steps", file, frame, (csv, json), rows=rows, verdict=describe_steps_table(frame))
        return
    write_table(frame, (csv, json), render_frame(frame, STEPS))


def kernels(  # noqa: PLR0913  # options are parameters
    file: Export,
    *,
    step_range: StepRange = None,
    kernels: KernelRules = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """List the kernels of the typical step.

    Each kernel has its category, count, time and share of the step. CSV and JSON hold the full names.
    """
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.render.frame_tables import KERNELS  # noqa: PLC0415
    from wallscope.summary.tables import build_kernel_table  # noqa: PLC0415

    options = Options(kernels, step_range, make_selection(rank, device, steps, time))
    rows = count_rows(brief=brief, max_rows=max_rows)
    _show_table(
        file,
        options,
        build_kernel_table,
        KERNELS,
        (csv, json),
        noun="kernel",
        brief_rows=rows,
        verbose=verbose,
    )


def ranges(  # noqa: PLR0913  # options are parameters
    file: Export,
    *,
    step_range: StepRange = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """List the NVTX ranges of the typical step.

    Each range has its time on the host and on the GPU, with and without nested ranges.
    """
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.render.frame_tables import RANGES  # noqa: PLC0415
    from wallscope.summary.tables import build_range_table  # noqa: PLC0415

    options = Options(None, step_range, make_selection(rank, device, steps, time))
    rows = count_rows(brief=brief, max_rows=max_rows)
    _show_table(
        file, options, build_range_table, RANGES, (csv, json), noun="range", brief_rows=rows, verbose=verbose
    )


def _show_table(  # noqa: PLR0913  # what two commands share
    file: Path,
    options: "Options",
    made: "Callable[[Trace], pl.DataFrame]",
    columns: "tuple[FrameColumn, ...]",
    targets: tuple[Path | None, Path | None],
    *,
    noun: str,
    brief_rows: int | None,
    verbose: bool,
) -> None:
    from wallscope.preparation import read_trace  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.frame_tables import render_frame  # noqa: PLC0415

    is_talkative(verbose=verbose)
    check_targets(targets, inputs=(file, options.kernels))
    with report_progress() as progress:
        divided = read_trace(file, options, progress)
        frame = made(divided)
    if brief_rows is not None:
        from wallscope.views.brief_listings import describe_work_table  # noqa: PLC0415  # only when asked for

        show_table_brief(
            f"{noun}s", file, frame, targets, rows=brief_rows, verdict=describe_work_table(frame, noun)
        )
        return
    write_table(frame, targets, render_frame(frame, columns))


def check_targets(targets: tuple[Path | None, Path | None], inputs: tuple[Path | None, ...]) -> None:
    """Refuse bad targets of CSV and JSON before the work begins.

    Raises:
        OutputError: one of them cannot be written, or both are the same.
    """
    for target in targets:
        check_output(target, inputs)
    check_different({"--csv": targets[0], "--json": targets[1]})


def write_table(
    frame: "pl.DataFrame", targets: tuple[Path | None, Path | None], shown: "RenderableType"
) -> None:
    """Show a table unless standard output is taken, and write it as CSV and as JSON where asked for."""
    from wallscope.render import data  # noqa: PLC0415  # keeps --help fast

    csv, json = targets
    if "-" not in {str(csv), str(json)}:
        print_out(shown)
    if csv is not None:
        write_file(csv, data.write_csv(frame))
    if json is not None:
        write_file(json, data.write_rows_json(frame))


def show_table_brief(  # noqa: PLR0913  # what two commands share
    command: str,
    file: Path,
    frame: "pl.DataFrame",
    targets: tuple[Path | None, Path | None],
    *,
    rows: int,
    verdict: str,
) -> None:
    """Show a table in brief, and write it as CSV where asked for."""
    from wallscope.render import data  # noqa: PLC0415  # only when asked for
    from wallscope.views.brief_listings import brief_table  # noqa: PLC0415  # same

    csv, json = targets
    brief = brief_table(command, str(file), frame, rows, verdict)
    show_brief(brief, json, is_printed=str(csv) != "-")
    if csv is not None:
        write_file(csv, data.write_csv(frame))


Top = Annotated[
    int, typer.Option("--top", metavar="N", min=1, max=100_000, help="Gaps to list for each rank.")
]
Moment = Annotated[
    str,
    typer.Argument(
        metavar="TIME",
        help="Session time in seconds, as Nsight Systems shows it, or with a unit (ns, us, ms).",
    ),
]


def gaps(  # noqa: PLR0913  # options are parameters
    file: Export,
    *,
    top: Top = 20,
    step_range: StepRange = None,
    stream: Streams = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """List the longest gaps without compute, and their causes.

    Gaps of steady steps come first. Each has its start in session time, to find it in Nsight Systems, and the
    chain of events in it.
    """
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.preparation import look_up_gaps  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.sections.steps import build_gaps, frame_gaps  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    check_targets((csv, json), inputs=(file,))
    options = Options(None, step_range, make_selection(rank, device, steps, time), parse_stream_map(stream))
    with report_progress() as progress:
        found = look_up_gaps(file, options, progress).gaps(top)
    if rows is not None:
        from wallscope.views.brief_listings import describe_gaps_table  # noqa: PLC0415  # only when asked for

        frame = frame_gaps(found)
        show_table_brief("gaps", file, frame, (csv, json), rows=rows, verdict=describe_gaps_table(frame))
        return
    write_table(frame_gaps(found), (csv, json), render_sections(build_gaps(found)))


def at(  # noqa: PLR0913  # options are parameters
    file: Export,
    time: Moment,
    *,
    step_range: StepRange = None,
    stream: Streams = None,
    rank: Rank = None,
    device: Device = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """Show what each rank did at one moment, and why."""
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.preparation import look_up_gaps  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_section  # noqa: PLC0415
    from wallscope.views.sections.steps import build_moments  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    at_ns = parse_moment(time)
    options = Options(None, step_range, make_selection(rank, device, None, None), parse_stream_map(stream))
    with report_progress() as progress:
        found = look_up_gaps(file, options, progress).moments(at_ns)
    if rows is not None:
        from wallscope.views.brief_listings import brief_moments  # noqa: PLC0415  # only when asked for

        show_brief(brief_moments(found, str(file), at_ns, rows), None)
        return
    print_out(render_section(build_moments(found, at_ns)))


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
    from wallscope.kineto.any_capture import read_any_capture  # noqa: PLC0415
    from wallscope.model.capture_columns import CAPTURE_TABLES  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.data import frame_capture, write_tables  # noqa: PLC0415

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

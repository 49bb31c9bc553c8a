"""`wallscope steps`, `wallscope kernels`, `wallscope ranges`: the tables behind the answer."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.analyze import Export, KernelRules, StepRange, Verbose
from wallscope.cli.output import check_output, print_out, write_whole
from wallscope.cli.progress import reported, talkative
from wallscope.cli.selection import Device, Rank, Steps, Time, selection

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from wallscope.analysis import Options
    from wallscope.render.tables import Column
    from wallscope.walls.accounting import Divided

Csv = Annotated[
    Path | None, typer.Option("--csv", metavar="FILE", help="Write all rows as CSV; - is standard output.")
]
Json = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Write all rows as JSON; - is standard output.")
]


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
    verbose: Verbose = False,
) -> None:
    """List the steps: when each began, its device budget, and why it does not count as steady."""
    from wallscope.analysis import Options  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.tables import STEPS  # noqa: PLC0415
    from wallscope.walls.tables import step_table  # noqa: PLC0415

    options = Options(None, step_range, selection(rank, device, steps, time))
    _show(file, options, step_table, STEPS, (csv, json), verbose=verbose)


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
    verbose: Verbose = False,
) -> None:
    """List the kernels of the typical step: what they are, how often they run, how long."""
    from wallscope.analysis import Options  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.tables import KERNELS  # noqa: PLC0415
    from wallscope.walls.tables import kernel_table  # noqa: PLC0415

    options = Options(kernels, step_range, selection(rank, device, steps, time))
    _show(file, options, kernel_table, KERNELS, (csv, json), verbose=verbose)


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
    verbose: Verbose = False,
) -> None:
    """List the NVTX ranges of the typical step: time on the host, time on the device, inclusive and alone."""
    from wallscope.analysis import Options  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.tables import RANGES  # noqa: PLC0415
    from wallscope.walls.tables import range_table  # noqa: PLC0415

    options = Options(None, step_range, selection(rank, device, steps, time))
    _show(file, options, range_table, RANGES, (csv, json), verbose=verbose)


def _show(  # noqa: PLR0913  # what three commands share
    file: Path,
    options: "Options",
    made: "Callable[[Divided], pl.DataFrame]",
    columns: "tuple[Column, ...]",
    targets: tuple[Path | None, Path | None],
    *,
    verbose: bool,
) -> None:
    from wallscope.analysis import divide  # noqa: PLC0415  # keeps --help fast
    from wallscope.render import tables  # noqa: PLC0415

    talkative(verbose=verbose)
    csv, json = targets
    for target in targets:
        check_output(target, inputs=(file, options.kernels))
    with reported() as progress:
        divided, _ = divide(file, options, progress)
        frame = made(divided)
    if csv is not None:
        write_whole(csv, tables.csv(frame))
    if json is not None:
        write_whole(json, tables.rows_as_json(frame))
    if "-" not in {str(csv), str(json)}:
        print_out(tables.table(frame, columns))

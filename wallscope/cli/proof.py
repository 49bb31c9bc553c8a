"""`wallscope gaps` and `wallscope at`: what bound the device, to be checked in Nsight's timeline."""

from typing import Annotated

import typer

from wallscope.cli.analyze import Export, StepRange, Streams, Verbose, stream_map
from wallscope.cli.output import print_out
from wallscope.cli.progress import reported, talkative
from wallscope.cli.selection import Device, Rank, Steps, Time, moment_ns, selection
from wallscope.cli.tables import Csv, Json, check_targets, deliver

Top = Annotated[
    int, typer.Option("--top", metavar="N", min=1, max=100_000, help="How many gaps of each rank.")
]
Moment = Annotated[
    str,
    typer.Argument(metavar="TIME", help="Seconds of the session as Nsight shows them, or with ns, us, ms."),
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
    verbose: Verbose = False,
) -> None:
    """List the longest gaps without compute: what bound each, what ended it, where to find it in Nsight."""
    from wallscope.analysis import Options, proven  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.sections.timeline import build_gaps, frame_gaps  # noqa: PLC0415

    talkative(verbose=verbose)
    check_targets((csv, json), inputs=(file,))
    options = Options(None, step_range, selection(rank, device, steps, time), stream_map(stream))
    with reported() as progress:
        found = proven(file, options, progress).gaps(top)
    deliver(frame_gaps(found), (csv, json), render_sections(build_gaps(found)))


def at(  # noqa: PLR0913  # options are parameters
    file: Export,
    time: Moment,
    *,
    step_range: StepRange = None,
    stream: Streams = None,
    rank: Rank = None,
    device: Device = None,
    verbose: Verbose = False,
) -> None:
    """Tell what every rank did at one moment, who pays for it, and the chain that it is part of."""
    from wallscope.analysis import Options, proven  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.grids import render_section  # noqa: PLC0415
    from wallscope.views.sections.timeline import build_moments  # noqa: PLC0415

    talkative(verbose=verbose)
    at_ns = moment_ns(time)
    options = Options(None, step_range, selection(rank, device, None, None), stream_map(stream))
    with reported() as progress:
        found = proven(file, options, progress).moments(at_ns)
    print_out(render_section(build_moments(found, at_ns)))

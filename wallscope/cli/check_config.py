"""`wallscope check-config`: a run's configuration alone."""

from pathlib import Path
from typing import Annotated

import typer

from wallscope.cli.output import check_output, print_out, write_whole

Configuration = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A Megatron Bridge YAML, a Megatron-LM argument list or log, or TOML of `name = value`.",
    ),
]
Hardware = Annotated[
    str | None, typer.Option(metavar="NAME", help="The GPU: a100, h100, h200, b200, b300, gb200 or gb300.")
]


def check_config(
    file: Configuration,
    *,
    hardware: Hardware = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the check as JSON; - is standard output.")
    ] = None,
) -> None:
    """Say what would stop a run, or silently do nothing, before it starts; exit code 1 if it would stop."""
    from wallscope.advice.configuration import read_configuration  # noqa: PLC0415  # keeps --help fast
    from wallscope.advice.preconditions import check_configuration  # noqa: PLC0415
    from wallscope.advice.published import find_machine  # noqa: PLC0415
    from wallscope.model.configuration import TraceFacts  # noqa: PLC0415
    from wallscope.render.document import document  # noqa: PLC0415
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.plans import build_check  # noqa: PLC0415

    check_output(json, inputs=(file,))
    machine_facts = find_machine(hardware).facts() if hardware is not None else TraceFacts()
    read = read_configuration(file)
    found = check_configuration(read.configuration, machine_facts, read.findings)
    if json is not None:
        write_whole(json, document(found))
    if json is None or str(json) != "-":
        print_out(render_sections(build_check(found, file.name)))
    if found.stops:
        raise typer.Exit(1)

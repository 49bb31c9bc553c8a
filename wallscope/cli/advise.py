"""`wallscope advise`: a plan without a trace."""

from pathlib import Path
from typing import Annotated

import typer

from wallscope.cli.output import check_output, print_out, write_whole


def advise(  # noqa: PLR0913  # options are parameters
    *,
    model: Annotated[str, typer.Option(metavar="NAME", help="The model family, such as deepseek-v3.")],
    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="How many GPUs the job has.")],
    hardware: Annotated[str, typer.Option(metavar="NAME", help="The GPU: h100, b200, gb200, gb300, …")],
    seq_length: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000_000, help="Tokens of a sequence.")
    ] = 4_096,
    precision: Annotated[str, typer.Option(metavar="NAME", help="One of bf16, fp8, mxfp8, nvfp4.")] = "bf16",
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES", help="Parallel sizes, as tp4,cp2,pp4,ep64; those left out are proposed."
        ),
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Sequences of a step, to work out accumulation.")
    ] = None,
    micro_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences of a micro-batch.")] = 1,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan as JSON; - is standard output.")
    ] = None,
) -> None:
    """Plan a run without a trace: a layout that can be, and what to do first, next and last."""
    from wallscope.advice.parallel_layout import parse_sizes  # noqa: PLC0415
    from wallscope.advice.plan import PRECISIONS, PlanRequest, plan_run  # noqa: PLC0415
    from wallscope.advice.published import find_machine, find_model  # noqa: PLC0415
    from wallscope.errors import OptionError  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.document import document  # noqa: PLC0415
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.plans import build_advice  # noqa: PLC0415

    check_output(json, inputs=())
    if precision not in PRECISIONS:
        raise OptionError(f"--precision {precision} — is not known — name one of {', '.join(PRECISIONS)}")
    plan = plan_run(
        PlanRequest(
            find_model(model),
            find_machine(hardware),
            gpus,
            seq_length,
            precision,
            parse_sizes(layout),
            global_batch,
            micro_batch,
        )
    )
    if json is not None:
        write_whole(json, document(plan))
    if json is None or str(json) != "-":
        print_out(render_sections(build_advice(plan)))

"""`wallscope whatif`: what changes of the work of a step would gain."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import (
    Device,
    Export,
    KernelRules,
    Logs,
    Rank,
    ReadBy,
    StepRange,
    Steps,
    Streams,
    Time,
    UnprofiledStep,
    Verbose,
    make_selection,
    make_step_facts,
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
from wallscope.cli.recorded import add_recorded_facts
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from wallscope.model.whatif import Question, QuestionKind

_MOST_SHARE = 1_000.0
CHANGES = "Changes"
"""Group of options in `--help`."""
Scale = Annotated[
    list[str] | None,
    typer.Option(
        "--scale",
        metavar="TARGET=K",
        rich_help_panel=CHANGES,
        help="Multiply the time of TARGET by K; 0 removes it. Targets: communication, communication:ep,"
        " collective:all-to-all, copies, compute, category:gemm, launch (calls and latency), think (host time"
        " outside CUDA calls). A cause as analyze names it is a target too, such as host/data-loading; think"
        " holds no time that has another cause. Repeatable.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="WHAT",
        rich_help_panel=CHANGES,
        help="Remove WHAT: `allocator` (its CUDA calls), `synchronisation` (waits of the host), `recompute`,"
        " `offload` (copies), `jitter` (each communication operation takes its median time), or any cause as"
        " analyze names it. Repeatable.",
    ),
]
GraphRange = Annotated[
    list[str] | None,
    typer.Option(
        "--graph",
        metavar="RANGE",
        rich_help_panel=CHANGES,
        help="Replace the launches in NVTX ranges of this name by CUDA graphs. Repeatable.",
    ),
]
Hide = Annotated[
    list[str] | None,
    typer.Option(
        "--hide",
        metavar="TARGET",
        rich_help_panel=CHANGES,
        help="Hide this communication or these copies (offload, or their cause) fully behind other work."
        " Repeatable.",
    ),
]
Overlap = Annotated[
    list[str] | None,
    typer.Option(
        "--overlap",
        metavar="TARGET",
        rich_help_panel=CHANGES,
        help="Move this communication to a stream of its own; event waits stay. Repeatable.",
    ),
]
Sweep = Annotated[
    str | None,
    typer.Option(
        "--sweep",
        metavar="TARGET=K,K,…",
        rich_help_panel=CHANGES,
        help="Replay --scale with several values of K, one at a time.",
    ),
]
_WRITE = {"--scale": "write --scale communication=0.5", "--sweep": "write --sweep communication=1,0.5,0"}


def whatif(  # noqa: PLR0913  # options are parameters
    file: Export,
    *,
    scale: Scale = None,
    without: Without = None,
    graph: GraphRange = None,
    hide: Hide = None,
    overlap: Overlap = None,
    sweep: Sweep = None,
    interference: Annotated[
        bool,
        typer.Option(
            "--interference/--no-interference",
            help="Slow down compute that newly overlaps communication, as measured in this capture.",
        ),
    ] = True,
    accept_error: Annotated[
        float,
        typer.Option(
            "--accept-error",
            metavar="PERCENT",
            min=0,
            help="Refuse to answer if the leave-one-out error of the replay is larger.",
        ),
    ] = 5.0,
    json: Annotated[Path | None, declare_target("Write the results as JSON; - is standard output.")] = None,
    html: Annotated[Path | None, declare_target("Write one offline HTML page; - is standard output.")] = None,
    kernels: KernelRules = None,
    step_range: StepRange = None,
    stream: Streams = None,
    rank: Rank = None,
    device: Device = None,
    steps: Steps = None,
    time: Time = None,
    unprofiled_step_ms: UnprofiledStep = None,
    log: Logs = None,
    reader: ReadBy = "pages",
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    verbose: Verbose = False,
) -> None:
    """Replay a step with changes to see what they would gain.

    Each change is replayed alone, then all of them together. Without a change, wallscope replays the step
    without each loss (communication, launches, copies, …), and with each kind of compute at half its time.
    """
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.model.enums import Reader  # noqa: PLC0415
    from wallscope.model.whatif import Asked  # noqa: PLC0415
    from wallscope.pipeline import ask_what_if  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.data import write_json  # noqa: PLC0415
    from wallscope.views.whatif import render_whatif  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    for target in (json, html):
        check_output(target, inputs=(file, kernels, *(log or ())))
    check_different({"--json": json, "--html": html})
    questions = (
        *(_parse_scale(text, "--scale") for text in scale or ()),
        *_parse_names("without", without),
        *_parse_names("graph", graph),
        *_parse_names("hide", hide),
        *_parse_names("overlap", overlap),
    )
    request = Asked(questions, _parse_sweep(sweep), interference, accept_error / 100)
    options = Options(
        kernels,
        step_range,
        make_selection(rank, device, steps, time),
        parse_stream_map(stream),
        step_facts=make_step_facts(unprofiled_step_ms, None, None, log),
        reader=Reader(reader),
    )
    options = add_recorded_facts((file,), options)
    with report_progress() as progress:
        found = ask_what_if(file, options, request, progress)
    is_printed = "-" not in {str(json), str(html)}
    if rows is not None:
        from wallscope.views.brief import brief_whatif  # noqa: PLC0415  # only when asked for

        show_brief(brief_whatif(found, str(file), rows), json, is_printed=is_printed)
    elif is_printed:
        print_out(render_whatif(found))
    if json is not None and rows is None:
        write_file(json, write_json(found))
    if html is not None:
        from wallscope.views.whatif import write_whatif_page  # noqa: PLC0415  # keeps the others fast

        write_file(html, write_whatif_page(found))


def _parse_names(kind: "QuestionKind", targets: list[str] | None) -> "Iterator[Question]":
    from wallscope.model.whatif import Question  # noqa: PLC0415  # keeps --help fast

    for target in targets or ():
        yield Question(kind, target)


def _parse_scale(text: str, option: str) -> "Question":
    """A target and its factor, from `target=factor`."""
    from wallscope.model.whatif import Question  # noqa: PLC0415  # keeps --help fast

    target, _, factor = text.rpartition("=")
    share = _parse_share(factor)
    if not target or share is None:
        raise OptionError(f"{option} {text} — is not TARGET=K with a K of 0 or more — {_WRITE[option]}")
    return Question("scale", target, share)


def _parse_sweep(text: str | None) -> "tuple[Question, ...]":
    if text is None:
        return ()
    target, equals, factors = text.rpartition("=")
    if not equals:
        raise OptionError(f"--sweep {text} — is not TARGET=K,K,… — {_WRITE['--sweep']}")
    return tuple(_parse_scale(f"{target}={factor}", "--sweep") for factor in factors.split(","))


def _parse_share(text: str) -> float | None:
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 <= share <= _MOST_SHARE else None

"""`wallscope advise`, `check-config`, `explain`, `capture-help`: help that needs no step times."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from wallscope.cli.diff import FAILED, GateFailure
from wallscope.cli.options import NoCache, Verbose, open_cache
from wallscope.cli.output import IsBrief, MaxRows, check_output, count_rows, print_out, show_brief, write_file
from wallscope.cli.streams import is_talkative, report_progress

if TYPE_CHECKING:
    from wallscope.model.advice import Framework
    from wallscope.model.capture import Finding


def advise(  # noqa: PLR0913  # options are parameters
    *,
    model: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The model family, such as deepseek-v3, or a file: config.json, YAML, arguments.",
        ),
    ],
    gpus: Annotated[int, typer.Option(metavar="N", min=1, max=1_000_000, help="Number of GPUs of the job.")],
    hardware: Annotated[str, typer.Option(metavar="NAME", help="The GPU: h100, b200, gb200, gb300, …")],
    seq_length: Annotated[
        int, typer.Option(metavar="N", min=1, max=100_000_000, help="Tokens per sequence.")
    ] = 4_096,
    precision: Annotated[
        str, typer.Option(metavar="NAME", help="One of bf16, fp16, fp8, mxfp8, nvfp4.")
    ] = "bf16",
    layout: Annotated[
        str | None,
        typer.Option(
            metavar="SIZES",
            help="Parallel sizes, such as tp4,cp2,pp4,vpp2,ep64. Sizes that are left out are proposed.",
        ),
    ] = None,
    global_batch: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Sequences per step, to compute gradient accumulation."),
    ] = None,
    micro_batch: Annotated[int, typer.Option(metavar="N", min=1, help="Sequences per micro-batch.")] = 1,
    gradients: Annotated[
        Literal["bf16", "fp32"] | None,
        typer.Option(help="Precision of gradients. Default: as in the published run, else fp32."),
    ] = None,
    image_tokens: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="Tokens of a sequence that come from images, at most. Default: half."
        ),
    ] = None,
    freeze_vision: Annotated[
        bool, typer.Option("--freeze-vision", help="Vision tower and projectors are not trained.")
    ] = False,
    settings: Annotated[
        Literal["yaml", "arguments"] | None,
        typer.Option(
            "--as",
            help="Print the plan alone, as YAML of Megatron Bridge or as arguments of Megatron-LM.",
        ),
    ] = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the plan as JSON; - is standard output.")
    ] = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
) -> None:
    """Plan a run without a trace: layout, memory, checklist."""
    from wallscope.advice.model_files import read_model  # noqa: PLC0415
    from wallscope.advice.parallel_layout import parse_sizes  # noqa: PLC0415
    from wallscope.advice.plan import PRECISIONS, PlanRequest, plan_run  # noqa: PLC0415
    from wallscope.advice.published import find_machine  # noqa: PLC0415
    from wallscope.errors import OptionError  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.data import write_json  # noqa: PLC0415
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_advice  # noqa: PLC0415

    rows = count_rows(brief=brief, max_rows=max_rows)
    check_output(json, inputs=())
    if precision not in PRECISIONS:
        raise OptionError(f"--precision {precision} — is not known — name one of {', '.join(PRECISIONS)}")
    family, shape = read_model(model)
    if (image_tokens is not None or freeze_vision) and not family.vision:
        option = "--freeze-vision" if freeze_vision else "--image-tokens"
        raise OptionError(f"{option} — {family.id} has no vision tower — leave it out")
    plan = plan_run(
        PlanRequest(
            family,
            find_machine(hardware),
            gpus,
            seq_length,
            precision,
            parse_sizes(layout),
            global_batch,
            micro_batch,
            shape,
            None if gradients is None else gradients == "bf16",
            image_tokens,
            freeze_vision,
        )
    )
    if settings is not None:
        write_file(Path("-"), plan.bridge if settings == "yaml" else plan.arguments)
        return
    if rows is not None:
        from wallscope.views.brief_listings import brief_plan  # noqa: PLC0415  # only when asked for

        show_brief(brief_plan(plan, rows), json)
        return
    if str(json) != "-":
        print_out(render_sections(build_advice(plan)))
    if json is not None:
        write_file(json, write_json(plan))


Configuration = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A Megatron Bridge YAML, a Megatron-LM argument list or log, or TOML of `name = value`.",
    ),
]
Hardware = Annotated[
    str | None, typer.Option(metavar="NAME", help="The GPU: a100, h100, h200, b200, b300, gb200, gb300, …")
]


def check_config(
    file: Configuration,
    *,
    hardware: Hardware = None,
    json: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the check as JSON; - is standard output.")
    ] = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
) -> None:
    """Check a configuration before the run starts.

    Reports settings that stop the run and settings that have no effect. Exit code 1 if one stops the run.
    """
    from wallscope.advice.configuration import read_configuration  # noqa: PLC0415  # keeps --help fast
    from wallscope.advice.configuration_text import read_text  # noqa: PLC0415
    from wallscope.advice.preconditions import check_configuration, quote_stops  # noqa: PLC0415
    from wallscope.advice.published import find_machine  # noqa: PLC0415
    from wallscope.model.advice import TraceFacts  # noqa: PLC0415
    from wallscope.render.data import write_json  # noqa: PLC0415
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_check  # noqa: PLC0415

    rows = count_rows(brief=brief, max_rows=max_rows)
    check_output(json, inputs=(file,))
    machine_facts = find_machine(hardware).facts() if hardware is not None else TraceFacts()
    read = read_configuration(file, with_defaults=True)
    found = check_configuration(read.configuration, machine_facts, read.findings, read.form)
    if rows is not None:
        from wallscope.views.brief_listings import brief_check  # noqa: PLC0415  # only when asked for

        show_brief(brief_check(found, str(file), rows), json)
    if rows is None and str(json) != "-":
        quoted = quote_stops(read_text(file), file.name, found, read.configuration)
        print_out(render_sections(build_check(found, file.name, quoted, has_machine=hardware is not None)))
    if json is not None and rows is None:
        write_file(json, write_json(found))
    if found.stop_count:
        raise GateFailure(FAILED)


BriefJson = Annotated[
    Path | None,
    typer.Option(
        "--json", metavar="FILE", help="Write the answer as JSON, as --brief has it; - is standard output."
    ),
]


def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="WORD", help="A term, cause, fix, finding or wall, such as slack; without it: all topics."
        ),
    ] = None,
    *,
    all_words: Annotated[bool, typer.Option("--list", help="List every word that can be explained.")] = False,
    json: BriefJson = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
) -> None:
    """Explain a term, cause, fix or finding.

    Without WORD, list the topics.
    """
    from wallscope.advice.explain import explain_word  # noqa: PLC0415  # keeps --help fast
    from wallscope.advice.word_search import list_topics, outline_topics  # noqa: PLC0415
    from wallscope.errors import OptionError  # noqa: PLC0415
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_explanation  # noqa: PLC0415

    if words and all_words:
        raise OptionError("explain — takes a word or --list, not both — write `wallscope explain slack`")
    rows = count_rows(brief=brief, max_rows=max_rows)
    check_output(json, inputs=())
    topics = list_topics if all_words else outline_topics
    found = explain_word(" ".join(words)) if words else topics()
    if rows is not None or json is not None:
        from wallscope.model.brief import MOST_ROWS_COUNT  # noqa: PLC0415  # only when asked for
        from wallscope.views.brief_listings import brief_explanation  # noqa: PLC0415  # same

        show_brief(brief_explanation(found, rows or MOST_ROWS_COUNT), json, is_printed=rows is not None)
    if rows is None and str(json) != "-":
        print_out(render_sections(build_explanation(found)))


def capture_help(  # noqa: PLR0913  # options are parameters
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="An export: lists what limits its analysis, and marks the flags that remove these limits.",
        ),
    ] = None,
    *,
    profiler: Annotated[
        Literal["nsys", "torch"] | None,  # those of `Profiler`
        typer.Option(help="The profiler to capture with. Default: that of FILE, else nsys."),
    ] = None,
    json: BriefJson = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Show how to capture a run with nsys or PyTorch.

    Prints the command or the code, and the settings of the framework. The command has the options that the
    installed nsys takes; `wallscope capture` runs it for you.
    """
    from wallscope.capture.nsys_program import ask_nsys  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.answers import load_limits  # noqa: PLC0415  # same
    from wallscope.kineto.trace_bytes import is_torch_trace  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.capture_help import build_capture_help, build_torch_capture_help  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    check_output(json, inputs=(file,))
    if profiler is None:
        profiler = "torch" if file is not None and is_torch_trace(file) else "nsys"
    build = build_torch_capture_help if profiler == "torch" else build_capture_help
    nsys = None if profiler == "torch" else ask_nsys()
    findings: tuple[Finding, ...] = ()
    framework: Framework | None = None
    if file is not None:
        with report_progress() as progress:
            findings, framework = load_limits(file, progress, open_cache(refused=no_cache))
    if rows is not None or json is not None:
        from wallscope.model.brief import MOST_ROWS_COUNT  # noqa: PLC0415  # only when asked for
        from wallscope.model.capture import Profiler  # noqa: PLC0415  # same
        from wallscope.views.brief_listings import brief_capture_help  # noqa: PLC0415  # same

        named = None if file is None else str(file)
        found = brief_capture_help(Profiler(profiler), named, findings, rows or MOST_ROWS_COUNT, nsys)
        show_brief(found, json, is_printed=rows is not None)
    if rows is None and str(json) != "-":
        named = None if file is None else file.name
        print_out(render_sections(build(named, findings, framework, nsys)))

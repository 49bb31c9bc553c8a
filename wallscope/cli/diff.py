"""`wallscope diff` and its gates: whether one side is slower than the other, and why."""

import re
import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import (
    KernelRules,
    NoCache,
    StepRange,
    Streams,
    Tokens,
    Verbose,
    make_step_facts,
    open_cache,
    parse_stream_map,
)
from wallscope.cli.output import (
    OUTPUT,
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
from wallscope.cli.store_options import (
    Labels,
    StorePlace,
    folder_of_store,
    load_sides,
    open_store,
    parse_commit_range,
    parse_labels,
)
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.errors import OptionError
from wallscope.user_files import read_user_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from wallscope.cache_folder import Cache
    from wallscope.compare.compare import Side
    from wallscope.compare.gates import Gate
    from wallscope.model.analysis import Analysis
    from wallscope.model.capture import Options
    from wallscope.model.comparison import GateResult
    from wallscope.model.profile import Profile


FAILED = 1
_MOST_GATES_BYTES = 1 << 16  # some 3,000 gates
COMPARISON = "Comparison"
"""A group of options in `--help`."""


class GateFailure(SystemExit):
    """The only way out with 1: a gate that the user set failed."""


FailOn = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="GATE",
        rich_help_panel=COMPARISON,
        help="Exit with 1 if an increase is above a limit: step>3%, mean>3%, p90>5%, slow-steps>2,"
        " communication>5% (of the step), host/framework>2ms. Repeatable.",
    ),
]
Gates = Annotated[
    Path | None,
    typer.Option(
        "--gates",
        metavar="FILE",
        rich_help_panel=COMPARISON,
        help="File of gates, one per line; # starts a comment.",
    ),
]


def read_gates(texts: list[str] | None, file: Path | None = None) -> "tuple[Gate, ...]":
    """The gates that the options name, those of the file last.

    Raises:
        OptionError: one cannot be read, or the file cannot.
    """
    if not texts and file is None:
        return ()
    from wallscope.compare.gates import parse_gate  # noqa: PLC0415  # keeps --help fast

    lines: list[str] = []
    if file is not None:
        text = read_user_text(
            file, _MOST_GATES_BYTES, "give --gates a text file with a gate per line", OptionError
        )
        lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return (
        *map(parse_gate, texts or []),
        *(parse_gate(line, f"--gates {file}, line {row}") for row, line in enumerate(lines, 1) if line),
    )


def fail(found: "tuple[GateResult, ...]") -> None:
    """Exit with 1 if a gate failed, with a line each on standard error."""
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast

    failed = [gate for gate in found if not gate.held]
    for gate in failed:
        sys.stderr.write(f"wallscope: gate {gate.gate} failed: {visible(gate.evidence, most=500)}\n")
    if failed:
        raise GateFailure(FAILED)


def judge(gates: "tuple[Gate, ...]", analysis: "Analysis") -> None:
    """Exit with 1 if the typical step of an answer is past a gate.

    Raises:
        OptionError: a gate needs two sides to compare.
    """
    if not gates:
        return
    from wallscope.compare.gates import evaluate_gates_alone  # noqa: PLC0415  # keeps --help fast

    fail(evaluate_gates_alone(gates, analysis))


def diff(  # noqa: PLR0913  # options are parameters
    base: Annotated[
        str,
        typer.Argument(
            metavar="BASE",
            help="An export, a JSON answer of analyze, or a folder or pattern of these. With --store also a"
            " recorded commit; A..B, without HEAD, compares commits A and B.",
        ),
    ],
    head: Annotated[
        str | None, typer.Argument(metavar="HEAD", help="The same for the run after the change.")
    ] = None,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[BASE HEAD]...", help="More pairs, with --paired.")
    ] = None,
    *,
    paired: Annotated[
        bool,
        typer.Option(
            "--paired",
            rich_help_panel=COMPARISON,
            help="Compare runs pair by pair, captured in turn: base1 head1 base2 head2.",
        ),
    ] = False,
    fail_on: FailOn = None,
    gates: Gates = None,
    margin: Annotated[
        str,
        typer.Option(
            metavar="PERCENT",
            rich_help_panel=COMPARISON,
            help="A step change up to this size counts as no change.",
        ),
    ] = "2%",
    store: StorePlace = None,
    label: Labels = None,
    rank: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=COMPARISON,
            help="Compare this rank. Default: of the ranks that all runs have, the one that analyze shows for"
            " most runs.",
        ),
    ] = None,
    override: Annotated[
        bool,
        typer.Option(
            "--override",
            rich_help_panel=COMPARISON,
            help="Give a verdict although the runs are not comparable.",
        ),
    ] = False,
    json: Annotated[
        Path | None, declare_target("Write the comparison as JSON; - is standard output.")
    ] = None,
    markdown: Annotated[
        Path | None, declare_target("Write the comparison as Markdown; - is standard output.")
    ] = None,
    html: Annotated[
        Path | None, declare_target("Write the comparison as one HTML page that works offline.")
    ] = None,
    junit: Annotated[
        Path | None, declare_target("Write the gates as JUnit XML; - is standard output.")
    ] = None,
    kernels: KernelRules = None,
    step_range: StepRange = None,
    stream: Streams = None,
    tokens_per_step: Tokens = None,
    head_tokens_per_step: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            rich_help_panel=COMPARISON,
            help="Tokens per step of HEAD, if they differ from those of BASE.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", rich_help_panel=OUTPUT, help="Print all causes, operations and ranks.")
    ] = False,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Compare two runs: slower or faster, how surely, and why.

    The change of the step has a 95 % interval. The changes of compute, communication, memory, host and
    unattributed time sum to that of the step, and so do those of their causes. Settings and versions that
    differ are listed with the operations whose change they explain.
    """
    from wallscope.compare.compare import CompareOptions, compare_sides, require_comparable  # noqa: PLC0415
    from wallscope.jobs.inputs import find_captures  # noqa: PLC0415
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.render.data import write_json  # noqa: PLC0415
    from wallscope.views import comparison as views  # noqa: PLC0415
    from wallscope.views.comparison_statement import add_opening  # noqa: PLC0415

    is_talkative(verbose=verbose)
    rows = count_rows(brief=brief, max_rows=max_rows)
    compare_options = CompareOptions(
        rank=rank,
        margin_ratio=_margin(margin),
        overridden=override,
        gates=read_gates(fail_on, gates),
        is_paired=paired,
    )
    texts = _split_pairs((base, head, *(more or ())), paired=paired, is_stored=store is not None)
    commits = parse_commit_range(base) if head is None else None
    if head is None and commits is None:
        raise OptionError(f"{base} — is one side — name the other too, or commits as main..HEAD")
    ends = commits or (base, str(head))
    stored = commits is not None or store is not None
    named = () if stored else tuple(tuple(chain(*map(find_captures, side))) for side in texts)
    place = open_store(store) if stored else None
    kept_in = folder_of_store(place) if place is not None else None
    for target in (json, markdown, html, junit):
        check_output(target, inputs=(*(path for paths in named for path in paths), kernels, gates, kept_in))
    check_different({"--json": json, "--markdown": markdown, "--html": html, "--junit": junit})
    tokens = (tokens_per_step, head_tokens_per_step or tokens_per_step)
    options = [
        Options(
            kernels,
            step_range,
            streams=parse_stream_map(stream),
            step_facts=make_step_facts(None, count, None),
        )
        for count in tokens
    ]
    kept = open_cache(refused=no_cache)
    with report_progress() as progress:
        if place is not None:
            sides = load_sides(place, *ends, parse_labels(label))
        else:
            read = [
                _read_side(side, own, progress, kept, paired=paired)
                for side, own in zip(texts, options, strict=True)
            ]
            sides = (read[0], read[1])
        found = add_opening(compare_sides(*sides, compare_options))
    is_printed = "-" not in {str(json), str(markdown), str(html), str(junit)}
    if rows is not None:
        from wallscope.views.brief import brief_comparison  # noqa: PLC0415  # only when asked for

        show_brief(brief_comparison(found, ends, rows), json, is_printed=is_printed)
    elif is_printed:
        head_text = texts[1][0] if len(texts[1]) == 1 and not stored else ""
        print_out(views.render_comparison(found, full=full, named=head_text))
    if json is not None and rows is None:
        write_file(json, write_json(found))
    if markdown is not None:
        write_file(markdown, views.write_comparison_markdown(found))
    if html is not None:
        from wallscope.compare.compare import comparison_report  # noqa: PLC0415  # only the page needs it

        write_file(html, views.write_comparison_page(comparison_report(found, *sides, compare_options.rank)))
    if junit is not None:
        write_file(junit, views.write_comparison_junit(found))
    require_comparable(found, compare_options.gates)
    fail(found.gates)


def _split_pairs(
    given: tuple[str | None, ...], *, paired: bool, is_stored: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what the arguments name of each side.

    Raises:
        OptionError: there is a third side, or a run without its partner.
    """
    texts = tuple(text for text in given if text is not None)
    if not paired and len(texts) > 2:
        raise OptionError(f"{texts[2]} — is a third side — name two, or pairs of runs with --paired")
    if paired and is_stored:
        raise OptionError("--paired — compares captures, not commits — leave out --store")
    if paired and (len(texts) < 4 or len(texts) % 2):
        raise OptionError(
            "--paired — needs two or more pairs — write --paired base1 head1 base2 head2, captured in turn"
        )
    return texts[0::2], texts[1::2]


def _read_side(
    texts: tuple[str, ...],
    options: "Options",
    progress: "Callable[[str], None]",
    kept: "Cache | None",
    *,
    paired: bool,
) -> "Side":
    """Read the runs of a side; with `paired` each text names one.

    Raises:
        OptionError: one of a pair names several runs.
    """
    from wallscope.compare.compare import Side  # noqa: PLC0415  # keeps --help fast
    from wallscope.jobs.inputs import find_captures, resolve_runs  # noqa: PLC0415

    runs: list[tuple[Profile, ...]] = []
    for text in texts:
        found = resolve_runs(find_captures(text), options, progress, kept)
        if paired and len(found) != 1:
            raise OptionError(f"{text} — holds {len(found)} runs — with --paired name one run each")
        runs += found
    return Side(
        _shorten_path(texts[0]) if len(texts) == 1 else ", ".join(map(_shorten_path, texts)), tuple(runs)
    )


def _shorten_path(named: str) -> str:
    return Path(named).name or named


def _margin(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", text)
    if found is None or not float(found[1]) < 100:
        raise OptionError(f"--margin {text} — is not a share below 100 % — write --margin 2%")
    return float(found[1]) / 100

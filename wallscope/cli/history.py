"""`wallscope record`, `history` and `bisect`: runs kept under their commit, and times by commit."""

import os
import sys
import time
from enum import StrEnum
from itertools import chain
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import (
    Configuration,
    KernelRules,
    NoCache,
    StepRange,
    Streams,
    Tokens,
    Tracker,
    Verbose,
    make_step_facts,
    open_cache,
    parse_stream_map,
)
from wallscope.cli.output import IsBrief, MaxRows, count_rows, show_brief
from wallscope.cli.store_options import (
    RECORDS,
    Labels,
    StorePlace,
    count_commits,
    find_commit,
    folder_of_store,
    is_pull_request,
    list_commits,
    open_store,
    parse_commit_range,
    parse_labels,
    warn_of_unreadable,
)
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.cli.tables import Csv, Json, check_targets, write_table
from wallscope.errors import OptionError, StoreError
from wallscope.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.model.analysis import PackedProfile
    from wallscope.model.ledger import AppliedEntry
    from wallscope.model.profile import Profile, Record
    from wallscope.store import Store


SENDING = "Sending"
"""A group of options in `--help`."""
_PROJECT = "wallscope"


class Form(StrEnum):
    """How `history` prints its rows."""

    JSON = "json"
    CSV = "csv"
    OPENMETRICS = "openmetrics"
    OTLP = "otlp"


def record(  # noqa: PLR0913  # options are parameters
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Exports, JSON answers of analyze, or folders or patterns of these."
        ),
    ],
    *,
    commit: Annotated[
        str,
        typer.Option(
            metavar="SHA", rich_help_panel=RECORDS, help="The commit that ran: any name that git resolves."
        ),
    ],
    label: Labels = None,
    store: StorePlace = None,
    keep: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            rich_help_panel=RECORDS,
            help="Remove all but the newest N commits of this testbed.",
        ),
    ] = None,
    pull_request: Annotated[
        bool | None,
        typer.Option(
            "--pull-request/--no-pull-request",
            rich_help_panel=RECORDS,
            help="Mark the runs as those of a pull request, which are never a base. Default: recognized from"
            " the environment of the CI job.",
            show_default=False,
        ),
    ] = None,
    kernels: KernelRules = None,
    config: Configuration = None,
    step_range: StepRange = None,
    stream: Streams = None,
    tokens_per_step: Tokens = None,
    no_cache: NoCache = False,
    verbose: Verbose = False,
) -> None:
    """Store the profiles of a run under its commit."""
    from wallscope.jobs.inputs import find_captures, resolve_runs  # noqa: PLC0415
    from wallscope.model.capture import Options  # noqa: PLC0415
    from wallscope.model.profile import CONFIGURATION, PULL_REQUEST  # noqa: PLC0415
    from wallscope.render.texts import visible  # noqa: PLC0415

    is_talkative(verbose=verbose)
    labels = parse_labels(label)
    if CONFIGURATION in labels:
        raise OptionError(
            f"--label {CONFIGURATION}=… — the runs define it — leave it out, or use another name"
        )
    place = open_store(store)
    named = tuple(dict.fromkeys(path for run in runs for path in find_captures(run)))
    options = Options(
        kernels,
        step_range,
        streams=parse_stream_map(stream),
        step_facts=make_step_facts(None, tokens_per_step, None),
        configuration=config,
    )
    with report_progress() as progress:
        found = resolve_runs(named, options, progress, open_cache(refused=no_cache))
    is_marked = is_pull_request(os.environ) if pull_request is None else pull_request
    origin = PULL_REQUEST if is_marked else None
    made = [_make_record(run, find_commit(commit), labels, origin) for run in found]
    for entry, profiles in made:
        place.add(entry, profiles)
    for entry, _ in made:
        step = f"typical {entry.testbed.unit} {duration(entry.representative.typical_ns)}"
        sys.stdout.write(f"{entry.commit[:12]} · {visible(str(entry.testbed))} · {step}\n")
    if keep is not None:
        forgotten = sum(
            place.retain(entry.testbed, keep, origin=origin, recorded=entry.commit) for entry, _ in made
        )
        sys.stdout.write(f"{plural(forgotten, 'older run')} forgotten\n")
        warn_of_unreadable(place)


def _make_record(
    run: "tuple[Profile, ...]", commit: str, labels: dict[str, str], origin: str | None
) -> "tuple[Record, dict[str, PackedProfile]]":
    from wallscope.compare.comparability import describe_configuration  # noqa: PLC0415  # keeps --help fast
    from wallscope.compare.typical_steps import deciding_steps, typical_step  # noqa: PLC0415  # keeps --help fast
    from wallscope.model.enums import Wall  # noqa: PLC0415
    from wallscope.model.profile import RECORD_SCHEMA, Record, RecordedRank, Testbed  # noqa: PLC0415
    from wallscope.profile.codec import pack_profile  # noqa: PLC0415
    from wallscope.store import object_name  # noqa: PLC0415

    objects = [pack_profile(profile) for profile in run]
    steps = [typical_step((profile,)) for profile in run]
    computing = [step.walls[Wall.COMPUTE] / step.step_ns if step.step_ns else 0.0 for step in steps]
    chosen = min(range(len(run)), key=lambda place: (computing[place], place))
    work, representative = run[0].header.work, steps[chosen]
    entry = Record(
        schema=RECORD_SCHEMA,
        commit=commit,
        testbed=Testbed(
            work.gpu,
            work.world_size,
            len(run),
            work.unit,
            work.name,
            labels,
            describe_configuration(work, representative),
        ),
        recorded_utc_ns=time.time_ns(),
        ranks=tuple(
            RecordedRank(
                rank=profile.header.rank,
                device=profile.header.device,
                object=object_name(stored),
                typical_ns=step.step_ns,
                steps=len(deciding_steps(profile)),
                causes=dict(sorted(step.causes.items())),
            )
            for profile, stored, step in zip(run, objects, steps, strict=True)
        ),
        speaks=chosen,
        origin=origin,
        fixes=run[chosen].fixes,
    )
    return entry, {object_name(stored): stored for stored in objects}


def history(  # noqa: PLR0913  # options are parameters
    metric: Annotated[
        str,
        typer.Argument(metavar="METRIC", help="The step (step), a wall, or a cause such as host/framework."),
    ],
    *,
    label: Labels = None,
    store: StorePlace = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="Print all rows as JSON, CSV, OpenMetrics or OTLP text."),
    ] = None,
    to: Annotated[
        Tracker | None,
        typer.Option(
            "--to",
            rich_help_panel=SENDING,
            help="Send all rows to W&B or MLflow, with your own client and its settings.",
        ),
    ] = None,
    project: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=SENDING,
            help=f"Project of W&B, or experiment of MLflow. Default: {_PROJECT}.",
        ),
    ] = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
) -> None:
    """List step times by commit, and where they changed.

    Commits are listed in the order of recording, and recommendations that a commit has applied below them.
    """
    from wallscope.render import data  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.store import drop_repetitions  # noqa: PLC0415
    from wallscope.views.applied_fixes import build_entry_lists  # noqa: PLC0415
    from wallscope.views.history import (  # noqa: PLC0415
        build_history,
        list_points,
        list_times,
        state_history,
        write_open_metrics,
        write_otlp_metrics,
    )

    check_metric(metric)
    rows = count_rows(brief=brief, max_rows=max_rows)
    if form is not None and (csv is not None or json is not None):
        raise OptionError("--format — prints to standard output — leave out --csv and --json")
    _check_sending(to, project, (form, csv, json, rows))
    wanted = parse_labels(label)
    place = open_store(store)
    check_targets((csv, json), inputs=(folder_of_store(place),))
    fitting = [entry for entry in place.all_records() if entry.testbed.fits(wanted)]
    records = drop_repetitions(fitting, is_within_commit=True)
    warn_of_unreadable(place)
    if not records:
        raise StoreError(
            f"{place} — has no such record — store a run first: wallscope record RUN --commit SHA"
        )
    if to is not None:
        from wallscope.cli.trackers import send_points  # noqa: PLC0415  # only where rows are sent

        points = list_points(list_times(records, metric), metric)
        sys.stdout.writelines(f"{line}\n" for line in send_points(to, points, metric, project or _PROJECT))
        return
    applied = _find_applied(place, wanted) if form in {None, Form.JSON, Form.CSV} else ()
    frame = list_times(records, metric, applied)
    if form is not None:
        if form is Form.OPENMETRICS:
            sys.stdout.write(write_open_metrics(frame, metric))
        elif form is Form.OTLP:
            sys.stdout.write(write_otlp_metrics(frame, metric))
        else:
            sys.stdout.write((data.write_rows_json if form is Form.JSON else data.write_csv)(frame))
        return
    if rows is not None:
        from wallscope.views.brief_listings import brief_history  # noqa: PLC0415  # only when asked for

        parts = frame.partition_by("testbed", maintain_order=True)
        told = {
            own["testbed"][0]: [one.text for one in state_history(own, metric, count_commits)]
            for own in parts
        }
        show_brief(brief_history(frame, metric, rows, told), json)
        return
    sections = chain(
        build_history(frame, metric, count_commits, time.time_ns()),
        build_entry_lists(applied, "Applied recommendations · "),
    )
    write_table(frame, (csv, json), render_sections(sections))


def _check_sending(to: Tracker | None, project: str | None, others: "Sequence[object]") -> None:
    """Refuse options that do not go with those of a tracker; `others` say where else rows go.

    Raises:
        OptionError: there is one.
    """
    if to is None and project is not None:
        raise OptionError("--project — names where rows are sent — add --to wandb or --to mlflow")
    if to is not None and any(one is not None for one in others):
        raise OptionError("--to — sends all rows — leave out --format, --csv, --json, --brief and --max-rows")


def _find_applied(place: "Store", labels: dict[str, str]) -> "tuple[AppliedEntry, ...]":
    """Return the recommendations that commits applied; none, with a line, where profiles cannot be read."""
    from wallscope.cli.ledger import MOST_COMMITS, read_ledger  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.texts import visible  # noqa: PLC0415  # same

    try:
        return read_ledger(place, labels, MOST_COMMITS).entries
    except StoreError as error:
        sys.stderr.write(f"wallscope: applied recommendations are not listed: {visible(str(error))}\n")
        return ()


def check_metric(metric: str) -> None:
    """Refuse a metric that is neither the step nor a wall nor a cause.

    Raises:
        OptionError: it is none.
    """
    from wallscope.model.enums import Wall  # noqa: PLC0415  # keeps --help fast

    if metric != "step" and metric.partition("/")[0] not in set(Wall):
        raise OptionError(
            f"{metric[:80]} — is not a metric — write step, a wall as host, or a cause as host/framework"
        )


def bisect(  # noqa: PLR0913  # options are parameters
    commits: Annotated[
        str, typer.Argument(metavar="GOOD..BAD", help="Two recorded commits between which the time changed.")
    ],
    metric: Annotated[
        str,
        typer.Argument(metavar="METRIC", help="The step (step), a wall, or a cause such as host/framework."),
    ],
    *,
    label: Labels = None,
    store: StorePlace = None,
    csv: Csv = None,
    json: Json = None,
    brief: IsBrief = False,
    max_rows: MaxRows = None,
) -> None:
    """Find the commit that changed a time, and what to record.

    Uses the records of the commits between the two, and names the commit to record next.
    """
    from wallscope.compare.change_points import bisect_times  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_sections  # noqa: PLC0415
    from wallscope.views.history import build_bisection, list_bisection, measure_noise  # noqa: PLC0415

    check_metric(metric)
    rows = count_rows(brief=brief, max_rows=max_rows)
    ends = parse_commit_range(commits)
    if ends is None:
        raise OptionError(f"{commits} — names no range of commits — write GOOD..BAD")
    place = open_store(store)
    check_targets((csv, json), inputs=(folder_of_store(place),))
    good, bad = (place.base(find_commit(end)) for end in ends)
    records = _select_records(place, good, bad, parse_labels(label))
    warn_of_unreadable(place)
    order = _order_commits(records, good, bad)
    frame = list_bisection(records, order, metric)
    times, runs = (frame[name].to_numpy().astype("float64") for name in ("mean_ns", "runs"))
    noise, source = measure_noise(records, metric)
    found = bisect_times(times, runs, noise)
    if rows is not None:
        from wallscope.views.brief_listings import brief_bisection  # noqa: PLC0415  # only when asked for

        show_brief(brief_bisection(frame.with_columns(share=found.shares), found, metric, rows), json)
        return
    shown = render_sections(build_bisection(frame, found, metric, (noise, source)))
    write_table(frame.with_columns(share=found.shares), (csv, json), shown)


def _select_records(place: "Store", good: str, bad: str, labels: dict[str, str]) -> "list[Record]":
    """Return the references of the one testbed that both commits have.

    Raises:
        StoreError: they have none in common, or several.
    """
    from wallscope.render.texts import visible  # noqa: PLC0415  # keeps --help fast
    from wallscope.store import drop_repetitions  # noqa: PLC0415

    every = [one for one in place.all_records() if one.is_reference and one.testbed.fits(labels)]
    beds: list[str] = []
    for one in every:
        has_both = all(
            any(o.commit == end and o.testbed == one.testbed for o in every) for end in (good, bad)
        )
        if has_both and str(one.testbed) not in beds:
            beds.append(str(one.testbed))
    if len(beds) != 1:
        shown = "; ".join(visible(bed) for bed in beds)
        raise StoreError(
            f"{place} — {good[:12]} and {bad[:12]} share no testbed — record both alike"
            if not beds
            else f"{place} — both commits share several testbeds ({shown}) — choose one with --label"
        )
    return drop_repetitions((one for one in every if str(one.testbed) == beds[0]), is_within_commit=True)


def _order_commits(records: "list[Record]", good: str, bad: str) -> tuple[str, ...]:
    """Return the commits from good to bad: by git, else the recorded ones in the order of recording.

    Raises:
        StoreError: bad comes before good.
    """
    if good == bad:
        raise StoreError(f"{good[:12]} — is both ends of the range — name two commits")
    known = list_commits(good, bad)
    if known and known[-1] == bad:
        return (good, *known)
    recorded = tuple(dict.fromkeys(one.commit for one in records))
    first, last = recorded.index(good), recorded.index(bad)
    if first > last:
        raise StoreError(f"{bad[:12]} — was recorded before {good[:12]} — write the older commit first")
    return recorded[first : last + 1]

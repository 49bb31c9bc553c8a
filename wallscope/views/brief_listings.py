"""Brief answers about tables, configurations, words and captures to be made."""

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from wallscope import units
from wallscope.advice.condition_words import name_key
from wallscope.compare.change_points import Bisection
from wallscope.model.advice import Advice, ConfigurationCheck, WordExplanation
from wallscope.model.brief import (
    BRIEF_SCHEMA,
    BriefCheck,
    BriefText,
    CheckBrief,
    NextCall,
    Scalar,
    TableBrief,
    TextBrief,
    Unknown,
)
from wallscope.model.capture import Contents, Finding, Profiler, Severity
from wallscope.model.nsys_flags import InstalledNsys
from wallscope.model.report import Moment
from wallscope.render.texts import visible
from wallscope.views.brief import cut_sentences, cut_text, write_command
from wallscope.views.capture_help import CURED, write_capture_command, write_profile_code
from wallscope.views.listings import describe_form
from wallscope.views.sections.words import describe_profiler

_LONGEST_VERDICT, _LONGEST_TEXT, _LONGEST_LINE, _LONGEST_CELL = 400, 300, 200, 60
_MOST_LINES = 3
_LEFT_OUT = frozenset(
    {
        *("pid", "tid", "chain", "call_start_ns", "end_ns", "stream", "slack_ns"),
        *("compute_ns", "opaque_graph_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"),
        *(
            "class",
            "backend",
            "least_ns",
            "deviation_ns",
            "operations",
            "own_operations",
            "own_work_ns",
        ),
    }
)
"""Columns of tables that a brief answer leaves out: the full one has them."""


def brief_table(command: str, file: str, frame: pl.DataFrame, most_rows: int, verdict: str) -> TableBrief:
    """Return the first rows of a table of a capture (`_brief_rows`); the next command analyzes it."""
    following = NextCall(write_command("analyze", file, "--brief"), "analyze", {"files": (file,)})
    return _brief_rows(command, file.rpartition("/")[2], frame, most_rows, verdict, following)


def _brief_rows(  # noqa: PLR0913, PLR0917  # the fields of a brief
    command: str, subject: str, frame: pl.DataFrame, most_rows: int, verdict: str, following: NextCall
) -> TableBrief:
    """Return the first rows of a table, texts cut, cells without a value left out.

    Args:
        command: the command that lists the table.
        subject: what it lists.
        frame: the full table, in its order.
        most_rows: how many rows at most.
        verdict: what the table says, in a sentence.
        following: what to call next.
    """
    shown = frame.head(most_rows)
    names = [name for name in frame.columns if name not in _LEFT_OUT]
    return TableBrief(
        BRIEF_SCHEMA,
        command,
        visible(subject, most=_LONGEST_CELL),
        verdict,
        following,
        {},
        None,
        (),
        frame.height - shown.height or None,
        tuple(
            {name: _cut_cell(row[name]) for name in names if row[name] is not None}
            for row in shown.to_dicts()
        ),
    )


def _cut_cell(value: Scalar) -> Scalar:
    if isinstance(value, str):
        parts = value.split(" / ")
        return visible(parts[-1] if len(value) > _LONGEST_CELL else value, most=_LONGEST_CELL)
    return value


def describe_steps_table(frame: pl.DataFrame) -> str:
    """Say how many steps there are, and the longest that counts."""
    steady = frame.filter(pl.col("steady"))
    counted = f"{steady.height} of {units.plural(frame.height, 'step')} steady."
    if steady.is_empty():
        return counted
    longest = steady.sort("duration_ns", descending=True).row(0, named=True)
    return f"{counted} Longest steady step: {longest['step']}, {units.duration(longest['duration_ns'])}."


def describe_work_table(frame: pl.DataFrame, noun: str) -> str:
    """Say how many rows a table of work has, and which takes most."""
    if frame.is_empty():
        return f"No {noun} in the typical step."
    first = frame.row(0, named=True)
    name = visible(str(first["name"]), most=_LONGEST_CELL)
    return f"{units.plural(frame.height, noun)}; first: {name}, {units.duration(first['work_ns'])}."


def describe_gaps_table(frame: pl.DataFrame) -> str:
    """Say which gap is the longest, among those of steady steps if there are any, and its cause."""
    if frame.is_empty():
        return "No gap: compute runs throughout the steps."
    longest = frame.sort("steady", "duration_ns", descending=True).row(0, named=True)
    among = " of a steady step" if longest["steady"] else ""
    return (
        f"The longest gap{among} without compute takes {units.duration(longest['duration_ns'])}"
        f" in step {longest['step']};"
        f" cause: {longest['cause']}, {units.duration(longest['cause_ns'])}."
    )


def brief_check(found: ConfigurationCheck, file: str, most_rows: int) -> CheckBrief:
    """Return what would stop the run, then what has no effect or is in the way of a feature."""
    stop = "stops the run" if found.form.is_whole else "conflict"
    rows = [
        BriefCheck(
            row.precondition.id,
            feature.title,
            cut_text(row.precondition.text, _LONGEST_LINE),
            (stop if row.level == "error" else row.level) if feature.on else "feature is off",
            f"/features/{number}/rows/{feature.rows.index(row)}/precondition",
            row.precondition.unblock and cut_text(row.precondition.unblock, _LONGEST_LINE),
        )
        for number, feature in enumerate(found.features)
        for row in feature.unmet()
    ]
    order = (stop, "warning", "feature is off")
    rows.sort(key=lambda row: order.index(row.level))
    stops = found.stop_count
    verdict = "No check finds an error that stops the run."
    if not found.form.is_whole:
        verdict = f"{units.capitalize(describe_form(found.form))}."
    if found.stops_later:
        verdict = "Validation accepts this file, but training stops at its first step."
    if stops:
        verdict = f"{units.plural(stops, 'failed check')} that will stop the run."
    grave = [entry for entry in found.findings if entry.severity != Severity.INFO]
    judged = [row for feature in found.features if feature.on for row in feature.rows]
    open_rows = [row for row in judged if row.precondition.status == "unknown"]
    missing = sorted({name_key(key) for row in open_rows for key in row.missing})
    unknown = _list_unknowns(grave[:1])
    if open_rows:
        what = units.plural(len(open_rows), "check") + " of features that are on"
        because = f"the configuration does not set {', '.join(missing[:_MOST_LINES])}"
        more = f" and {len(missing) - _MOST_LINES} more" if len(missing) > _MOST_LINES else ""
        unknown = (*unknown, Unknown(what, f"{because}{more}"))
    word = rows[0].id if rows else "parallelism"
    shown = tuple(rows[:most_rows])
    return CheckBrief(
        BRIEF_SCHEMA,
        "check-config",
        visible(file.rpartition("/")[2], most=_LONGEST_CELL),
        verdict,
        NextCall(write_command("explain", word), "explain", {"word": word}),
        {},
        None,
        unknown,
        len(rows) - len(shown) or None,
        shown,
    )


def _list_unknowns(findings: Iterable[Finding]) -> tuple[Unknown, ...]:
    return tuple(
        Unknown(entry.code, cut_sentences(entry.message, _LONGEST_LINE), entry.cure) for entry in findings
    )


def brief_explanation(found: WordExplanation, most_rows: int) -> TextBrief:
    """Return what a word means, and the first lines of each section."""
    sections = [one for one in found.sections if not one.verbatim]
    shown = tuple(
        BriefText(one.heading, tuple(cut_sentences(line, _LONGEST_LINE) for line in one.lines[:_MOST_LINES]))
        for one in sections[:most_rows]
    )
    following = NextCall(write_command("explain", "wall"), "explain", {"word": "wall"})
    if found.kind == "fix":
        following = NextCall(
            write_command("check-config", "config.yaml", "--brief"), "check_config", {"file": "config.yaml"}
        )
    return TextBrief(
        BRIEF_SCHEMA,
        "explain",
        f"{visible(found.word, most=_LONGEST_CELL)} ({found.kind})",
        cut_sentences(found.meaning, _LONGEST_TEXT),
        following,
        {},
        None,
        (),
        len(found.sections) - len(shown) or None,
        shown,
    )


def brief_capture_help(
    profiler: Profiler,
    file: str | None,
    findings: tuple[Finding, ...],
    most_rows: int,
    nsys: InstalledNsys | None = None,
) -> TextBrief:
    """Return the command or code of a profiler, and what another capture of an export would cure.

    Args:
        profiler: the profiler to capture with.
        file: the export as the user named it, if there is one.
        findings: what limits it.
        most_rows: how many findings at most.
        nsys: the installed one, if the command is for it.
    """
    curable = [entry for entry in findings if entry.code in CURED]
    is_torch = profiler is Profiler.TORCH
    command = write_profile_code() if is_torch else write_capture_command(findings, nsys)
    shown = tuple(
        BriefText(
            entry.code, (cut_sentences(" → ".join(filter(None, (entry.message, entry.cure))), _LONGEST_TEXT),)
        )
        for entry in curable[:most_rows]
    )
    verdict = "Nothing that another capture would cure."
    if file is None:
        verdict = "Capture 10 steps after warm-up, with ranges around the steps, then export."
    elif curable:
        verdict = f"Another capture would cure {units.plural(len(curable), 'limit')}."
    place = file or "run.sqlite"
    return TextBrief(
        BRIEF_SCHEMA,
        "capture-help",
        "a capture" if file is None else visible(file.rpartition("/")[2], most=_LONGEST_CELL),
        verdict,
        NextCall(write_command("analyze", place, "--brief"), "analyze", {"files": (place,)}),
        {},
        None,
        (),
        len(curable) - len(shown) or None,
        (*shown, BriefText("capture", command)),
    )


def brief_contents(found: Contents, file: str, most_rows: int) -> TextBrief:
    """Return what an export holds: its profiler, GPUs, largest tables, and what is missing."""
    export = found.export
    counted = [entry for entry in found.tables if entry.row_count is not None]
    counted.sort(key=lambda entry: -(entry.row_count or 0))
    missing = [entry.rows_are for entry in found.tables if entry.row_count is None]
    shown = tuple(f"{entry.rows_are}: {units.number(entry.row_count)}" for entry in counted[:most_rows])
    gpus = sorted({gpu.name for gpu in export.gpus if gpu.name})
    parts = (
        describe_profiler(export),
        ", ".join(gpus) or "GPU unknown",
        f"captured {units.duration(found.duration_ns)}",
    )
    return TextBrief(
        BRIEF_SCHEMA,
        "info",
        visible(export.name, most=_LONGEST_CELL),
        cut_sentences(f"{', '.join(parts)}.", _LONGEST_TEXT),
        NextCall(write_command("analyze", file, "--brief"), "analyze", {"files": (file,)}),
        {},
        None,
        tuple(
            Unknown(what, "the export has no such table") for what in missing[: max(most_rows, _MOST_LINES)]
        ),
        len(counted) - len(shown) or None,
        (BriefText("rows", shown),),
    )


def brief_moments(found: Sequence[Moment], file: str, at_ns: int, most_rows: int) -> TextBrief:
    """Return what each rank did at one moment, and links of its chain, the one at that moment first."""
    shown = tuple(_brief_moment(moment, at_ns) for moment in found[:most_rows])
    return TextBrief(
        BRIEF_SCHEMA,
        "at",
        visible(file.rpartition("/")[2], most=_LONGEST_CELL),
        f"At {units.seconds(at_ns)} s: {shown[0].lines[0] if shown else 'no rank'}.",
        NextCall(write_command("gaps", file, "--brief"), "gaps", {"file": file}),
        {},
        None,
        (),
        len(found) - len(shown) or None,
        shown,
    )


def _brief_moment(moment: Moment, at_ns: int) -> BriefText:
    rank, row = moment.rank, moment.row
    number = f"device {rank['device']}" if rank["rank"] is None else f"rank {rank['rank']}"
    if row is None:
        return BriefText(number, ("outside the steps",))
    around = sorted(moment.links, key=lambda link: not link.start_ns <= at_ns < link.end_ns)
    chain = tuple(
        cut_text(
            f"{link.cause}: {units.duration(link.end_ns - link.start_ns)}"
            f" from {units.seconds(link.start_ns)} s ({link.what})",
            _LONGEST_LINE,
        )
        for link in around[:_MOST_LINES]
    )
    return BriefText(number, (f"{row['cause']} in step {row['step']}", *chain))


def brief_history(
    frame: pl.DataFrame, metric: str, most_rows: int, told: Mapping[str, Sequence[str]]
) -> TableBrief:
    """Return the last commits of a history, and their times; `told` says of each testbed what changed."""
    rows = f"{units.plural(frame.height, 'row')} of {metric}, last first."
    said = [
        " ".join((*([f"On {visible(bed, most=_LONGEST_CELL)}:"] if len(told) > 1 else ()), *sentences))
        for bed, sentences in told.items()
        if sentences
    ]
    verdict = cut_sentences(" ".join((rows, *said)), _LONGEST_VERDICT)
    following = NextCall(write_command("diff", "BASE..HEAD", "--brief"), "explain", {"word": "change"})
    return _brief_rows("history", metric, frame.reverse(), most_rows, verdict, following)


def brief_bisection(frame: pl.DataFrame, found: Bisection, metric: str, most_rows: int) -> TableBrief:
    """Return which commits may have changed a time, the most likely first, and which to record next."""
    commits = [visible(commit, most=_LONGEST_CELL) for commit in frame["commit"].to_list()]
    ends = f"{commits[max(found.first - 1, 0)][:12]}..{commits[found.last][:12]}"
    change = units.signed_duration(round(found.change))
    verdict = f"Both ends may be alike (change {change}): record more runs of both."
    if found.is_certain:
        verdict = f"The change of {change} is in {ends} (95 % certain)."
    likely = frame.sort("share", descending=True, maintain_order=True)
    command, proposed = write_command("diff", ends, "--brief"), found.proposed
    if not found.is_certain:  # of both ends the one with fewer runs
        proposed = 0 if frame["runs"][0] <= frame["runs"][-1] else frame.height - 1
    if proposed is not None:
        command = write_command("record", "RUN", "--commit", commits[proposed][:12])
    following = NextCall(command, "explain", {"word": "change"})
    return _brief_rows("bisect", metric, likely, most_rows, verdict, following)


def brief_plan(found: Advice, most_rows: int) -> TextBrief:
    """Return the layout of a planned run and the first things to do."""
    sizes = found.layout.sizes
    experts = f" EP{sizes.expert}" if max(sizes.expert, found.largest_expert) > 1 else ""
    layout = f"TP{sizes.tensor} PP{sizes.pipeline} CP{sizes.context}{experts}, DP{found.layout.data}"
    shown = tuple(
        BriefText(item.phase, (cut_sentences(item.text, _LONGEST_LINE), *item.settings[:1]))
        for item in found.items[:most_rows]
    )
    word = "parallelism"
    return TextBrief(
        BRIEF_SCHEMA,
        "advise",
        f"{found.model} on {found.layout.gpus} x {found.machine}, {found.precision}",
        f"Layout {layout}, from {found.layout_source}.",
        NextCall(write_command("explain", word), "explain", {"word": word}),
        {"/layout/gpus": found.layout.gpus, "/layout/fewest_gpus": found.layout.fewest_gpus},
        None,
        (),
        len(found.items) - len(shown) or None,
        shown,
    )

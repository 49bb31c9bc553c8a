"""The history of a metric, such as the step time: values, change points and drift; also as OpenMetrics."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

import numpy as np
import polars as pl

from wallscope import units
from wallscope._version import __version__
from wallscope.compare.change_points import Bisection, Course, find_changes
from wallscope.compare.wall_deltas import assume_noise
from wallscope.model.comparison import AppliedFix, NoiseSource, is_perhaps_chance
from wallscope.model.enums import Grade, Wall
from wallscope.model.ledger import AppliedEntry
from wallscope.model.profile import Noise, Record
from wallscope.model.section import Cell, Line, Lines, Section, Span, on_terminal, tabulate
from wallscope.records import dataclass
from wallscope.render.texts import spell_out, visible
from wallscope.store import run_noise
from wallscope.thresholds.noise import (
    FEWEST_COMMITS_COUNT,
    STALE_RECORD_DAYS,
)

HISTORY = pl.Schema(
    {
        "testbed": pl.String(),
        "commit": pl.String(),
        "recorded_utc_ns": pl.Int64(),
        "runs": pl.Int64(),
        "steps": pl.Int64(),
        "median_ns": pl.Int64(),
        "change": pl.Float64(),  # against the reference before, on the same testbed
        "level_ns": pl.Int64(),  # without noise; null without a reference
        "changed_ns": pl.Int64(),  # where the level changed: after less before
        "changed_ratio": pl.Float64(),  # after by before; null where that was 0
        "changed_chance": pl.Float64(),  # of random orders with a change as large
        "changed_after": pl.String(),  # the last commit that surely has the level before
        "changed_until": pl.String(),  # the first commit that surely has the level after
        "changed_grade": pl.String(),  # sure, likely or possible
        "settled_by": pl.Int64(),  # later commits that would make it sure; null if it is, or if none would
        "detectable_ratio": pl.Float64(),  # change at this commit that would be named, of the level
        "drift_ratio": pl.Float64(),  # steady change from commit to commit, of the first level
        "applied": pl.String(),  # recommendations for the commit before, ids separated by semicolons
        "origin": pl.String(),  # null for a reference; the last column: the GitHub Action looks for it there
    }
)
_DAY_NS = 86_400 * 10**9
_SHORT = 12
_MOST_COMMITS = 20
_ANY_DEGREES = 1e9


def list_times(records: Sequence[Record], metric: str, applied: Sequence[AppliedEntry] = ()) -> pl.DataFrame:
    """List a row a testbed, commit and origin, in order of recording (`HISTORY`), of several runs the median.

    Changes are against the reference before: a pull request's runs are measured, and measure nothing.
    `applied` are recommendations that commits applied; a commit without one has none in its row. A change of
    the step that the comparison behind one shows too is likely.
    """
    columns = ("testbed", "commit", "recorded_utc_ns", "median_ns", "steps", "origin")
    rows = [
        (
            str(one.testbed),
            one.commit,
            one.recorded_utc_ns,
            one.metric_ns(metric),
            one.representative.steps,
            one.origin,
        )
        for one in records
    ]
    listed = pl.DataFrame(rows, schema={name: HISTORY[name] for name in columns}, orient="row")
    medians = listed.group_by("testbed", "commit", "origin").agg(
        pl.col("recorded_utc_ns").min(),
        runs=pl.len(),
        steps=pl.col("steps").sum(),
        mean_ns=pl.col("median_ns").mean(),
        median_ns=pl.col("median_ns").median().round(0),
    )
    ordered = medians.sort("testbed", "recorded_utc_ns", "commit", "origin")
    references_ns = pl.when(pl.col("origin").is_null()).then(pl.col("median_ns"))
    before = references_ns.shift(1).forward_fill().over("testbed")
    change = pl.when(before > 0).then(pl.col("median_ns") / before - 1)
    parts = [_add_course(own) for own in ordered.partition_by("testbed", maintain_order=True)]
    by_commit = _group_applied(records, applied)
    names = {key: ";".join(one.id for one in own) for key, own in by_commit.items()}
    keys = zip(*ordered.select("testbed", "commit", "origin").get_columns(), strict=True)
    ids = pl.Series(
        [None if origin else names.get((bed, commit)) for bed, commit, origin in keys], dtype=pl.String()
    )
    whole = pl.concat(parts).with_columns(change=change, applied=ids)
    if metric == "step":
        whole = whole.with_columns(changed_grade=_grade_compared(whole, by_commit))
    return whole.select(HISTORY.names()).cast(HISTORY)


def _group_applied(
    records: Sequence[Record], applied: Sequence[AppliedEntry]
) -> dict[tuple[str, str], list[AppliedFix]]:
    """Return the applied recommendations by testbed and commit."""
    beds = {(str(one.testbed.machine), one.commit): str(one.testbed) for one in records if one.is_reference}
    found: dict[tuple[str, str], list[AppliedFix]] = {}
    for entry in applied:
        if bed := beds.get((entry.testbed, entry.head)):
            found.setdefault((bed, entry.head), []).append(entry.applied)
    return found


def _grade_compared(
    whole: pl.DataFrame, applied: Mapping[tuple[str, str], Sequence[AppliedFix]]
) -> pl.Series:
    """Return how certain changes of the step are; one that its comparison shows too is likely."""
    grades = []
    for bed, commit, changed_ns, grade in whole.select(
        "testbed", "commit", "changed_ns", "changed_grade"
    ).iter_rows():
        is_shown = grade == Grade.POSSIBLE and any(
            (one.measured_ns > 0) == (changed_ns < 0) and not is_perhaps_chance(one)
            for one in applied.get((bed, commit), ())
        )
        grades.append(str(Grade.LIKELY) if is_shown else grade)
    return pl.Series(grades, dtype=pl.String())


def _find_course(own: pl.DataFrame) -> Course:
    """Return how the references of one testbed went."""
    kept = own.filter(pl.col("origin").is_null())
    return find_changes(
        kept["mean_ns"].to_numpy().astype(np.float64), kept["runs"].to_numpy().astype(np.float64)
    )


def _add_course(own: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of one testbed with level, changes and drift."""
    course = _find_course(own)
    commits = own.filter(pl.col("origin").is_null())["commit"].to_list()
    level_ns = dict(zip(commits, course.level.tolist(), strict=True)) if course.is_enough else {}
    named = course.changes if course.suspected is None else (*course.changes, course.suspected)
    changes = {commits[one.at]: one for one in named}
    detectable = dict(zip(commits, course.detectable.tolist(), strict=True))
    drift = None if course.drift is None else course.drift.ratio
    rows = []
    for commit, origin in own.select("commit", "origin").iter_rows():
        found = changes.get(commit) if origin is None else None
        rows.append(
            (
                None if origin is not None or commit not in level_ns else round(level_ns[commit]),
                None if found is None else round(found.after - found.before),
                None if found is None or found.before <= 0 else found.after / found.before,
                None if found is None else found.chance,
                None if found is None else commits[found.earliest - 1],
                None if found is None else commits[found.latest],
                None if found is None else str(found.grade),
                None if found is None else found.settled_by,
                None if origin is not None or isnan(detectable[commit]) else detectable[commit],
                drift if origin is None else None,
            )
        )
    names = [name for name in HISTORY.names() if name not in {*own.columns, "change", "applied"}]
    more = pl.DataFrame(rows, schema={name: HISTORY[name] for name in names}, orient="row")
    return pl.concat([own, more], how="horizontal")


def build_history(
    frame: pl.DataFrame, metric: str, count_commits: Callable[[str, str], int | None], now_ns: int
) -> Iterator[Section]:
    """Make the changes and the rows of each testbed, with a bar for references and the origin of other runs.

    `count_commits` counts the commits after one up to another, as far as that is known.
    """
    longest_ns = max(int(frame["median_ns"].to_numpy().max()), 1)

    def share(row: dict[str, int]) -> Cell | str | int:
        return row["origin"] or Cell(row["median_ns"] / longest_ns, Wall.COMPUTE)

    columns = (
        on_terminal("commit", "commit", value=lambda row: row["commit"][:_SHORT]),
        on_terminal("recorded", "recorded", "plain", "", lambda row: units.utc(row["recorded_utc_ns"])[:16]),
        on_terminal("runs", "runs", "count", "", lambda row: row["runs"]),
        on_terminal("time", "time", "ms", "", lambda row: row["median_ns"]),
        on_terminal("change", "change", "signed_percent", "", lambda row: row["change"], none=""),
        on_terminal("bar", "", "bar", "", share, most=200, is_right=True),
    )
    for own in frame.partition_by("testbed", maintain_order=True):
        title = f"{visible(metric)} · {visible(own['testbed'][0])}"
        spans = (
            Span(title, "strong"),
            *state_history(own, metric, count_commits),
            *_describe_age(own, now_ns),
        )
        lines = [(one,) for one in spans]
        table = tabulate("", columns, own.iter_rows(named=True))
        yield Section("testbed", "", "", (Lines(tuple(lines)), table))


def state_history(
    own: pl.DataFrame, metric: str, count_commits: Callable[[str, str], int | None]
) -> Iterator[Span]:
    """Say where a time changed on one testbed and how certain that is, or which change would have been found.

    Every medium that has sentences on a history takes them from here.
    """
    references = own.filter(pl.col("origin").is_null())
    changed = references.filter(pl.col("changed_ns").is_not_null())
    for row in changed.iter_rows(named=True):
        is_rise = row["changed_ns"] > 0
        what = f"{visible(metric)} {'rose' if is_rise else 'fell'} by {_write_size(row)}"
        if row["changed_grade"] == Grade.SURE:
            text = f"{what} at {row['commit'][:_SHORT]}. {_describe_commit_range(row, count_commits)}"
            yield Span(text, "bad" if is_rise else "good")
        else:
            yield Span(f"{_HEDGES[row['changed_grade']]} {what} at {_describe_doubt(row)}", "warning")
    if len(references) < FEWEST_COMMITS_COUNT:
        if changed.is_empty():
            few = f"It takes {FEWEST_COMMITS_COUNT} recorded commits to be sure of a change"
            yield Span(f"{few}, and there are {len(references)}.", "dim")
        return
    drift = references["drift_ratio"][0]
    if drift is not None:
        whole = drift * (len(references) - 1)
        yield Span(
            f"{visible(metric)} drifts by {units.signed_percent(drift)} per commit,"
            f" {units.signed_percent(whole)} over {len(references)} commits.",
            "bad" if drift > 0 else "good",
        )
    elif changed.is_empty():
        middle, newest = (references["detectable_ratio"][place] for place in (len(references) // 2, -1))
        least = {"halfway": middle, "at the newest commit": newest}
        ends = [f"{units.percent(one)} {place}" for place, one in least.items() if one is not None]
        detectable = f" Smallest change that would be detected: {', '.join(ends)}." if ends else ""
        yield Span(f"No change among {len(references)} commits.{detectable}", "dim")


_HEDGES = {Grade.LIKELY: "Likely:", Grade.POSSIBLE: "Possible, but perhaps chance:"}


def _write_size(row: dict[str, Any]) -> str:
    by, ratio = units.duration(abs(row["changed_ns"])), row["changed_ratio"]
    return by if ratio is None else f"{units.percent(abs(ratio - 1))} ({by})"


def _describe_commit_range(row: dict[str, Any], count_commits: Callable[[str, str], int | None]) -> str:
    """Say between which commits the cause of a sure change is."""
    after, until = row["changed_after"], row["changed_until"]
    count = count_commits(after, until)
    commits = "" if count is None else f", {units.plural(count, 'commit')}"
    return (
        f"The cause is in {after[:_SHORT]}..{until[:_SHORT]}{commits} (95 % certain)."
        f" {units.percent(row['changed_chance'])} of random orders of the times show a change this large."
    )


def _describe_doubt(row: dict[str, Any]) -> str:
    """Name the commit of a change that is not sure, and what would settle it."""
    before, until = row["changed_after"][:_SHORT], row["changed_until"][:_SHORT]
    more = row["settled_by"]
    doubt, needed = "the times vary too much to be sure", ""
    if more is not None:
        doubt = "there are too few later commits to be sure"
        needed = f"{units.plural(more, 'more commit')} at the new time, or "
    record = f"record {needed}more runs of {before} and {until}"
    return f"{row['commit'][:_SHORT]}, but {doubt}. To be sure, {record}."


def _describe_age(own: pl.DataFrame, now_ns: int) -> Iterator[Span]:
    """Say that the newest reference is old: as a base it hides what changed since."""
    newest = own.filter(pl.col("origin").is_null())["recorded_utc_ns"].to_list()
    days = (now_ns - max(newest)) // _DAY_NS if newest else 0
    if days > STALE_RECORD_DAYS:
        yield Span(f"The newest record is {days} days old, so record the current commit.", "warning")


BISECTION = pl.Schema(
    {
        "commit": pl.String(),
        "runs": pl.Int64(),  # 0 without a record
        "mean_ns": pl.Float64(),  # null without a record
    }
)


def list_bisection(records: Sequence[Record], order: Sequence[str], metric: str) -> pl.DataFrame:
    """List a row per commit from good to bad, with its recorded runs (`BISECTION`)."""
    times: dict[str, list[int]] = {commit: [] for commit in order}
    for one in records:
        if one.commit in times:
            times[one.commit].append(one.metric_ns(metric))
    rows = [(commit, len(ns), sum(ns) / len(ns) if ns else None) for commit, ns in times.items()]
    return pl.DataFrame(rows, schema=BISECTION, orient="row")


def measure_noise(records: Sequence[Record], metric: str) -> tuple[Noise, NoiseSource]:
    """Return the noise between runs of a metric: recorded, or assumed where none is recorded."""
    known = run_noise(records, records[0].testbed)
    noise = None if known is None else known.noise.get(metric)
    if noise is not None:
        return noise, "recorded"
    return Noise(float(assume_noise([metric])[0]), _ANY_DEGREES), "assumed"


def build_bisection(
    frame: pl.DataFrame, found: Bisection, metric: str, noise: tuple[Noise, NoiseSource]
) -> Iterator[Section]:
    """Make where the change is, what to record next, and the commits that may have made it."""
    commits = [commit[:_SHORT] for commit in frame["commit"].to_list()]
    ends_ns = [round(one) for one in (frame["mean_ns"][0], frame["mean_ns"][-1])]
    change, half = round(found.change), round(found.half)
    interval = f"{units.signed_duration(change - half)} … {units.signed_duration(change + half)}"
    lines: list[Line] = [
        (Span(f"{visible(metric)} {units.change(*ends_ns)} from {commits[0]} to {commits[-1]}", "strong"),),
        (
            Span(
                f"Change: {units.signed_duration(change)} (95 % CI {interval}); run noise {noise[1]}:"
                f" {units.percent(noise[0].deviation)}.",
                "dim",
            ),
        ),
    ]
    if not found.is_certain:
        lines.append(("Both commits may be alike. Record more runs of both first.",))
        yield Section("bisection", "", "", (Lines(tuple(lines)),))
        return
    last = commits[found.last]
    if found.proposed is None:
        lines.append((Span(f"First commit with the change: {last} (95 % certain).", "bad"),))
    else:
        within = frame[found.first : found.last + 1]
        missing = int((within["runs"] == 0).sum())
        before = commits[max(found.first - 1, 0)]
        lines.append((f"The change is in {before}..{last} (95 % certain): {len(within)} commits.",))
        again = "one more run of " if frame["runs"][found.proposed] else ""
        missed = f" {missing} of them have no record." if missing else ""
        proposed = frame["commit"][found.proposed]
        command = f"wallscope record RUN --commit {proposed[:_SHORT]}"
        lines.append((f"{missed} Record {again}{proposed[:_SHORT]} next: {command}".strip(),))
    columns = (
        on_terminal("commit", "commit", value=lambda row: row["commit"][:_SHORT]),
        on_terminal("runs", "runs", "count", "", lambda row: row["runs"]),
        on_terminal("time", "time", "ms", "", lambda row: row["mean_ns"], none="no record"),
        on_terminal("share", "probability", "percent", "", lambda row: row["share"]),
    )
    likely = frame.with_columns(share=found.shares)[found.first : found.last + 1]
    table = tabulate("", columns, likely.head(_MOST_COMMITS).iter_rows(named=True))
    yield Section("bisection", "", "", (Lines(tuple(lines)), table))


_SERIES = (
    ("wallscope.time", "s", "Time of the typical step, a wall or a cause.", "median_ns", 1e-9),
    ("wallscope.level", "s", "The same without noise.", "level_ns", 1e-9),
    ("wallscope.change", "1", "Level after a commit by that before it, of sure changes.", "changed_ratio", 1),
    ("wallscope.drift", "1", "Steady change from commit to commit.", "drift_ratio", 1),
)
"""Name, unit and meaning of what monitoring systems get, the column that it is from, and its factor."""
_UNITS = {"s": "seconds", "1": "ratio"}


def _list_samples(
    frame: pl.DataFrame, column: str, metric: str
) -> Iterator[tuple[dict[str, str], float, int]]:
    """Yield labels, value and time of recording (ns) of rows with a value; of changes the sure ones."""
    sure = pl.when(pl.col("changed_grade") == Grade.SURE).then(pl.col("changed_ratio"))
    known = frame.with_columns(changed_ratio=sure).filter(pl.col(column).is_not_null())
    for row in known.iter_rows(named=True):
        labels = {"metric": metric, "testbed": row["testbed"], "commit": row["commit"]}
        if row["origin"] is not None:
            labels["origin"] = row["origin"]
        yield labels, row[column], row["recorded_utc_ns"]


@dataclass(frozen=True, slots=True)
class Point:
    """What trackers get of a row: its values by name and unit, as `write_open_metrics` names them."""

    testbed: str
    commit: str
    origin: str | None
    recorded_utc_ns: int
    values: dict[str, float]


def list_points(frame: pl.DataFrame, metric: str) -> list[Point]:
    """List the rows of a history as points, in their order; the metric follows each name after a slash."""
    points: dict[tuple[str, str, str | None], Point] = {}
    for dotted, short, _, column, factor in _SERIES:
        name = f"{_name_series(dotted, short)}/{metric}"
        for labels, value, at_ns in _list_samples(frame, column, metric):
            key = (labels["testbed"], labels["commit"], labels.get("origin"))
            points.setdefault(key, Point(*key, at_ns, {})).values[name] = value * factor
    return list(points.values())


def _name_series(dotted: str, short: str) -> str:
    return f"{dotted.replace('.', '_')}_{_UNITS[short]}"


def write_open_metrics(frame: pl.DataFrame, metric: str) -> str:
    """Write all rows in the text format of OpenMetrics 1.0, in seconds, with the time of recording."""
    lines = []
    for dotted, short, meaning, column, factor in _SERIES:
        unit = _UNITS[short]
        name = _name_series(dotted, short)
        lines += [f"# TYPE {name} gauge", f"# UNIT {name} {unit}", f"# HELP {name} {meaning}"]
        for labels, value, at_ns in _list_samples(frame, column, metric):
            text = ",".join(f'{key}="{_escape_label(label)}"' for key, label in labels.items())
            lines.append(f"{name}{{{text}}} {value * factor:.9g} {at_ns / 1e9:.3f}")
    return "\n".join([*lines, "# EOF", ""])


def write_otlp_metrics(frame: pl.DataFrame, metric: str) -> str:
    """Write all rows as a request of the OpenTelemetry protocol in JSON, for `/v1/metrics` of a collector.

    A receiver for Prometheus names the metrics as `write_open_metrics` does.
    """
    metrics = []
    for name, unit, meaning, column, factor in _SERIES:
        points = [
            {
                "attributes": [_make_attribute(key, label) for key, label in labels.items()],
                "timeUnixNano": str(at_ns),
                "asDouble": value * factor,
            }
            for labels, value, at_ns in _list_samples(frame, column, metric)
        ]
        if points:
            metrics.append(
                {"name": name, "unit": unit, "description": meaning, "gauge": {"dataPoints": points}}
            )
    scope = {"scope": {"name": "wallscope", "version": __version__}, "metrics": metrics}
    resource = {"attributes": [_make_attribute("service.name", "wallscope")]}
    request = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [scope]}]}
    return json.dumps(request, ensure_ascii=True, allow_nan=False) + "\n"


def _make_attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": spell_out(value)}}


def _escape_label(value: str) -> str:
    shown = "\n".join(map(spell_out, value.split("\n")))  # a terminal must not obey a label
    return shown.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

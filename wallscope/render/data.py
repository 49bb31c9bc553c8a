"""What programs read: JSON by the published schema, brief answers, CSV, folders of tables, JUnit XML."""

import dataclasses
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import singledispatch
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal
from xml.etree import ElementTree as ET

import polars as pl

from wallscope import units
from wallscope._version import __version__
from wallscope.model.brief import (
    AnalysisBrief,
    BreakdownBrief,
    Brief,
    CheckBrief,
    ComparisonBrief,
    Recommendation,
    Scalar,
    TableBrief,
    TextBrief,
    WhatIfBrief,
)
from wallscope.model.capture import Capture
from wallscope.model.capture_columns import CAPTURE_TABLES
from wallscope.model.schemas import AUTOGRAD_RANGES, KERNEL_FLOPS, KERNEL_OCCUPANCY
from wallscope.model.table_columns import JOB_TABLES, TABLES
from wallscope.model.tables import Table, TableColumn
from wallscope.render.texts import spell_out, visible
from wallscope.units import make_plain, spell_surrogates

if TYPE_CHECKING:
    from wallscope.model.advice import Advice, ConfigurationCheck
    from wallscope.model.analysis import Analysis
    from wallscope.model.comparison import Comparison
    from wallscope.model.ledger import Ledger
    from wallscope.model.whatif import WhatIf

    Answer = Analysis | Comparison | Advice | ConfigurationCheck | Ledger | WhatIf

Format = Literal["csv", "parquet"]
MANIFEST: Final = "manifest.json"
_TABLES_SCHEMA: Final = "wallscope.tables/1"
_SHARED_BY: Final = 3
_TABLES_HEAD: Final = """\
# Tables

`--csv`, `--parquet` and the Python library write the tables on this page.

- Times are integer nanoseconds since the start of the profiling session, unless a table says otherwise. An
  interval includes its start but not its end.
- A share is a fraction from 0 to 1. An empty cell means that the value is unknown or does not apply.
- A gap is an interval of a step in which the GPU runs neither a compute kernel nor an opaque CUDA graph
  (whose kernels are not in the profile).
- In CSV files, text that begins with `=`, `+`, `-` or `@` is prefixed with a single quote (`'`), so that no
  spreadsheet reads it as a formula. Invisible characters become escapes such as `\\x1b`. Parquet files keep
  text unchanged.
"""
_ABOUT: Final = "README.md"
_ROWS_A_GROUP = 262_144
_FORMULA_STARTS = ("=", "+", "-", "@")
_INVISIBLE = r"[\p{C}\p{Zl}\p{Zp}]"  # what `visible` spells out, tabs and line ends too
_KNOWN = (*TABLES, *JOB_TABLES, *CAPTURE_TABLES)
_NAMES: Final = {
    "played_operations": "replayed_operations",
    "error_median": "replay_error",
    "cause_ns": "time_of_the_cause_ns",
}
DIGITS_COUNT: Final = 5
"""Digits of shares and ratios in the JSON of brief answers; times are whole."""
_DECLARED = {table.name: table for table in CAPTURE_TABLES}


def write_json(answer: "Answer") -> str:
    """Write the answer as JSON: keys in the contract's order, ASCII alone, a newline at the end."""
    return _dump(make_plain(answer))


def write_compact_json(answer: "Answer") -> str:
    """Write the answer as JSON on one line, for this program alone: no indentation slows the writer."""
    return json.dumps(make_plain(answer), ensure_ascii=True, allow_nan=False)


def write_rows_json(frame: pl.DataFrame) -> str:
    """Write the whole table as a JSON list of objects, ASCII alone."""
    return _dump(frame.to_dicts())


def _dump(plain: Any) -> str:
    return json.dumps(plain, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def make_json_schema(answer: "type[Answer]") -> dict[str, Any]:
    """Make the JSON Schema of an answer from its model; every key is always there."""
    from pydantic import TypeAdapter  # noqa: PLC0415  # heavy, and only the published file needs it

    schema = TypeAdapter(answer).json_schema(mode="serialization")
    for part in (schema, *schema["$defs"].values()):
        if "properties" in part:
            part["required"] = list(part["properties"])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def write_csv(frame: pl.DataFrame) -> str:
    """Write the whole table as CSV, harmless in a spreadsheet."""
    return _guard(frame).write_csv()


def _guard(frame: pl.DataFrame) -> pl.DataFrame:
    """Put a quote before text like a formula, and spell out letters that can not be seen."""
    spelled = [_spell_out_column(column) if column.dtype == pl.String else column for column in frame]
    return pl.DataFrame(spelled).with_columns(
        pl.when(pl.any_horizontal(pl.col(name).str.starts_with(start) for start in _FORMULA_STARTS))
        .then(pl.concat_str(pl.lit("'"), pl.col(name)))
        .otherwise(pl.col(name))
        .alias(name)
        for name, kind in frame.schema.items()
        if kind == pl.String
    )


def _spell_out_column(texts: pl.Series) -> pl.Series:
    unsafe = texts.filter(texts.str.contains(_INVISIBLE)).unique()
    if unsafe.is_empty():
        return texts
    return texts.replace(unsafe, [visible(text, most=len(text)) for text in unsafe.to_list()])


def name_table_files(kind: Format) -> frozenset[str]:
    """List the names of all files that a folder of tables holds."""
    return frozenset({MANIFEST, _ABOUT, *(f"{table.name}.{kind}" for table in _KNOWN)})


def is_ours(manifest: str, kind: Format) -> bool:
    """Whether a manifest is that of a folder of that kind."""
    try:
        read = json.loads(manifest)
    except (ValueError, RecursionError):
        return False
    return isinstance(read, dict) and read.get("schema") == _TABLES_SCHEMA and read.get("format") == kind


def write_tables(
    folder: Path,
    kind: Format,
    source: str,
    frame: Callable[[str], pl.DataFrame],
    tables: Sequence[Table] = TABLES,
) -> None:
    """Write tables into an empty folder, one by one; with a manifest and a page that describe their columns.

    Args:
        folder: where to.
        kind: of the files.
        source: name of the export.
        frame: makes the table of a name.
        tables: which, and what their columns mean.
    """
    listed = []
    for table in tables:
        made = frame(table.name)
        path = folder / f"{table.name}.{kind}"
        if kind == "csv":
            _guard(made).write_csv(path)
        else:
            _write_parquet(made, path)
        columns = [{"name": one.name, "type": str(one.kind), "meaning": one.meaning} for one in table.columns]
        listed.append(
            {"name": table.name, "file": path.name, "row_is": table.row_is, "rows": len(made)}
            | {"columns": columns}
        )
    about = {"schema": _TABLES_SCHEMA, "format": kind, "wallscope_version": __version__, "source": source}
    (folder / MANIFEST).write_text(
        json.dumps({**about, "tables": listed}, indent=1, ensure_ascii=True) + "\n", encoding="utf-8"
    )
    (folder / _ABOUT).write_text(describe_columns(tables), encoding="utf-8")


def _write_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a table; a disk that is full is an `OSError`, which polars turns into one of its own."""
    content = io.BytesIO()
    frame.write_parquet(content, compression="zstd", row_group_size=_ROWS_A_GROUP)
    path.write_bytes(content.getvalue())


def describe_columns(tables: Sequence[Table]) -> str:
    """Say what the columns of the tables mean, as Markdown; what several tables share is said once."""
    counts = Counter(one for table in tables for one in table.columns)
    shared = [one for one, count in counts.items() if count >= _SHARED_BY]
    lines = [_TABLES_HEAD]
    if shared:
        lines += ["## Columns of several tables", "", *_list_columns(shared)]
    for table in tables:
        own = [one for one in table.columns if one not in shared]
        also = [f"`{one.name}`" for one in table.columns if one in shared]
        lines += [f"## {table.name}", "", f"Each row describes {table.row_is}.", ""]
        if also:
            lines += [f"Shared columns: {', '.join(also)}.", ""]
        lines += _list_columns(own)
    return "\n".join(lines)


def _list_columns(columns: Iterable[TableColumn]) -> list[str]:
    rows = [f"| `{one.name}` | {one.kind} | {one.meaning} |" for one in columns]
    return ["| column | type | meaning |", "| --- | --- | --- |", *rows, ""]


def write_junit(suite: str, cases: Sequence[tuple[str, bool, str]], failure: str) -> str:
    """Write checks as JUnit XML, which CI systems show as tests.

    Args:
        suite: name of the command that checks.
        cases: name of each, whether it held, and the evidence.
        failure: the text of each that failed.
    """
    failed = sum(not passed for _, passed, _ in cases)
    root = ET.Element(
        "testsuite", name=f"wallscope {suite}", tests=str(len(cases)), failures=str(failed), errors="0"
    )
    for name, passed, evidence in cases:
        case = ET.SubElement(root, "testcase", classname=f"wallscope.{suite}", name=visible(name))
        text = visible(evidence, most=500)
        if passed:
            ET.SubElement(case, "system-out").text = text
        else:
            ET.SubElement(case, "failure", message=text).text = visible(failure, most=1_000)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def write_brief_json(brief: Brief) -> str:
    """Write a brief answer as one line of JSON, ASCII alone; what is unknown or empty is left out."""
    packed = {**pack_brief(brief), "next": {"command": brief.next.command}}
    return json.dumps(packed, separators=(",", ":"), allow_nan=False) + "\n"


def pack_brief(brief: Brief) -> dict[str, Any]:
    """Return a brief answer as plain values of JSON; what is unknown or empty is left out."""
    packed: dict[str, Any] = _pack_value(brief)
    return packed


def _pack_value(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
        return {name: _pack_value(entry) for name, entry in fields if entry not in (None, (), {})}
    if isinstance(value, Mapping):
        return {key: _pack_value(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return [_pack_value(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.{DIGITS_COUNT}g}")
    return spell_surrogates(value) if isinstance(value, str) else value


def write_brief(brief: Brief) -> str:
    """Write a brief answer as text: a line for each thing, no drawing, no alignment."""
    return "".join(f"{spell_out(line)}\n" for line in _list_lines(brief))


def _list_lines(brief: Brief) -> Iterator[str]:
    yield brief.subject
    yield f"verdict: {brief.verdict}"
    if brief.numbers:
        yield f"numbers: {'; '.join(starmap(write_named_number, brief.numbers.items()))}"
    yield from _list_brief_rows(brief)
    if brief.omitted:
        yield f"{units.number(brief.omitted)} more: raise --max-rows"
    if brief.confidence is not None:
        yield f"confidence: {brief.confidence}"
    for entry in brief.unknown:
        cure = "" if entry.cure is None else f" → {entry.cure}"
        yield f"unknown: {entry.what}, because: {entry.because}{cure}"
    yield f"next: {brief.next.command}"


def write_named_number(evidence: str, value: float) -> str:
    """Write a number in the unit that its place in the full answer says.

    >>> write_named_number("/ranks/0/typical/step_ns", 51_084_442)
    'typical step 51.1 ms'
    >>> write_named_number("/diagnosis/walls/host/share", 0.1471)
    'host 14.7 %'
    >>> write_named_number("/ranks/0/typical/walls/host", 7_509_201)
    'host 7.5 ms'
    >>> write_named_number("/step/ratio", 1.13632)
    'ratio 1.136'
    """
    *above, name = evidence.split("/")
    name = _NAMES.get(name, name) if "answers" not in above else f"replayed_{name}"
    name = f"typical_{name}" if above[-1] == "typical" else name
    if name in {"share", "mean_share"}:
        return f"{above[-1]} {units.percent(value)}"
    if name.endswith("_ns") or above[-1] == "walls":
        return f"{name.removesuffix('_ns').replace('_', ' ')} {units.duration(int(value))}"
    words = name.replace("_", " ")
    if "error" in name:
        return f"{words} {units.percent(value)}"
    return f"{words} {value:.4g}" if isinstance(value, float) else f"{words} {units.number(value)}"


@singledispatch
def _list_brief_rows(brief: Brief) -> Iterator[str]:
    raise TypeError(brief)


@_list_brief_rows.register
def _(brief: AnalysisBrief) -> Iterator[str]:
    if brief.recommendations:
        yield "recommendations (upper bound on speedup, not additive):"
    for place, entry in enumerate(brief.recommendations, start=1):
        yield f"{place}. {_write_recommendation(entry)}"


@_list_brief_rows.register
def _(brief: BreakdownBrief) -> Iterator[str]:
    for cause in brief.causes:
        yield f"{cause.cause} {units.duration(cause.typical_ns)} ({units.percent(cause.share)})"


@_list_brief_rows.register
def _(brief: WhatIfBrief) -> Iterator[str]:
    for answer in brief.answers:
        time = f"{units.duration(answer.step_ns)}, {units.write_speedup(answer.speedup)}"
        yield f"{answer.option}: {time}, next wall: {answer.next_wall}"


@_list_brief_rows.register
def _(brief: ComparisonBrief) -> Iterator[str]:
    for change in brief.changes:
        sides = units.change(change.base_ns, change.head_ns)
        yield f"{change.cause} {units.signed_duration(change.delta_ns)} ({sides})"


@_list_brief_rows.register
def _(brief: CheckBrief) -> Iterator[str]:
    for check in brief.checks:
        cure = "" if check.unblock is None else f" → {check.unblock}"
        yield f"{check.level}: {check.id} ({check.feature}): {check.text}{cure}"


@_list_brief_rows.register
def _(brief: TextBrief) -> Iterator[str]:
    for section in brief.sections:
        yield f"{section.heading}:"
        yield from (f"  {line}" for line in section.lines)


@_list_brief_rows.register
def _(brief: TableBrief) -> Iterator[str]:
    for row in brief.rows:
        yield "; ".join(starmap(_write_csv_cell, row.items()))


def _write_csv_cell(name: str, value: Scalar) -> str:
    if name == "start_ns" and isinstance(value, int):
        return f"start {units.seconds(value)} s"  # as Nsight shows it, and `wallscope at` takes it
    if name == "recorded_utc_ns" and isinstance(value, int):
        return f"recorded {units.utc(value)}"
    if name.endswith("_ns") and isinstance(value, int | float):
        return write_named_number(f"/{name}", round(value))
    return f"{name.replace('_', ' ')} {_write_plain(value)}"


def _write_plain(value: Scalar) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _write_recommendation(entry: Recommendation) -> str:
    worth = units.write_gains(entry.speedup_ceiling, entry.most_speedup) or "no bound known"
    worth += f" ({entry.assumes})" if entry.assumes else ""
    more = f" and {units.plural(entry.more_settings, 'other setting')}" if entry.more_settings else ""
    settings = f"; set {' · '.join(entry.settings)}{more}" if entry.settings else ""
    blocked = "".join(f"; blocked: {line}" for line in entry.blocked_by)
    conditions = f"; preconditions {entry.preconditions}" if entry.preconditions else ""
    return f"{entry.id}: {entry.title}; {worth}{conditions}{settings}{blocked}"


def frame_capture(capture: Capture, name: str) -> pl.DataFrame:
    """Return one of `CAPTURE_TABLES`, with the columns and types of its declaration."""
    match name:
        case "ranks":
            frame = capture.ranks
        case "operations":
            frame = _frame_operations(capture)
        case "threads":
            frame = capture.threads
        case "calls":
            frame = _spell_names(capture.calls, capture.call_names)
        case "ranges":
            frame = _join(
                _spell_names(capture.ranges, capture.range_names), capture.autograd_ranges, AUTOGRAD_RANGES
            )
        case "syncs":
            frame = capture.syncs
        case "events":
            frame = capture.events
        case _:
            frame = capture.collective_calls
    schema = _DECLARED[name].schema
    return frame.select(schema.names()).cast(schema)


def _frame_operations(capture: Capture) -> pl.DataFrame:
    streams = capture.streams.select("stream", "context", "number")
    frame = (
        _spell_names(capture.operations, capture.names)
        .join(streams, on="stream", how="left", maintain_order="left")
        .with_columns(stream="number")
        .join(capture.copies, on="op", how="left", maintain_order="left")
        .join(capture.kernels, on="op", how="left", maintain_order="left")
    )
    frame = _join(frame, capture.kernel_occupancy, KERNEL_OCCUPANCY).rename({"achieved": "occupancy"})
    return _join(frame, capture.kernel_flops, KERNEL_FLOPS)


def _join(rows: pl.DataFrame, more: pl.DataFrame | None, schema: pl.Schema) -> pl.DataFrame:
    """Add what the profiler may have recorded, by the first column of the schema; null if it did not."""
    return rows.join(
        schema.to_frame() if more is None else more, on=schema.names()[0], how="left", maintain_order="left"
    )


def _spell_names(rows: pl.DataFrame, names: pl.DataFrame) -> pl.DataFrame:
    """The rows with texts in place of the numbers of names."""
    spelled = rows.join(names, on="name", how="left", maintain_order="left")
    return spelled.with_columns(name="text").drop("text")

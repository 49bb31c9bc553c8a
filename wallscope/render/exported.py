"""Tables as files in a folder: CSV or Parquet, with a manifest and a page that tell their columns."""

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, Literal

import polars as pl

from wallscope._version import __version__
from wallscope.model.table_columns import JOB_TABLES, TABLES, Table
from wallscope.render.tables import guarded

Format = Literal["csv", "parquet"]
MANIFEST: Final = "manifest.json"
TABLES_SCHEMA: Final = "wallscope.tables/1"
_ABOUT: Final = "README.md"
_ROWS_A_GROUP = 262_144


def files(kind: Format) -> frozenset[str]:
    """The names of all files that a folder of that kind holds."""
    return frozenset({MANIFEST, _ABOUT, *(f"{table.name}.{kind}" for table in (*TABLES, *JOB_TABLES))})


def is_ours(manifest: str, kind: Format) -> bool:
    """Whether a manifest is that of a folder of that kind."""
    try:
        told = json.loads(manifest)
    except ValueError:
        return False
    return isinstance(told, dict) and told.get("schema") == TABLES_SCHEMA and told.get("format") == kind


def write_tables(
    folder: Path,
    kind: Format,
    source: str,
    frame: Callable[[str], pl.DataFrame],
    tables: Sequence[Table] = TABLES,
) -> None:
    """Write tables into an empty folder, one by one; `source` is the export, `frame` makes a table."""
    row_counts = {}
    for table in tables:
        made = frame(table.name)
        path = folder / f"{table.name}.{kind}"
        if kind == "csv":
            guarded(made).write_csv(path)
        else:
            made.write_parquet(path, compression="zstd", row_group_size=_ROWS_A_GROUP)
        row_counts[table.name] = len(made)
    (folder / MANIFEST).write_text(_manifest(kind, source, row_counts, tables), encoding="utf-8")
    (folder / _ABOUT).write_text(columns_as_markdown(tables), encoding="utf-8")


def _manifest(kind: Format, source: str, row_counts: dict[str, int], tables: Sequence[Table]) -> str:
    listed = [
        {
            "name": table.name,
            "file": f"{table.name}.{kind}",
            "row_is": table.row_is,
            "rows": row_counts[table.name],
            "columns": [
                {"name": column.name, "type": str(column.kind), "meaning": column.meaning}
                for column in table.columns
            ],
        }
        for table in tables
    ]
    told = {
        "schema": TABLES_SCHEMA,
        "format": kind,
        "wallscope_version": __version__,
        "source": source,
        "tables": listed,
    }
    return json.dumps(told, indent=1, ensure_ascii=True) + "\n"


def columns_as_markdown(tables: Iterable[Table]) -> str:
    """What the columns of the tables mean, as Markdown."""
    lines = [
        "# Tables",
        "",
        "Times are integer nanoseconds of session time, spans are half-open, shares are 0 to 1; an empty",
        "cell is unknown or does not apply. In CSV a quote stands before text that is like a formula, and",
        "letters that can not be seen are spelled out; Parquet has all text as it is.",
    ]
    for table in tables:
        lines += ["", f"## {table.name}", "", f"One row: {table.row_is}.", "", "| column | type | meaning |"]
        lines.append("| --- | --- | --- |")
        lines += [f"| `{one.name}` | {one.kind} | {one.meaning} |" for one in table.columns]
    return "\n".join(lines) + "\n"

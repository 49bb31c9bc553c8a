"""What an export holds, for `wallscope info`: works on every export, also without device operations."""

import re
from pathlib import Path

from wallscope.model.capture import Contents, Progress, TableContents
from wallscope.nsys import catalog, findings
from wallscope.nsys.findings import check_payloads
from wallscope.nsys.identity import (
    identify_export,
    read_capture_options,
    read_duration_ns,
    read_export_facts,
)
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import Database, make_database

_EVENT_TYPE = re.compile(r"[A-Za-z0-9]{1,40}")


def read_contents(path: Path, progress: Progress) -> Contents:
    """Versions, machine, tables with row counts, and limits of an export.

    Raises:
        InputError: the file is no readable export.
    """
    with open_tables(path, progress) as tables:
        source = make_database(path, tables)
        facts = read_export_facts(source)
        traced, graph_mode = _read_options(source)
        return Contents(
            export=identify_export(source, facts),
            traced=traced,
            duration_ns=read_duration_ns(source),
            graph_mode=graph_mode,
            processes=_count_processes(source),
            tables=tuple(
                TableContents(table, rows_are, source.row_count(table))
                for table, rows_are in catalog.CONTENTS.items()
            ),
            other_tables=len(set(source.columns) - set(catalog.CONTENTS)),
            findings=(
                *findings.check_losses(source),
                *findings.check_export(facts),
                *findings.check_gpus(source),
                *check_payloads(source),
            ),
        )


def _read_options(source: Database) -> tuple[tuple[str, ...], str | None]:
    traced: set[str] = set()
    modes: set[str] = set()
    for name, value in read_capture_options(source):
        if isinstance(value, str) and _EVENT_TYPE.fullmatch(value):
            (traced if name == "CAPTURE_EVENT_TYPE" else modes).add(value)
    return tuple(sorted(traced)), modes.pop().lower() if len(modes) == 1 else None


def _count_processes(source: Database) -> int | None:
    if not source.has("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"):
        return None
    ((processes,),) = source.rows("process_count")
    return int(processes)

"""What an export holds, for `wallscope info`: works on every export, also without device operations."""

import re
from pathlib import Path

from wallscope.model.capture import Contents, Progress, TableContents
from wallscope.nsys import catalog, findings
from wallscope.nsys.connection import opened
from wallscope.nsys.identity import export_facts, export_identity
from wallscope.nsys.range_findings import payload_findings
from wallscope.nsys.tables import Database, database

_EVENT_TYPE = re.compile(r"[A-Za-z0-9]{1,40}")


def read_contents(path: Path, progress: Progress) -> Contents:
    """Versions, machine, tables with row counts, and limits of an export.

    Raises:
        InputError: the file is no readable export.
    """
    with opened(path, progress) as tables:
        source = database(path, tables)
        facts = export_facts(source)
        traced, graph_mode = _options(source)
        return Contents(
            export=export_identity(source, facts),
            traced=traced,
            duration_ns=_duration_ns(source),
            graph_mode=graph_mode,
            processes=_processes(source),
            tables=tuple(
                TableContents(table, rows_are, source.row_count(table))
                for table, rows_are in catalog.CONTENTS.items()
            ),
            other_tables=len(set(source.columns) - set(catalog.CONTENTS)),
            findings=(
                *findings.loss_findings(source),
                *findings.export_findings(facts),
                *findings.gpu_findings(source),
                *payload_findings(source),
            ),
        )


def _options(source: Database) -> tuple[tuple[str, ...], str | None]:
    if not source.has("META_DATA_CAPTURE", "name", "value"):
        return (), None
    traced: set[str] = set()
    modes: set[str] = set()
    for name, value in source.rows("capture_options"):
        if isinstance(value, str) and _EVENT_TYPE.fullmatch(value):
            (traced if name == "CAPTURE_EVENT_TYPE" else modes).add(value)
    return tuple(sorted(traced)), modes.pop().lower() if len(modes) == 1 else None


def _duration_ns(source: Database) -> int | None:
    if not source.has("ANALYSIS_DETAILS", "duration"):
        return None
    ((duration_ns,),) = source.rows("capture_duration")
    return duration_ns if isinstance(duration_ns, int) else None


def _processes(source: Database) -> int | None:
    if not source.has("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid"):
        return None
    ((processes,),) = source.rows("process_count")
    return int(processes)

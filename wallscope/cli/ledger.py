"""`wallscope ledger`: recommendations that recorded commits applied, their bounds and gains."""

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import Verbose
from wallscope.cli.output import print_out, write_file
from wallscope.cli.store_options import (
    RECORDS,
    Labels,
    folder_of_store,
    list_series,
    open_store,
    parse_labels,
    warn_of_unreadable,
)
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.cli.tables import Csv, Json, check_targets
from wallscope.errors import ComparisonError, StoreError

MOST_COMMITS = 50
"""Commits of each testbed that are compared, the newest."""

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wallscope.model.calibration import FixCalibration
    from wallscope.model.ledger import Ledger
    from wallscope.model.profile import Record
    from wallscope.store import Store


def ledger(  # noqa: PLR0913  # options are parameters
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="[STORE]", help="Folder or URL of records. Default: $WALLSCOPE_STORE, or .wallscope."
        ),
    ] = None,
    *,
    label: Labels = None,
    commits: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=2,
            rich_help_panel=RECORDS,
            help="Compare the newest N commits of each testbed.",
        ),
    ] = MOST_COMMITS,
    csv: Csv = None,
    json: Json = None,
    verbose: Verbose = False,
) -> None:
    """List applied recommendations: bound and measured gain.

    Neighboring commits of each testbed are compared. A recommendation for the older one that the newer one
    has applied is listed with its bound, the replayed and the measured gain, and the share that it realized.
    """
    from wallscope.render import data  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.terminal import render_sections  # noqa: PLC0415  # same
    from wallscope.views.applied_fixes import build_applied_list, list_ledger  # noqa: PLC0415  # same

    is_talkative(verbose=verbose)
    wanted = parse_labels(label)
    place = open_store(store)
    check_targets((csv, json), inputs=(folder_of_store(place),))
    found = read_ledger(place, wanted, commits)
    warn_of_unreadable(place)
    if csv is not None:
        write_file(csv, data.write_csv(list_ledger(found)))
    if json is not None:
        write_file(json, data.write_json(found))
    if "-" not in {str(csv), str(json)}:
        print_out(render_sections(build_applied_list(found)))


def read_experience(named: str) -> "tuple[FixCalibration, ...]":
    """Return what recommendations realized of their bounds in a store.

    Raises:
        StoreError: the store cannot be read, or is empty.
    """
    place = open_store(named)
    found = read_ledger(place, {}, MOST_COMMITS)
    warn_of_unreadable(place)
    return found.calibration


def read_ledger(place: "Store", labels: dict[str, str], most_commits: int) -> "Ledger":
    """Compare the neighboring commits of each testbed of a store.

    Raises:
        StoreError: the store cannot be read, or has no such record.
    """
    from wallscope import __version__  # noqa: PLC0415  # keeps --help fast
    from wallscope.cli.store_options import make_commit_side  # noqa: PLC0415  # same
    from wallscope.compare.calibration import calibrate_fixes  # noqa: PLC0415  # same
    from wallscope.compare.compare import CompareOptions, compare_sides  # noqa: PLC0415  # same
    from wallscope.model.ledger import LEDGER_SCHEMA, AppliedEntry, Ledger  # noqa: PLC0415  # same

    series = list_series(place, labels)
    if not series:
        raise StoreError(
            f"{place} — has no such record — store a run first: wallscope record RUN --commit SHA"
        )
    every = tuple(record for own in series for records in own for record in records)
    entries: list[AppliedEntry] = []
    pairs = without_fixes = 0
    with report_progress() as progress:
        for own in series:
            for base, head in _list_neighbors(own, most_commits):
                if not any(record.fixes for record in base):
                    without_fixes += 1
                    continue
                progress(f"comparing {base[0].commit[:12]} and {head[0].commit[:12]}")
                sides = (make_commit_side(place, base, every), make_commit_side(place, head, every))
                try:
                    found = compare_sides(*sides, CompareOptions())
                except ComparisonError:  # no rank in common: nothing to measure
                    continue
                pairs += 1
                entries += [
                    AppliedEntry(
                        str(head[0].testbed.machine),
                        base[0].commit,
                        head[0].commit,
                        head[0].recorded_utc_ns,
                        found.verdict,
                        one,
                    )
                    for one in found.applied
                ]
    entries.sort(key=lambda entry: (entry.recorded_utc_ns, entry.head, entry.applied.id))
    return Ledger(LEDGER_SCHEMA, __version__, pairs, without_fixes, tuple(entries), calibrate_fixes(entries))


def _list_neighbors(
    commits: "Sequence[tuple[Record, ...]]", most: int
) -> "list[tuple[tuple[Record, ...], tuple[Record, ...]]]":
    newest = commits[-most:]
    return list(pairwise(newest))

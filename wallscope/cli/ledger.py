"""`wallscope ledger`: recommendations that recorded commits applied, their bounds and gains."""

from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.options import Verbose
from wallscope.cli.output import print_out, write_file
from wallscope.cli.store_options import (
    RECORDS,
    Labels,
    folder_of_store,
    open_store,
    parse_labels,
    warn_of_unreadable,
)
from wallscope.cli.streams import is_talkative, report_progress
from wallscope.cli.tables import Csv, Json, check_targets

MOST_COMMITS = 50
"""Commits of each testbed that are compared, the newest."""

if TYPE_CHECKING:
    from wallscope.model.calibration import FixCalibration
    from wallscope.model.ledger import Ledger
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
    from wallscope.compare.applied_ledger import compile_ledger  # noqa: PLC0415  # keeps --help fast

    with report_progress() as progress:
        return compile_ledger(place, labels, most_commits, progress)

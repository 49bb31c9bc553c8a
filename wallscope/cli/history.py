"""`wallscope history`: how a time went from commit to commit."""

from typing import Annotated

import typer

from wallscope.cli.stored import Labels, StorePlace, labels_of, opened
from wallscope.cli.tables import Csv, Json, check_targets, deliver
from wallscope.errors import OptionError, StoreError


def history(  # options are parameters
    metric: Annotated[
        str, typer.Argument(metavar="METRIC", help="step, a wall, or a cause as host/framework.")
    ],
    *,
    label: Labels = None,
    store: StorePlace = None,
    csv: Csv = None,
    json: Json = None,
) -> None:
    """List a time of the typical step by commit, in the order of recording."""
    from wallscope.model.kinds import Wall  # noqa: PLC0415  # keeps --help fast
    from wallscope.render.grids import render_sections  # noqa: PLC0415
    from wallscope.views.listings import build_history, list_times  # noqa: PLC0415

    if metric != "step" and metric.partition("/")[0] not in set(Wall):
        raise OptionError(
            f"{metric[:80]} — is no metric — write step, a wall as host, or a cause as host/framework"
        )
    check_targets((csv, json), inputs=())
    wanted = labels_of(label)
    place = opened(store)
    records = [entry for entry in place.all_records() if entry.testbed.fits(wanted)]
    if not records:
        raise StoreError(f"{place} — holds no such record — wallscope record a run first")
    frame = list_times(records, metric)
    deliver(frame, (csv, json), render_sections(build_history(frame, metric)))

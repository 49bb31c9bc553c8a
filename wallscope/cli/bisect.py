"""`wallscope bisect`: which commit between a good and a bad one changed a time."""

from typing import TYPE_CHECKING, Annotated

import typer

from wallscope.cli.brief import IsBrief, MaxRows, count_rows, show_brief
from wallscope.cli.history import check_metric
from wallscope.cli.store_options import (
    Labels,
    StorePlace,
    find_commit,
    folder_of_store,
    list_commits,
    open_store,
    parse_commit_range,
    parse_labels,
    warn_of_unreadable,
)
from wallscope.cli.tables import Csv, Json, check_targets, write_table
from wallscope.errors import OptionError, StoreError
from wallscope.render.texts import visible

if TYPE_CHECKING:
    from wallscope.model.profile import Record
    from wallscope.store import Store


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
    from wallscope.compare.bisection import bisect_times  # noqa: PLC0415  # keeps --help fast
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
    records = _select(place, good, bad, parse_labels(label))
    warn_of_unreadable(place)
    order = _order(records, good, bad)
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


def _select(place: "Store", good: str, bad: str, labels: dict[str, str]) -> "list[Record]":
    """Return the references of the one testbed that both commits have.

    Raises:
        StoreError: they have none in common, or several.
    """
    from wallscope.store import drop_repetitions  # noqa: PLC0415  # keeps --help fast

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


def _order(records: "list[Record]", good: str, bad: str) -> tuple[str, ...]:
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

"""The page of a capture in which no GPU worked: what was timed and recorded on the host."""

from collections.abc import Sequence
from statistics import median

from wallscope import units
from wallscope._version import __version__
from wallscope.model.capture import Contents
from wallscope.model.section import Column, Section, tabulate
from wallscope.records import dataclass
from wallscope.render.html import FirstScreen, render_page
from wallscope.render.texts import visible

NO_GPU_WORK = "No GPU worked in this capture, so no wall is measured and there is no verdict."
_WORDS = "No GPU work"


@dataclass(frozen=True, slots=True)
class TimedSteps:
    """The steps of one rank that were timed on the host, before, during or after the capture."""

    rank: int
    when: str
    times_ns: tuple[int, ...]


def write_host_page(contents: Sequence[Contents], timed: Sequence[TimedSteps]) -> str:
    """Return the page of captures without work of a GPU, with times of steps where some are known."""
    names = [visible(one.export.name) for one in contents]
    steps = sorted(time_ns for one in timed if one.when == "during" for time_ns in one.times_ns)
    lines = (
        [f"The captured step took {units.duration(round(median(steps)))} on the host (median)."]
        if steps
        else []
    )
    first = FirstScreen(
        f"{names[0]}: no GPU work",
        (*names, f"captured {units.utc(contents[0].export.session_start_utc_ns)}"),
        _WORDS,
        (),
        (),
        "",
        sentence=NO_GPU_WORK,
        lines=tuple(lines),
    )
    sections = (_build_timed(timed), _build_recorded(contents))
    return render_page("host.html.j2", first, sections, version=__version__)


def _build_timed(timed: Sequence[TimedSteps]) -> Section | None:
    known = [one for one in timed if one.times_ns]
    if not known:
        return None
    columns = (
        Column("rank", "rank", "count"),
        Column("when", "profiler", value=lambda one: {"during": "on"}.get(one.when, f"off, {one.when}")),
        Column("steps", "steps", "count", value=lambda one: len(one.times_ns)),
        Column("median_ns", "median", "ms", value=lambda one: round(median(one.times_ns))),
        Column("shortest_ns", "shortest", "ms", value=lambda one: min(one.times_ns)),
        Column("longest_ns", "longest", "ms", value=lambda one: max(one.times_ns)),
    )
    answer = "Times are from the end of one step to the end of the next, on the clock of the host."
    return Section("timed", "How long did steps take?", answer, (tabulate("Steps by rank", columns, known),))


def _build_recorded(contents: Sequence[Contents]) -> Section:
    columns = (Column("rows_are", "of"), Column("row_count", "rows", "count"))
    grids = tuple(
        tabulate(
            f"Recorded in {visible(one.export.name)}",
            columns,
            [entry for entry in one.tables if entry.row_count],
        )
        for one in contents
    )
    return Section("contents", "What was recorded?", "", grids)

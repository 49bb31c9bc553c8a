"""For notebooks and programs: analyses and comparisons as objects.

import wallscope
result = wallscope.analyze("run.sqlite")
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from wallscope import pipeline
from wallscope.compare.compare import CompareOptions, Side, compare_sides, comparison_report
from wallscope.errors import OptionError, UnknownWordError, WallscopeError
from wallscope.files import write_chunks
from wallscope.jobs.inputs import (
    fetch_source,
    find_captures,
    find_exports,
    is_many,
    parse_source,
    resolve_runs,
)
from wallscope.jobs.merge import job_report, rematch_ranks, run_job
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options, Selection
from wallscope.model.comparison import Comparison
from wallscope.model.diagnosis import StepFacts
from wallscope.model.table_columns import TABLES
from wallscope.records import dataclass
from wallscope.render.data import write_json
from wallscope.render.figures import FIGURES
from wallscope.summary.tables import ANSWER_TABLES, build_answer_table
from wallscope.thresholds.verdict import MARGIN_SHARE
from wallscope.trace.parallel_axes import parse_stream_axes
from wallscope.views.comparison_statement import add_opening

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from wallscope.summary.tables import TableBuilder

__all__ = ["ComparisonResult", "Result", "WallscopeError", "analyze", "diff"]

AnyPath = str | PathLike[str]


@dataclass(frozen=True, eq=False)
class Result:
    """The analysis of one export, or of a job. `analysis` has the same content as the JSON.

    Everything else is made on request. For a job, you only get the tables of the answer, and a report
    without timelines and gaps.
    """

    analysis: Analysis
    _found: pipeline.AnalyzedCapture | None = field(repr=False)

    @property
    def verdict(self) -> str:
        """The verdict in sentences."""
        return self.analysis.diagnosis.verdict

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of the tables. docs/tables.md lists their columns."""
        return ANSWER_TABLES if self._found is None else tuple(table.name for table in TABLES)

    def frame(self, name: str) -> pl.DataFrame:
        """Return a table with the same rows and columns that `--csv` and `--parquet` write.

        Raises:
            UnknownWordError: there is no such table; the message lists those that exist.
        """
        return build_answer_table(self.analysis, name) if self._tables is None else self._tables.frame(name)

    def to_pandas(self, name: str) -> "pd.DataFrame":
        """Return the same table for pandas. Integers stay integers even if values are missing.

        Raises:
            UnknownWordError: there is no such table; the message lists those that exist.
        """
        import pandas as pd  # noqa: PLC0415  # heavy, and only this needs it

        frame = self.frame(name)
        return pd.DataFrame({column.name: _for_pandas(column) for column in frame})

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of the figures."""
        return tuple(FIGURES)

    def figure(self, name: str) -> "go.Figure":
        """Return a plotly figure of the representative rank.

        Raises:
            UnknownWordError: there is no such figure; the message lists those that exist.
        """
        import plotly.graph_objects as go  # noqa: PLC0415  # heavy, and only this needs it

        if name not in FIGURES:
            raise UnknownWordError(f"{name} — is not a figure — the figures are {', '.join(FIGURES)}")
        drawn = FIGURES[name](self.analysis, self.analysis.ranks[self.analysis.diagnosis.rank_index])
        figure = go.Figure(data=list(drawn.traces), layout=dict(drawn.layout))
        return figure.update_layout(title={"text": drawn.caption}, height=drawn.height_px + 80)

    @cached_property
    def report(self) -> str:
        """The report as a single HTML page that works offline. For a job, it has no timelines and gaps."""
        from wallscope.views.page_analysis import write_analysis_page  # noqa: PLC0415  # jinja2 is for this alone

        if self._found is None:
            return write_analysis_page(job_report(self.analysis, rematch_ranks(self.analysis)))
        return write_analysis_page(pipeline.build_report(self._found, lambda _: None))

    def to_html(self, path: AnyPath) -> None:
        """Write the report.

        Raises:
            OutputError: the file cannot be written.
        """
        write_chunks(Path(path), (self.report.encode(),))

    def to_json(self) -> str:
        """Return the answer as JSON text that follows the published schema."""
        return write_json(self.analysis)

    def to_markdown(self) -> str:
        """Return the answer as Markdown for a pull request."""
        from wallscope.views.analysis import write_analysis_markdown  # noqa: PLC0415  # only when asked for

        return write_analysis_markdown(self.analysis)

    @cached_property
    def _tables(self) -> "TableBuilder | None":
        return None if self._found is None else pipeline.build_tables(self._found)

    def _repr_html_(self) -> str:
        from wallscope.views.analysis import write_analysis_card  # noqa: PLC0415  # same

        return write_analysis_card(self.analysis)

    def __repr__(self) -> str:
        names = [export.name for export in self.analysis.inputs]
        shown = repr(names[0]) if len(names) == 1 else f"{len(names)} exports"
        return f"<wallscope.Result {shown}: {self.analysis.diagnosis.dominant_wall}>"


@dataclass(frozen=True, eq=False)
class ComparisonResult:
    """A comparison of two sides. `comparison` has the same content as the JSON."""

    comparison: Comparison
    _sides: tuple[Side, Side] = field(repr=False)
    _rank: int | None = field(repr=False)

    @property
    def verdict(self) -> str:
        """`regression`, `improvement`, `no-change`, `inconclusive` or `incomparable`."""
        return self.comparison.verdict

    @cached_property
    def report(self) -> str:
        """The comparison as a single HTML page that works offline."""
        from wallscope.views.comparison import write_comparison_page  # noqa: PLC0415  # as above

        return write_comparison_page(comparison_report(self.comparison, *self._sides, self._rank))

    def to_html(self, path: AnyPath) -> None:
        """Write the page.

        Raises:
            OutputError: the file cannot be written.
        """
        write_chunks(Path(path), (self.report.encode(),))

    def to_json(self) -> str:
        """Return the comparison as JSON text that follows the published schema."""
        return write_json(self.comparison)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown for a pull request."""
        from wallscope.views.comparison import write_comparison_markdown  # noqa: PLC0415  # same

        return write_comparison_markdown(self.comparison)

    def _repr_html_(self) -> str:
        from wallscope.views.comparison import write_comparison_card  # noqa: PLC0415  # same

        return write_comparison_card(self.comparison)

    def __repr__(self) -> str:
        sides = f"{self.comparison.base.name!r} → {self.comparison.head.name!r}"
        return f"<wallscope.ComparisonResult {sides}: {self.verdict}>"


def analyze(  # noqa: PLR0913  # options are parameters
    path: AnyPath | Sequence[AnyPath],
    *,
    rank: int | None = None,
    device: int | None = None,
    steps: int | tuple[int, int] | None = None,
    time_ns: tuple[int, int] | None = None,
    step_range: str | None = None,
    kernels: AnyPath | None = None,
    config: AnyPath | None = None,
    streams: Mapping[int, str] | None = None,
    step_facts: StepFacts | None = None,
    python_functions: bool = False,
    jobs: int = 1,
    dask: str | None = None,
) -> Result:
    """Analyze one export, or several as one job, like `wallscope analyze`.

    Args:
        path: a .sqlite export, a parquetdir or arrowdir folder, a report if nsys is installed, or a trace of
            PyTorch's profiler. Several of these, a folder of them or a pattern are the ranks of one job.
            fsspec URLs work too.
        rank: analyze only the rank with this number.
        device: analyze only ranks on this CUDA device.
        steps: analyze only this step, or the steps from first to last, both included.
        time_ns: analyze only this half-open interval of session time.
        step_range: regular expression of the NVTX ranges that are steps.
        kernels: TOML file of kernel-name rules that take precedence over the shipped ones.
        config: the configuration of the run.
        streams: the parallel axis of CUDA streams, for example `{20: "ep"}`.
        python_functions: whether Python functions in a PyTorch trace with stacks become ranges.
        step_facts: what you know about a step: its unprofiled length, tokens, FLOPs.
        jobs: how many exports of a job to analyze in parallel.
        dask: address of a Dask cluster to analyze them instead.

    Raises:
        WallscopeError: one of its subclasses; the message says what to do.
    """
    chosen = (steps, steps) if isinstance(steps, int) else steps
    options = Options(
        kernels=_path(kernels),
        step_range=step_range,
        selection=Selection(rank, device, chosen, time_ns),
        streams=parse_stream_axes([f"{stream}={axis}" for stream, axis in (streams or {}).items()]),
        step_facts=step_facts or StepFacts(),
        configuration=_path(config),
        python_functions=python_functions,
    )
    named = [path] if isinstance(path, str | PathLike) else path
    paths = [parse_source(os.fspath(one)) for one in named]
    if not paths:
        raise OptionError("no path — names no export — give one or several")
    if dask is not None or is_many(paths):
        job = run_job(find_exports(paths), options, lambda _: None, jobs=jobs, dask=dask).analysis
        return Result(job, None)
    with fetch_source(paths[0]) as file:
        found = pipeline.analyze_capture(file, options, lambda _: None, keeps_slices=True)
    return Result(found.analysis, found)


def diff(
    base: AnyPath, head: AnyPath, *, rank: int | None = None, margin_ratio: float = MARGIN_SHARE
) -> ComparisonResult:
    """Compare two sides (exports, JSON results, or folders or patterns of runs) like `wallscope diff`.

    Args:
        base: the side before the change.
        head: the side after it.
        rank: the rank to compare.
        margin_ratio: a change of the step up to this share counts as none.

    Raises:
        WallscopeError: one of its subclasses; the message says what to do.
    """
    sides = (_load_side(base), _load_side(head))
    found = add_opening(compare_sides(*sides, CompareOptions(rank=rank, margin_ratio=margin_ratio)))
    return ComparisonResult(found, sides, rank)


def _load_side(named: AnyPath) -> Side:
    runs = resolve_runs(find_captures(str(named)), Options(), lambda _: None)
    return Side(Path(named).name or str(named), runs)


def _path(named: AnyPath | None) -> Path | None:
    return None if named is None else Path(named)


def _for_pandas(column: pl.Series) -> Any:
    """A column with a type that has room for missing values; without pyarrow."""
    import pandas as pd  # noqa: PLC0415  # heavy

    if column.dtype.is_integer() and column.null_count():
        return pd.Series(column.to_list(), dtype=str(column.dtype))  # both call it Int64
    if column.dtype == pl.Boolean:
        return pd.Series(column.to_list(), dtype="boolean")
    return column.to_numpy() if column.dtype.is_numeric() else column.to_list()

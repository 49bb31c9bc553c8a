"""From a diagnosis to what could be done about it: rules as data, judged against the run."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from wallscope.fixes.explain import explained
from wallscope.fixes.predicates import Run
from wallscope.fixes.ranking import ranked
from wallscope.fixes.rules import shipped_rules
from wallscope.model.analysis import Analysis
from wallscope.model.configuration import RunConfiguration
from wallscope.model.fixes import Precondition, Setting

__all__ = ["explained", "with_fixes"]


def with_fixes(analysis: Analysis, configuration: RunConfiguration, names: pl.Series) -> Analysis:
    """The analysis with its fixes, ranked, and the ids of those that answer each opportunity.

    `names` are those of kernels and ranges: they tell the framework.
    """
    fixes = ranked(Run(analysis, configuration, names), shipped_rules(), _unchecked)
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    return replace(analysis, fixes=fixes, opportunities=opportunities)


def _unchecked(ids: Sequence[str], _: tuple[Setting, ...]) -> tuple[Precondition, ...]:
    return tuple(Precondition(name, name, "unknown") for name in ids)

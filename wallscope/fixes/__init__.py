"""From a diagnosis and a run's configuration to what could be done, and what is in its way."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from wallscope.fixes.explain import explained
from wallscope.fixes.preconditions import checked
from wallscope.fixes.predicates import Run
from wallscope.fixes.ranking import ranked
from wallscope.fixes.rules import shipped_rules
from wallscope.fixes.settings import with_settings
from wallscope.model.analysis import Analysis
from wallscope.model.configuration import RunConfiguration, TraceFacts
from wallscope.model.fixes import Precondition, Setting

__all__ = ["explained", "with_fixes"]


def with_fixes(
    analysis: Analysis, configuration: RunConfiguration, trace: TraceFacts, names: pl.Series
) -> Analysis:
    """The analysis with its fixes, ranked, and the ids of those that answer each opportunity.

    Preconditions are judged for the configuration that a fix would leave. `names` are those of kernels
    and ranges: they tell the framework.
    """

    def judged(ids: Sequence[str], settings: tuple[Setting, ...]) -> tuple[Precondition, ...]:
        return checked(ids, with_settings(configuration, settings), trace)

    fixes = ranked(Run(analysis, configuration, names), shipped_rules(), judged)
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    return replace(analysis, fixes=fixes, opportunities=opportunities)

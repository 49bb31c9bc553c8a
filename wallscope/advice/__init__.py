"""From a diagnosis and a run's configuration to what could be done, and what is in its way."""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from wallscope.advice.explain import explained
from wallscope.advice.preconditions import checked
from wallscope.advice.predicates import Run
from wallscope.advice.ranking import divided, ranked
from wallscope.advice.rules import shipped_rules
from wallscope.advice.seen import merged
from wallscope.advice.settings import with_settings
from wallscope.model.analysis import Analysis
from wallscope.model.configuration import RunConfiguration, TraceFacts
from wallscope.model.fixes import Fix, Precondition, Setting
from wallscope.model.whatif import Question

__all__ = ["asked_of_replay", "explained", "with_divided_fixes", "with_fixes"]


def asked_of_replay(fix: Fix) -> tuple[Question, ...]:
    """What a replay of the steps is asked, together, for what a fix would win; may be nothing."""
    rule = next(rule for rule in shipped_rules() if rule.id == fix.id)
    return rule.questions(fix.causes)


def with_fixes(analysis: Analysis, told: RunConfiguration, trace: TraceFacts, names: pl.Series) -> Analysis:
    """The analysis with its fixes, ranked, the ids of those that answer each opportunity, and contradictions.

    What the configuration tells and what the trace shows count together; preconditions are judged for what
    they would be with the fix. `names` are those of kernels and ranges: they tell the framework.
    """
    configuration, contradictions = merged(told, trace)

    def judged(ids: Sequence[str], settings: tuple[Setting, ...]) -> tuple[Precondition, ...]:
        return checked(ids, with_settings(configuration, settings), trace)

    fixes = ranked(Run(analysis, configuration, names, told), shipped_rules(), judged)
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    findings = (*contradictions, *analysis.capture.findings)
    return replace(
        analysis,
        capture=replace(analysis.capture, findings=findings),
        fixes=fixes,
        opportunities=opportunities,
    )


def with_divided_fixes(analysis: Analysis, names: pl.Series) -> Analysis:
    """The analysis with its fixes told of causes that were divided since they were found.

    Those that answer moving or waiting stay where these matter, with settings and preconditions as they
    were; what answers waiting alone comes new. `names` are those of kernels and ranges.
    """
    fixes = divided(Run(analysis, RunConfiguration(), names), shipped_rules(), analysis.fixes or ())
    opportunities = tuple(
        replace(entry, fixes=tuple(fix.id for fix in fixes if entry.cause in fix.causes))
        for entry in analysis.opportunities
    )
    return replace(analysis, fixes=fixes, opportunities=opportunities)

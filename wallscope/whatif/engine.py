"""The what-if engine: a replay window simulated unchanged and with questions put into it.

The answers of `wallscope whatif`, the gains of fixes and the upper bounds of causes are all asked here. They
differ in how much they simulate, from which error on they are not given, and in what they take to go with a
cause. `Purpose` says which; these differences are to be unified.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from wallscope.model.whatif import Asked, Question
from wallscope.thresholds import (
    ASKED_PLAYED_COUNT,
    FIX_REPLAY_ERROR_SHARE,
    MOST_PLAYED_COUNT,
    PATH_ERROR_SHARE,
    UPPER_BOUND_ERROR_SHARE,
    UPPER_BOUND_PLAYED_COUNT,
)
from wallscope.timeline.replay_graph import ReplayGraph
from wallscope.timeline.simulate import Run, simulate
from wallscope.timeline.stretch import ReplayWindow
from wallscope.units import percent
from wallscope.whatif.changes import Changes
from wallscope.whatif.draft import Draft
from wallscope.whatif.targets import Rules


@dataclass(frozen=True, slots=True)
class Purpose:
    """What is simulated for one kind of answer.

    Attributes:
        most_operations: how many operations of all ranks a window holds, but one step at least.
        largest_error: by what share of a step it may be off where it is simulated with the latencies of the
            other steps; `None`: this is not looked at.
        largest_own_error: the same where it is simulated with its own latencies.
        rules: what goes with a cause.
    """

    most_operations: int
    largest_error: float | None
    largest_own_error: float | None
    rules: Rules


# To be unified: one size, one error of steps simulated with the latencies of the others, one set of rules.
UPPER_BOUNDS = Purpose(
    most_operations=UPPER_BOUND_PLAYED_COUNT,
    largest_error=None,
    largest_own_error=UPPER_BOUND_ERROR_SHARE,
    rules=Rules(
        framework_refills=True,
        blocking_calls_stay=True,
        recompute_has_host_time=False,
        returns_count_alone=True,
    ),
)
"""What the step of each rank could win at most without a cause; asked about a dozen causes of each rank."""

_NAMED = Rules(
    framework_refills=False,
    blocking_calls_stay=False,
    recompute_has_host_time=True,
    returns_count_alone=False,
)
FIXES = Purpose(
    most_operations=MOST_PLAYED_COUNT,
    largest_error=FIX_REPLAY_ERROR_SHARE,
    largest_own_error=PATH_ERROR_SHARE,
    rules=_NAMED,
)
"""Gains of fixes, and the critical path, whose error is the second; asked once about an export."""
ASKED = Purpose(
    most_operations=ASKED_PLAYED_COUNT,
    largest_error=Asked().largest_error,
    largest_own_error=None,
    rules=_NAMED,
)
"""`wallscope whatif`; `--accept-error` replaces the error."""


def too_far_off(error: float, most: float) -> str:
    """Return why a replay is not believed."""
    return (
        f"played again by the lags of the other steps, steps are {percent(error)} off, over {percent(most)}"
    )


class Engine:
    """Simulates a window unchanged once, then with questions put into it.

    Args:
        window: the window.
        graph: its graph, with the latencies that it is to be simulated with.
        rules: what goes with a cause.
    """

    def __init__(self, window: ReplayWindow, graph: ReplayGraph, rules: Rules) -> None:
        self.graph, self._window, self._rules = graph, window, rules

    @cached_property
    def unchanged(self) -> Run:
        """The run of the unchanged window."""
        return simulate(self.graph)

    @cached_property
    def changes(self) -> Changes:
        """What questions can be about."""
        return Changes(self._window, self._rules)

    def draft(self, questions: Iterable[Question]) -> tuple[Draft, list[str]]:
        """Return the graph with all of some questions put into it, and what was changed and assumed."""
        draft = Draft(self.graph)
        return draft, [note for one in questions for note in self.changes.put(one, draft)]

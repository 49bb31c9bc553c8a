"""Programs run, written, read and made ready to be played again."""

from typing import NamedTuple

from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.attribution.prepared import Prepared, list_rank_windows
from wallscope.model.capture import Options
from wallscope.preparation import prepare
from wallscope.replay.windows import SimulatedSteps, select_replay_window
from wallscope.trace.collectives import find_partners


class Read(NamedTuple):
    """A stretch of the first rank, and what it was made from."""

    stretch: SimulatedSteps
    prepared: Prepared


def read(program, path) -> Read:
    write_run(run(program), path, has_events=True)
    prepared = prepare(path, Options(), lambda _: None)
    parts, facts, evidence = prepared.trace, prepared.facts, prepared.evidence
    between = find_partners(parts.operations, facts.collectives)
    stretch = select_replay_window(
        evidence, list_rank_windows(parts), between, parts.range_tree, parts.capture.names, 0, 160_000
    )
    return Read(stretch, prepared)

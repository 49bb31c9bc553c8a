"""Programs run, written, read and made ready to be played again."""

from typing import NamedTuple

from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.attribution.attribute import Evidence
from wallscope.pipeline import Options, divide, gathered
from wallscope.replay.windows import SimulatedSteps, select_replay_window
from wallscope.summary.rank import Trace, list_rank_windows
from wallscope.trace.collectives import find_partners


class Read(NamedTuple):
    """A stretch of the first rank, and what it was made from."""

    stretch: SimulatedSteps
    parts: Trace
    evidence: Evidence


def read(program, path) -> Read:
    write_run(run(program), path, has_events=True)
    parts, division = divide(path, Options(), lambda _: None)
    facts, evidence = gathered(parts, division, Options(), lambda _: None)
    between = find_partners(parts.operations, facts.collectives)
    stretch = select_replay_window(
        evidence, list_rank_windows(parts), between, parts.range_tree, parts.capture.names, 0, 160_000
    )
    return Read(stretch, parts, evidence)

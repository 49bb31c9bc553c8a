"""Programs run, written, read and made ready to be played again."""

from typing import NamedTuple

from fixtures.simulation.run import run
from fixtures.simulation.writing import write_run
from wallscope.analysis import Options, divide, gathered
from wallscope.timeline.partners import partners
from wallscope.timeline.stretch import Stretch
from wallscope.walls.accounting import Divided, rank_windows
from wallscope.walls.attribution import Evidence
from wallscope.walls.stretches import playable


class Read(NamedTuple):
    """A stretch of the first rank, and what it was made from."""

    stretch: Stretch
    parts: Divided
    evidence: Evidence


def read(program, path) -> Read:
    write_run(run(program), path, has_events=True)
    parts, division = divide(path, Options(), lambda _: None)
    facts, evidence = gathered(parts, division, Options(), lambda _: None)
    between = partners(parts.operations, facts.collectives)
    stretch = playable(evidence, rank_windows(parts), between, parts.phases, parts.capture.names, 0, 160_000)
    return Read(stretch, parts, evidence)

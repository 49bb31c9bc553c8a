"""Steps of captures that others made, simulated with work that takes another share of its time."""

from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import run_part
from tests.replay.scaling import measure_scaled
from wallscope.attribution.prepared import list_rank_windows
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.preparation import prepare
from wallscope.replay.windows import find_longest_waiting, select_replay_window

TRACES = Path(__file__).resolve().parents[3] / "shared" / "traces"
EXPORTS = sorted(TRACES.glob("*.sqlite"))

pytestmark = pytest.mark.skipif(not EXPORTS, reason="no captures of others here: ../shared/traces is absent")


def read(path):
    """The steps that `wallscope whatif` replays; skipped where there are none."""
    try:
        prepared = prepare(path, Options(), lambda _: None)
        trace, ranks = prepared.trace, list_rank_windows(prepared.trace)
        window = select_replay_window(
            prepared.evidence,
            ranks,
            prepared.facts.partners,
            trace.range_tree,
            trace.capture.names,
            find_longest_waiting(ranks, trace.places_without_marker()),
            30_000,
        )
    except NothingToAnalyzeError as error:
        pytest.skip(f"nothing to replay: {error}"[:150])
    if not window.steps["typical"].any():
        pytest.skip("nothing to replay: there are no two adjacent steps")
    return window


@pytest.mark.parametrize("path", run_part(EXPORTS, of=27))
def test_no_step_gets_shorter_while_its_work_takes_longer(path):
    found = measure_scaled(read(path))

    assert found
    for target, lengths_ns in found.items():
        for shorter_ns, longer_ns in pairwise(lengths_ns):
            assert longer_ns >= shorter_ns, target

"""Real exports: nothing binds an operation that had ended long before."""

import numpy as np
import pytest

from tests.conftest import TRACES, run_part
from wallscope.attribution.prepared import list_rank_windows
from wallscope.attribution.slices import blame_gaps
from wallscope.errors import NothingToAnalyzeError
from wallscope.model.capture import Options
from wallscope.model.enums import LINK_KINDS, LinkKind
from wallscope.preparation import prepare
from wallscope.thresholds.steps import LONGEST_UNEXPLAINED_LATENCY_NS

EXPORTS = sorted(TRACES.glob("*.sqlite"))

pytestmark = pytest.mark.skipif(not EXPORTS, reason="no real exports here: ../shared/traces is absent")


@pytest.mark.parametrize("path", run_part(EXPORTS, part=1, of=27))
def test_no_dependency_latency_is_longer_than_one_may_be(path):
    try:
        prepared = prepare(path, Options(), lambda _: None)
    except NothingToAnalyzeError:
        return  # that it is refused by name another test tells
    for rank in list_rank_windows(prepared.trace):
        links = blame_gaps(rank.operations, prepared.evidence.constraints)
        is_latency = links.kind == LINK_KINDS.index(LinkKind.HAND_OVER)
        long_ns = (links.end_ns - links.start_ns)[is_latency]

        assert np.all(long_ns <= LONGEST_UNEXPLAINED_LATENCY_NS)

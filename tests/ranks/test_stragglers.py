"""Why a rank is late, where profiles are odd."""

from types import SimpleNamespace

import polars as pl

from wallscope.model.enums import ComputeCategory, Wall
from wallscope.ranks.stragglers import _KEY, RankSteps, explain_lateness


def of_rank(work_ns):
    """A rank with one kernel in one step."""
    key = {name: [str(ComputeCategory.GEMM) if name == "category" else "k"] for name in _KEY}
    profile = SimpleNamespace(
        keys=pl.DataFrame({"key": [0], **key}),
        work=pl.DataFrame({"input": [0], "step": [0], "key": [0], "work_ns": [work_ns], "count": [1]}),
    )
    return RankSteps(profile, pl.DataFrame({"input": [0], "step": [0]}))


def test_kernels_that_take_no_time_on_peers_explain_no_ratio():
    found = explain_lateness(of_rank(500), [of_rank(0), of_rank(0)], {Wall.COMPUTE: 500})

    assert (found.wall, found.cause, found.ratio, found.over_ns) == (Wall.COMPUTE, "compute/gemm", None, 500)
    assert "the same kernels of its peers take none" in found.sentence

from collections import Counter

import polars as pl
import pytest

from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.truth import truths
from fixtures.simulation.writing import write_run
from tests.conftest import run_part
from wallscope.model.capture import Options
from wallscope.preparation import prepare


def causes_of_steady_steps(path, rank):
    """Time of each cause in each steady step of one rank, in ns; ranks count in order of their ids."""
    prepared = prepare(path, Options(), lambda _: None)
    parts = prepared.trace
    is_own = pl.col("rank_id") == parts.capture.ranks["rank_id"][rank]
    own = prepared.slices().filter(is_own)
    found = {step: Counter() for step in parts.windows.filter(is_own & pl.col("steady"))["step"]}
    for step, cause, start_ns, end_ns in own.select("step", "cause", "start_ns", "end_ns").iter_rows():
        if step in found:
            found[step][cause] += end_ns - start_ns
    return [dict(sorted(causes.items())) for causes in found.values()]


@pytest.mark.parametrize("story", run_part(stories(), name=lambda story: story.name, of=2))
def test_every_nanosecond_of_a_story_has_its_true_cause(story, tmp_path):
    played = run(story.program)
    write_run(played, tmp_path / "story.sqlite", has_os_calls=story.has_os_calls)
    truth = truths(played, is_split=False)[story.rank]

    assert causes_of_steady_steps(tmp_path / "story.sqlite", story.rank) == [
        dict(step.causes) for step in truth.steady
    ]

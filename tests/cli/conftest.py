"""Answers that the tests of comparing commands share."""

from dataclasses import replace

import pytest

from fixtures.scenario import scenarios
from tests.compare.test_compare import steps
from tests.profile.random_profiles import profile_of, work
from wallscope.model.capture import GraphTracing, Options
from wallscope.pipeline import analyze
from wallscope.profile.codec import pack_profile
from wallscope.render.data import write_json


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Answers of three commits: the second is 10 % slower, the third was also tuned."""
    folder = tmp_path_factory.mktemp("answers")
    path = folder / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "communication-partly-hidden").write(path)
    bare = analyze(path, Options(), lambda _: None)
    path.unlink()
    tuned = replace(work(), graphs=GraphTracing.NODE, settings=(("micro_batch_size", "2"),))
    plain = replace(work(), settings=(("micro_batch_size", "1"),))
    for name, factor, seed, of in (
        ("base", 1.0, 1, plain),
        ("head", 1.1, 2, plain),
        ("tuned", 1.2, 3, tuned),
    ):
        stored = pack_profile(profile_of(name, steps(20, factor, seed), of))
        answer = replace(bare, ranks=(replace(bare.ranks[0], profile=stored),))
        (folder / f"{name}.json").write_text(write_json(answer), encoding="utf-8")
    return folder

"""Another process of the export that delays launched work is named with its rows."""

import pytest

from fixtures.simulation.stories_inferred import wait_stories
from wallscope.model.capture import Options
from wallscope.model.finding_codes import FindingCode
from wallscope.pipeline import analyze

(STORY,) = (one for one in wait_stories() if one.name.startswith("another process in the export"))


@pytest.mark.parametrize("is_near", [False, True])
def test_the_other_process_is_named_where_it_delays_work(tmp_path, is_near):
    STORY.write(tmp_path / "run.sqlite", 101, is_near=is_near)
    found = analyze(tmp_path / "run.sqlite", Options(), lambda _: None)
    told = [one for one in found.capture.findings if one.code == FindingCode.OTHER_PROCESS]

    assert len(told) == (0 if is_near else 1)
    assert all(
        "on its GPU while process 9" in one.lead and "operations of that process ran" in one.message
        for one in told
    )

import contextlib
import re
import time

import pytest

from tests.conftest import ROOT
from wallscope.errors import OptionError
from wallscope.logs.formats import list_log_formats
from wallscope.logs.step_times import read_logged_steps

PAGE = (ROOT / "docs/logs.md").read_text(encoding="utf-8")


def test_the_page_names_source_and_commit_of_each_format():
    written = re.findall(
        r"^\| ([^|]+) \| `([^`]+)` \| ([^|]+) \|$",
        PAGE.partition("\n| format | source | commit |\n")[2],
        re.MULTILINE,
    )

    assert written == [
        (one.name, one.source, one.commit) for one in list_log_formats() if one.source != "none"
    ]


FILLS = ("1", "1,", "1 ", "step 1 ", "step time 1", "{", " ", " \t", "iteration 1/", "50%|1/1 [", "10:10:10 ")


@pytest.mark.parametrize("kind", list_log_formats(), ids=lambda kind: kind.id)
def test_no_line_takes_long(kind, tmp_path):
    path = tmp_path / "run.log"
    for fill in FILLS:
        lines = [(kind.marks[0] + fill * 4_096)[:4_096], fill * 1_000 + kind.marks[0] + fill * 1_000]
        path.write_text("\n".join(lines), encoding="utf-8")
        begin = time.process_time()
        with contextlib.suppress(OptionError):
            read_logged_steps([path])
        assert time.process_time() - begin < 1

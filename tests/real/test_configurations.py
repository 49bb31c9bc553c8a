"""Configurations that frameworks accept or refuse, with the framework's own verdict, read and checked."""

import csv
from pathlib import Path

import pytest

from tests.conftest import slow
from wallscope.advice.configuration import read_configuration
from wallscope.advice.preconditions import check_configuration, features, precondition_rows
from wallscope.advice.published import find_machine
from wallscope.advice.settings import vocabulary
from wallscope.errors import ConfigurationError, LayoutError
from wallscope.model.advice import TraceFacts

PUBLISHED = Path(__file__).resolve().parents[3] / "shared" / "configs"
pytestmark = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="no configurations here: ../shared/configs is absent"
)


def labels():
    """The rows of the table of files, hardware and verdicts."""
    with (PUBLISHED / "labels.tsv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def judge(row):
    """What the check says of a file: `None` where it is refused, else the rows that stop the run."""
    machine = find_machine(row["hardware"]).facts() if row["hardware"] else TraceFacts()
    try:
        read = read_configuration(PUBLISHED / row["file"], with_defaults=True)
        return check_configuration(read.configuration, machine, read.findings, read.form).stops
    except (ConfigurationError, LayoutError):
        return None


@pytest.fixture(scope="module", params=[4, *slow(1)], ids=["each fourth", "all"])
def judged(request):
    """Files with their rows of the table and their verdicts."""
    return [(row, judge(row)) for row in labels()[:: request.param]]


def test_no_configuration_that_a_framework_accepts_is_refused_or_stopped(judged):
    valid = [(row["file"], stops) for row, stops in judged if row["truth"] != "invalid"]
    wrong = {file: stops for file, stops in valid if stops is None or stops}

    print(f"{len(wrong)} of {len(valid)} accepted configurations are refused or stopped")  # noqa: T201  # the rate
    assert wrong == {}


def named_settings(text):
    """The settings that a text names."""
    words = {word.strip(".,:()'\"=").lstrip("-").replace("-", "_") for word in text.split()}
    return words & set(vocabulary().kinds)


def test_what_a_framework_refuses_is_stopped_by_a_row_about_what_it_names(judged):
    """A row is about its settings and those that switch its feature on."""
    refused = [(row, stops) for row, stops in judged if row["truth"] == "invalid"]
    switches = {
        one.id: {name for clause in one.on for each in clause for name in each.names()} for one in features()
    }
    passed, beside = {}, {}
    for row, stops in refused:
        rows = [precondition_rows()[one.precondition.id] for one in stops or ()]
        about = {name for one in rows for name in one.keys() | switches[one.feature]}
        named = named_settings(row["error"])
        if not rows:
            passed[row["file"]] = row["error"]
        elif named and not named & about:
            beside[row["file"]] = (row["error"], [one.id for one in rows])

    print(f"{len(passed)} of {len(refused)} refused configurations pass")  # noqa: T201  # the rate
    assert (passed, beside) == ({}, {})

"""Answers that a user gives: read as they were written, or refused in a line."""

import json

import pytest

from fixtures.scenario import scenarios
from wallscope.errors import InputError, WallscopeError
from wallscope.jobs.answers import read_answer
from wallscope.jobs.merge import run_job
from wallscope.model.capture import Options, Selection
from wallscope.pipeline import analyze
from wallscope.render.data import write_json


def silent(_):
    pass


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    path = tmp_path_factory.mktemp("given") / "run.sqlite"
    next(one for one in scenarios() if one.name == "communication-partly-hidden").write(path)
    return path


@pytest.fixture(scope="module")
def written(export):
    path = export.with_suffix(".json")
    path.write_text(write_json(analyze(export, Options(), silent)))
    return path


def test_an_answer_is_read_as_it_was_written(written):
    assert write_json(read_answer(written)) == written.read_text()


def test_a_job_of_answers_is_that_of_their_exports(export, written):
    jobs = [run_job([path], Options(), silent).analysis for path in (export, written)]

    assert write_json(jobs[0]) == write_json(jobs[1])


def without(key):
    return lambda answer: answer.pop(key)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda answer: answer.update(schema="wallscope.analysis/0"), "is wallscope.analysis/0, not"),
        (lambda answer: answer.update(schema=["?"]), "names no schema, so it is not"),
        (
            lambda answer: answer["ranks"][0].update(device="first"),
            "is not a complete answer: ranks.0.device is not as it should be",
        ),
        (without("diagnosis"), "is not a complete answer: diagnosis is not as it should be"),
        (without("schema"), "is neither a trace of PyTorch's profiler nor a JSON answer of analyze"),
        (lambda answer: answer.update(ranks=[]), "is about no rank"),
        (lambda answer: answer.update(inputs=answer["inputs"] * 2), "is about 2 exports"),
        (lambda answer: answer["ranks"][0].update(profile=None), "lacks the profile of a rank"),
        (lambda answer: answer["ranks"][0]["profile"].update(data="eJw="), "its profile is damaged"),
    ],
    ids=[
        "version",
        "odd version",
        "wrong type",
        "lacks a part",
        "no schema",
        "no rank",
        "of a job",
        "no profile",
        "damaged profile",
    ],
)
def test_what_is_no_such_answer_is_refused_in_a_line(written, tmp_path, change, said):
    answer = json.loads(written.read_text())
    change(answer)
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(answer))

    with pytest.raises(WallscopeError, match=rf"changed.json — {said}.* — .*") as told:
        read_answer(path)
    assert "\n" not in str(told.value)


def test_an_empty_file_is_called_empty(tmp_path):
    (tmp_path / "odd.json").write_bytes(b"")

    with pytest.raises(InputError, match=r"odd.json — is empty — copy or write the file again"):
        read_answer(tmp_path / "odd.json")


@pytest.mark.parametrize("content", [b"[]", b"{", b"\xff", b"[" * 100_000, b'"x"'])
def test_what_is_no_json_is_refused_in_a_line(tmp_path, content):
    path = tmp_path / "odd.json"
    path.write_bytes(content)

    with pytest.raises(
        InputError,
        match=r"odd.json — is neither a trace of PyTorch's profiler nor a JSON answer of analyze",
    ):
        read_answer(path)


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(InputError, match=r"absent.json — cannot be read: .* — check the path"):
        read_answer(tmp_path / "absent.json")


def test_what_selects_comes_too_late_for_an_answer(written):
    with pytest.raises(WallscopeError, match=r"run.json — is a finished answer, which options cannot change"):
        run_job([written], Options(selection=Selection(rank=1)), silent)

"""What a worker of a cluster sends back is read as an answer of a stranger: never raised, never trusted."""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.jobs.simulated import write_job
from wallscope.errors import InputError, WallscopeError, find_kinds
from wallscope.jobs import run
from wallscope.jobs.run import analyze_export, analyze_on_cluster
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options
from wallscope.render.data import write_json

PATH = Path("/data/run.sqlite")


class Sent:
    """A future of a task that a hostile worker took."""

    def __init__(self, sent):
        self.sent = sent

    def cancelled(self):
        return False

    def exception(self):
        return self.sent if isinstance(self.sent, BaseException) else None

    def result(self):
        return self.sent

    def release(self):
        pass


class Cluster:
    """A cluster that runs nothing: its workers send what they like."""

    def __init__(self, sent):
        self.sent = sent
        self.loop = None

    def submit(self, *_, **__):
        return Sent(self.sent)


def outcome(monkeypatch, sent):
    distributed = pytest.importorskip("distributed", reason="no Dask here: pip install 'wallscope[dask]'")
    monkeypatch.setattr(run, "_client", lambda _: nullcontext(Cluster(sent)))
    monkeypatch.setattr(run, "_await_worker", lambda *_: None)
    monkeypatch.setattr(run, "_check_versions", lambda *_: None)
    monkeypatch.setattr(run, "_iterate_done", lambda ready, *_: iter(ready))
    monkeypatch.setattr(distributed, "as_completed", lambda places, **_: list(places))
    ((place, found),) = analyze_on_cluster("tcp://x:1", [PATH], Options(), lambda _: None, analyze_export)
    assert place == 0
    return found


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = write_job(tmp_path_factory.mktemp("job") / "job", ranks=2)
    found = analyze_export(folder / "run_rank0.sqlite", Options())
    assert isinstance(found, Analysis)
    return found


def test_an_answer_arrives_whole(monkeypatch, answer):
    assert write_json(outcome(monkeypatch, ("answer", write_json(answer)))) == write_json(answer)


def test_the_worker_sends_text_alone(answer):
    assert run._alone_in_process(lambda *_: answer, PATH, Options()) == ("answer", write_json(answer))
    failed = InputError("x — y — z")
    assert run._alone_in_process(lambda *_: failed, PATH, Options()) == ("InputError", "x — y — z")


@pytest.mark.parametrize("kind", find_kinds(), ids=lambda kind: kind.__name__)
def test_every_kind_of_error_arrives_as_itself(monkeypatch, kind):
    found = outcome(monkeypatch, (kind.__name__, f"{PATH} — wrong — mend it"))
    assert (type(found), str(found)) == (kind, f"{PATH} — wrong — mend it")


@pytest.mark.parametrize(
    "sent",
    [
        None,
        1,
        "answer",
        b"answer",
        ("answer",),
        ("answer", None),
        ("answer", b"{}"),
        ("answer", ""),
        ("answer", "[]"),
        ("answer", "{}"),
        ("answer", '{"schema": "wallscope.analysis/0"}'),
        ("answer", "[" * 1_000_000),
        ("answer", "\ud800"),
        ("answer", "1" * 10_000),
        ("SystemExit", "0"),
        ("Exception", "x"),
        ("__class__", "x"),
        (["answer"], {}),
        {"answer": 1},
        object(),
        InputError("as an object"),
        SystemExit(0),
        SystemExit(1),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError("x"),
        RecursionError(),
        StopIteration(),
        RuntimeError("::error::x\n::set-output name=a::b\nhttps://me:secret@host/?sig=secret"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    ],
    ids=lambda sent: "object" if type(sent) is object else repr(sent)[:40],
)
def test_all_else_is_one_error_about_the_export(monkeypatch, sent):
    found = outcome(monkeypatch, sent)
    assert isinstance(found, WallscopeError)
    assert type(found) is InputError
    assert str(found).startswith(str(PATH))
    assert "\n" not in str(found)
    assert len(str(found)) < 3_000


def test_an_answer_that_was_changed_is_refused(monkeypatch, answer):
    text = write_json(answer)
    for before, after in (
        ('"ranks":', '"rank":'),
        ('"profile":', '"profile": null, "p":'),
        ('"inputs":', '"inputs": [], "i":'),
    ):
        assert isinstance(outcome(monkeypatch, ("answer", text.replace(before, after, 1))), InputError)


def test_an_answer_that_would_take_all_memory_is_refused(monkeypatch):
    found = outcome(monkeypatch, ("answer", "[" * 4_000_000))
    assert "of memory" in str(found)


def test_an_error_of_a_worker_shows_no_credential_and_gives_no_order(monkeypatch):
    from wallscope.cli.streams import break_orders
    from wallscope.urls import redact

    sent = RuntimeError("::error::x\n##[error]y https://me:secret@host/?sig=secret")
    shown = break_orders(redact(f"wallscope: {outcome(monkeypatch, sent)}\n"))
    assert "secret" not in shown
    assert "##[" not in shown
    assert not any(line.lstrip().startswith("::") for line in shown.splitlines())

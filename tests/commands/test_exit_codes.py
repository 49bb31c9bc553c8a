import pytest

import wallscope.pipeline
from wallscope import files
from wallscope.errors import InternalError


class Panic(BaseException):
    """As polars raises them: no `Exception`."""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        pytest.param(InternalError("a law is broken"), 70, "internal error; please report", id="broken law"),
        pytest.param(ValueError("a bug"), 70, "internal error; please report", id="bug"),
        pytest.param(Panic("a bug of a library"), 70, "internal error; please report", id="panic"),
        pytest.param(MemoryError(), 2, "not enough memory — raise the limit", id="no memory"),
        pytest.param(OSError(5, "Input/output error"), 2, "the system stopped this: Input/output", id="disk"),
        pytest.param(OSError(28, "No space"), 2, "the system stopped this: No space left", id="full disk"),
        pytest.param(OSError(13, "denied", "a/b"), 2, "a/b — cannot be used: denied", id="permission"),
        pytest.param(RuntimeError("can't start new thread"), 2, "starts no more threads", id="threads"),
        pytest.param(Panic("could not spawn threads: EAGAIN"), 2, "starts no more threads", id="pool"),
        pytest.param(OSError(9, "Bad file descriptor"), 70, "internal error; please report", id="handle"),
        pytest.param(FileNotFoundError(2, "absent", files.__file__), 70, "internal error", id="shipped"),
    ],
)
def test_every_error_becomes_an_exit_code(error, code, said, called, monkeypatch):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(wallscope.pipeline, "analyze_capture", fails)

    ran = called("analyze", "run.sqlite")

    assert ran.code == code
    assert said in ran.err
    assert ("Traceback" in ran.err) == (code == 70)

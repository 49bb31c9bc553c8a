"""What answers at the address of a scheduler may be none: one line within seconds."""

import os
import socket
import time
from contextlib import suppress
from threading import Event, Thread

import pytest

from wallscope.errors import OptionError
from wallscope.jobs import run
from wallscope.jobs.run import analyze_export, analyze_on_cluster
from wallscope.model.capture import Options


def stay_silent(_, ended):
    ended.wait(60)


def close(*_):
    """Every connection is closed in the end."""


def send_noise(connection, ended):
    connection.sendall(b"\xff" * 65_536)
    ended.wait(60)


def answer_as_a_web_server(connection, ended):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    ended.wait(60)


def claim_a_long_message(connection, ended):
    connection.sendall((1 << 40).to_bytes(8, "little") + os.urandom(100))
    ended.wait(60)


@pytest.mark.parametrize(
    "behave",
    [stay_silent, close, send_noise, answer_as_a_web_server, claim_a_long_message],
    ids=lambda one: one.__name__,
)
def test_what_is_no_scheduler_is_one_line(behave, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="no Dask here: pip install 'wallscope[dask]'")
    monkeypatch.setattr(run, "_PATIENCE_S", 2)
    monkeypatch.setattr(run, "_CONNECTING_S", 6)
    ended, serving = Event(), []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)

        def answer(connection):
            with connection, suppress(OSError):  # who asked may be gone
                behave(connection, ended)

        def serve():
            while not ended.is_set():
                with suppress(TimeoutError):
                    connection, _ = listening.accept()
                    connection.settimeout(60)
                    serving.append(Thread(target=answer, args=(connection,)))
                    serving[-1].start()

        serving.append(Thread(target=serve))
        serving[-1].start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        before_s = time.monotonic()
        try:
            with pytest.raises(OptionError, match=r"cannot be reached: .* — start the scheduler") as found:
                list(analyze_on_cluster(address, [tmp_path / "x"], Options(), lambda _: None, analyze_export))
        finally:
            ended.set()
            for thread in serving:
                thread.join()

    assert time.monotonic() - before_s < 30
    assert "\n" not in str(found.value)

"""What answers at the address of a scheduler may be none: one line within seconds."""

import os
import socket
import time
from threading import Thread

import pytest

from wallscope.errors import OptionError
from wallscope.jobs import run
from wallscope.jobs.run import analyze_export, analyze_on_cluster
from wallscope.model.capture import Options


def stay_silent(_):
    time.sleep(60)


def close(connection):
    connection.close()


def send_noise(connection):
    connection.sendall(b"\xff" * 65_536)
    time.sleep(60)


def answer_as_a_web_server(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    time.sleep(60)


def claim_a_long_message(connection):
    connection.sendall((1 << 40).to_bytes(8, "little") + os.urandom(100))
    time.sleep(60)


@pytest.mark.parametrize(
    "behave",
    [stay_silent, close, send_noise, answer_as_a_web_server, claim_a_long_message],
    ids=lambda one: one.__name__,
)
def test_what_is_no_scheduler_is_one_line(behave, tmp_path, monkeypatch):
    pytest.importorskip("distributed", reason="no Dask here: pip install 'wallscope[dask]'")
    monkeypatch.setattr(run, "_PATIENCE_S", 2)
    monkeypatch.setattr(run, "_CONNECTING_S", 6)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                Thread(target=behave, args=(connection,), daemon=True).start()

        Thread(target=serve, daemon=True).start()
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        before_s = time.monotonic()
        with pytest.raises(OptionError, match=r"cannot be reached: .* — start the scheduler") as found:
            list(analyze_on_cluster(address, [tmp_path / "x"], Options(), lambda _: None, analyze_export))

    assert time.monotonic() - before_s < 30
    assert "\n" not in str(found.value)

"""The same input gives the same bytes wherever it is read, and nothing is asked of the network."""

import socket
import sys

import pytest

from fixtures.scenario import scenarios
from tests.logs_written import WRITERS

PLACES = {
    "west": {"LC_ALL": "C", "TZ": "Pacific/Pago_Pago", "PYTHONHASHSEED": "1", "POLARS_MAX_THREADS": "1"},
    "east": {
        "LC_ALL": "tr_TR.UTF-8",
        "TZ": "Pacific/Kiritimati",
        "PYTHONHASHSEED": "2",
        "POLARS_MAX_THREADS": "4",
        "HOME": "/nowhere",
    },
}


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "dispatcher").write(path)
    return path


def test_answers_do_not_depend_on_locale_time_zone_hash_seed_or_threads(started, export, tmp_path):
    for place, environment in PLACES.items():
        (tmp_path / place).mkdir()
        outputs = ("--json", f"{place}/run.json", "--html", f"{place}/run.html")
        ran = started("analyze", export, "--no-cache", *outputs, **environment)
        (tmp_path / place / "terminal.txt").write_text(ran.out, encoding="utf-8")
        assert (ran.code, ran.err) == (0, "".join(f"Wrote {name}\n" for name in outputs[1::2]))

    west, east = ({path.name: path.read_bytes() for path in (tmp_path / place).iterdir()} for place in PLACES)
    assert len(west) == 3
    assert west == east


PLACES_OF_RECEIVERS = {
    "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "WANDB_API_KEY": "0" * 40,
    "WANDB_BASE_URL": "http://127.0.0.1:9",
}
"""Settings that clients send by, once they are asked to."""
COMMANDS = (
    ("analyze", "{export}", "--no-cache", "--json", "run.json", "--html", "run.html"),
    ("analyze", "{export}", "--no-cache", "--log", "run.log", "--ledger", "store"),
    ("record", "{export}", "--commit", "c" * 12, "--store", "store"),
    ("diff", "{export}", "run.json", "--json", "diff.json"),
    ("ledger", "store", "--json", "ledger.json"),
    *(
        ("history", "step", "--store", "store", "--format", form)
        for form in ("json", "csv", "openmetrics", "otlp")
    ),
)


def test_nothing_is_asked_of_the_network_but_by_the_user(called, export, tmp_path, monkeypatch):
    asked = []

    def refused(*_, **__):
        asked.append(1)
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refused)
    for name in ("wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)  # an import of a client fails
    for name, value in PLACES_OF_RECEIVERS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    lines = WRITERS["megatron-lm"][0]([400.0] * 30)
    (tmp_path / "run.log").write_text("\n".join(lines), encoding="utf-8")
    for number in range(2):
        called("record", export, "--commit", f"{number}" * 12, "--store", "store")

    for command in COMMANDS:
        ran = called(*(part.format(export=export) for part in command))
        assert (ran.code, asked) == (0, []), (command, ran.err)
    for tracker in ("wandb", "mlflow"):  # the option alone imports a client
        ran = called("history", "step", "--store", "store", "--to", tracker)
        assert (ran.code, asked) == (2, [])
        assert "needs the package" in ran.err
    with pytest.raises(AssertionError, match="a socket"):  # it would have been seen
        socket.create_connection(("127.0.0.1", 9))

"""The same input gives the same bytes wherever it is read, and nothing is asked of the network."""

import socket

import pytest

from fixtures.scenario import scenarios

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


def test_nothing_is_asked_of_the_network(called, export, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refused)
    monkeypatch.setattr(socket, "create_connection", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)

    ran = called(
        "analyze", export, "--no-cache", "--json", tmp_path / "run.json", "--html", tmp_path / "run.html"
    )

    assert ran.code == 0

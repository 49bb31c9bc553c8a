"""What is read of the counters of network cards and switches, in every generation that has them."""

import random
import sqlite3
from contextlib import closing

import pytest

from fixtures.export import ExportWriter
from wallscope.model.schemas import TRAFFIC
from wallscope.nsys.network_counters import read_traffic
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

CARD, OTHER, SWITCH = 77, -5, 1 << 60
SENT, RECEIVED, WAITS, ETHERNET = range(4)
METRICS = {
    SENT: ("IB: Bytes sent", "bytes/ms"),
    RECEIVED: ("IB: Bytes received", "B/s"),
    WAITS: ("IB: Send waits", "ticks/ms"),
    ETHERNET: ("Eth: Bytes sent", "packets/ms"),
}


def found(path, shift_ns=0):
    with open_tables(path) as tables:
        rows = read_traffic(make_database(path, tables), shift_ns, lambda _: None)
    if rows is None:
        return None
    assert rows.schema == TRAFFIC
    return rows.rows()


def describe(writer, metrics=METRICS, names=None):
    for number, (name, unit) in metrics.items():
        row = {"metricsListId": 1, "metricsIdx": number, "name": name, "description": "", "unit": unit}
        writer.row("TARGET_INFO_NETWORK_METRICS", **row)
    for nic_id, (global_id, name) in enumerate((names or {CARD: "mlx5_0"}).items()):
        writer.row("TARGET_INFO_NIC_INFO", nicId=nic_id, name=name, globalId=global_id)
        if writer.has("NIC_ID_MAP"):
            writer.row("NIC_ID_MAP", nicId=nic_id, globalId=global_id)


def sample(writer, start, metric, value, table="NET_NIC_METRIC", **more):
    row = {"start": start, "end": start + 100, "globalId": CARD, "portId": 1, "value": value, **more}
    writer.row(table, **row, metricsListId=1, metricsIdx=metric)


@pytest.mark.parametrize("schema", ["3.7.2", "3.24.0", "3.25.0", "3.28.1"])
def test_bytes_are_read_per_second_and_other_counters_are_not(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        describe(writer)
        for metric in METRICS:
            sample(writer, 1_000, metric, 5)

    assert found(tmp_path / "run.sqlite", 200) == [
        ("mlx5_0 (IB)", "received", 800, 900, 5.0),
        ("mlx5_0 (IB)", "sent", 800, 900, 5_000.0),
    ]


def test_the_order_of_rows_does_not_matter(tmp_path):
    for number, order in enumerate((sorted, lambda rows: random.Random(1).sample(rows, len(rows)))):
        with ExportWriter(tmp_path / f"{number}.sqlite") as writer:
            describe(writer)
            for start in order(range(0, 5_000, 100)):
                sample(writer, start, SENT, start)

    assert found(tmp_path / "0.sqlite") == found(tmp_path / "1.sqlite")


def test_cards_without_a_name_ports_and_switches_are_kept_apart(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "3.28.1") as writer:
        describe(writer)
        sample(writer, 0, SENT, 1)
        sample(writer, 0, SENT, 2, globalId=OTHER)
        sample(writer, 0, SENT, 3, globalId=OTHER, portId=2)
        sample(writer, 0, SENT, 4, "NET_IB_SWITCH_METRIC", globalId=SWITCH)

    assert {row[0]: row[-1] for row in found(tmp_path / "run.sqlite")} == {
        "mlx5_0 (IB)": 1_000.0,
        "card -5 port 1 (IB)": 2_000.0,
        "card -5 port 2 (IB)": 3_000.0,
        f"switch {SWITCH} (IB)": 4_000.0,
    }


def test_cards_of_old_exports_have_their_id_beside_the_name(tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path, "3.7.2") as writer:
        describe(writer)
        sample(writer, 0, SENT, 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE NIC_ID_MAP")
        connection.execute(f"ALTER TABLE TARGET_INFO_NIC_INFO ADD COLUMN globalId INTEGER DEFAULT {CARD}")
        connection.commit()

    assert found(path) == [("mlx5_0 (IB)", "sent", 0, 100, 1_000.0)]


def test_samples_that_cannot_be_are_left_out(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        describe(writer)
        sample(writer, 0, SENT, -1)
        sample(writer, 0, SENT, 1, end=0)
        sample(writer, 500, SENT, 1, end=400)
        sample(writer, 900, SENT, 3)

    assert found(tmp_path / "run.sqlite") == [("mlx5_0 (IB)", "sent", 900, 1_000, 3_000.0)]


@pytest.mark.parametrize("schema", ["2.7.1", "3.0.0", "3.7.2", "3.28.1"])
def test_without_samples_there_is_no_traffic(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema, lazy=False) as writer:
        if schema[0:3] > "3.0":
            describe(writer)

    assert found(tmp_path / "run.sqlite") is None


@pytest.mark.parametrize(
    "damage",
    ["DROP TABLE TARGET_INFO_NETWORK_METRICS", "ALTER TABLE NET_NIC_METRIC DROP COLUMN value"],
)
def test_a_damaged_table_yields_nothing_and_refuses_nothing(damage, tmp_path):
    path = tmp_path / "run.sqlite"
    with ExportWriter(path) as writer:
        describe(writer)
        sample(writer, 0, SENT, 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(damage)
        connection.commit()

    assert not found(path)

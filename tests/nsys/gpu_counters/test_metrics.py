import json
import random
import sqlite3
from contextlib import contextmanager

import polars as pl
import pytest

from fixtures.export import ExportWriter
from wallscope.errors import InputError
from wallscope.model.schemas import SAMPLES
from wallscope.nsys.gpu_counters import normalize, read_samples
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

TYPE = 0x0001_0001_0000_0000  # machine 1, source 1, GPU 0
HOSTILE_TYPE = TYPE | 0xC8 << 56  # written as a negative number
TEXTS = "GENERIC_EVENTS"
OLD_TEXTS = (
    f"CREATE TABLE {TEXTS} (rawTimestamp INTEGER NOT NULL, timestamp INTEGER, typeId INTEGER, data TEXT)"
)


def quiet(_):
    pass


@contextmanager
def export(path):
    with open_tables(path) as tables:
        yield make_database(path, tables)


def told(path, shift_ns=0, wanted=None):
    with export(path) as source:
        rows, names = read_samples(source, shift_ns, quiet, wanted)
    assert rows.schema == SAMPLES
    return (
        rows.join(names, left_on="metric", right_on="name", how="left", maintain_order="left")
        .select("gpu", "at_ns", "text", "value")
        .rows()
    )


def signed(number):
    return number - (1 << 64) if number >= 1 << 63 else number


def metric(writer, number, name, type_id=TYPE):
    row = {"typeId": signed(type_id), "sourceId": 1, "typeName": "", "metricId": number, "metricName": name}
    writer.row("TARGET_INFO_GPU_METRICS", **row)


def sample(writer, at, number, value, type_id=TYPE):
    row = {
        "timestamp": at,
        "rawTimestamp": 999,
        "typeId": signed(type_id),
        "metricId": number,
        "value": value,
    }
    writer.row("GPU_METRICS", **row)


def text(writer, at, data, *, raw=999, type_id=TYPE):
    if not writer.has(TEXTS):
        writer._ddl[TEXTS] = OLD_TEXTS
    more = {"genericEventId": writer.correlation()} if writer.has(TEXTS) else {}
    row = {"timestamp": at, "rawTimestamp": raw, "typeId": signed(type_id), "data": data, **more}
    writer.row(TEXTS, **row)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("SM Active", "sm active"),
        ("SM Active [Throughput %]", "sm active"),
        ("SMs Active [Throughput %]", "sm active"),
        ("Unallocated Warps in Active SM", "unallocated warps in active sm"),
        ("Unallocated Warps in Active SMs [Throughput %]", "unallocated warps in active sm"),
        ("Unallocated Warps in Active SM(s)", "unallocated warps in active sm"),
        ("DRAM Read Throughput", "dram read bandwidth"),
        ("DRAM Read Bandwidth [Throughput %]", "dram read bandwidth"),
        ("PCIe RX Throughput [Throughput %]", "pcie rx bandwidth"),
        ("GPC Clock Frequency [MHz]", "gpc clock frequency"),
        ("Compute Warps In Flight [Throughput %]", "compute warps in flight"),
        ("Compute Warps in Flight", "compute warps in flight"),
        ("Compute Warps in Flight [Avg]", "compute warps in flight avg"),
        ("Compute Warps in Flight [Avg Warps per Cycle]", "compute warps in flight avg warps per cycle"),
        ("NVLink RX Requests User Data [Throughput %]", "nvlink rx requests user data"),
        ("  Tensor Active / FP16 Active", "tensor active / fp16 active"),
        ("", ""),
        ("[", "["),
    ],
)
def test_a_metric_has_one_name_in_all_versions(name, expected):
    assert pl.DataFrame({"name": [name]}).select(normalize("name")).item() == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("schema", ["3.7.2", "3.24.0", "3.28.1"])
def test_samples_are_named_by_their_kind_of_gpu_and_number(schema, seed, tmp_path):
    rows = [(2_000, 0, 70), (1_000, 0, 50), (1_000, 1, 1_980_000_000)]
    random.Random(seed).shuffle(rows)
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        metric(writer, 0, "SMs Active [Throughput %]")
        metric(writer, 1, "GPC Clock Frequency [MHz]")
        metric(writer, 0, "DRAM Read Throughput", HOSTILE_TYPE | 1)
        for row in rows:
            sample(writer, *row)
        sample(writer, 1_500, 0, 9, HOSTILE_TYPE | 1)
        sample(writer, 1_600, 5, 8, HOSTILE_TYPE | 1)

    assert told(tmp_path / "run.sqlite", shift_ns=900) == [
        (0, 100, "gpc clock frequency", 1_980_000_000.0),
        (0, 100, "sm active", 50.0),
        (0, 1_100, "sm active", 70.0),
        (1, 700, "#5", 8.0),
        (1, 600, "dram read bandwidth", 9.0),
    ]


@pytest.mark.parametrize("schema", ["3.0.0", "3.7.2", "3.28.1"])
def test_metrics_that_nobody_wants_are_not_read(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        if writer.has("GPU_METRICS"):
            metric(writer, 0, "SMs Active [Throughput %]")
            metric(writer, 1, "GR Active")
            metric(writer, 1, "SM Active", HOSTILE_TYPE | 1)
            for at, number, type_id in [(1, 0, TYPE), (2, 1, TYPE), (3, 0, TYPE), (4, 5, TYPE)]:
                sample(writer, at, number, at, type_id)
            sample(writer, 5, 1, 5, HOSTILE_TYPE | 1)
            sample(writer, 6, 0, 6, HOSTILE_TYPE | 1)
        else:
            text(writer, 1, '{"GR Active": "9", "SM Active": "1"}')
            text(writer, 3, '{"SM Active": "3", "SYS Clock Frequency": "2"}')
            text(writer, 5, '{"SM Active": "5"}', type_id=HOSTILE_TYPE | 1)

    assert told(tmp_path / "run.sqlite", wanted={"sm active", "sm issue"}) == [
        (0, 1, "sm active", 1.0),
        (0, 3, "sm active", 3.0),
        (1, 5, "sm active", 5.0),
    ]


def test_a_sample_without_a_time_keeps_its_value(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", "3.7.2") as writer:
        metric(writer, 0, "SM Active")
        sample(writer, None, 0, 50)

    assert told(tmp_path / "run.sqlite") == [(0, None, "sm active", 50.0)]


@pytest.mark.parametrize("schema", ["2.7.1", "3.0.0", "3.7.2"])
def test_json_texts_count_where_there_are_no_numbers(schema, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", schema) as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2)
        pairs = {
            "GR Active": "100",
            "Vertex/Tess/Geometry Warps In Flight": "1",
            "SYS Clock Frequency": "335037377",
        }
        text(writer, 1_200, json.dumps(pairs, indent=4).replace("/", r"\/"), type_id=HOSTILE_TYPE | 3)
        text(writer, None, '{"GR Active":"7","SM Active [Throughput %]":12.5}', raw=1_100)

    assert told(tmp_path / "run.sqlite", shift_ns=1_000) == [
        (0, 100, "gr active", 7.0),
        (0, 100, "sm active", 12.5),
        (3, 200, "gr active", 100.0),
        (3, 200, "sys clock frequency", 335037377.0),
        (3, 200, "vertex/tess/geometry warps in flight", 1.0),
    ]


def test_numbers_count_where_an_export_has_both(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        metric(writer, 0, "SM Active")
        sample(writer, 100, 0, 50)
        text(writer, 100, '{"SM Active": "50"}')

    assert told(tmp_path / "run.sqlite") == [(0, 100, "sm active", 50.0)]


@pytest.mark.parametrize(
    "data",
    [
        None,
        "",
        "not json",
        '{"SM Active": "much"}',
        '{"SM Active": "1e999"}',
        '{"SM Active": "-+.e"}',
        '{"SM Active": null}',
        '{"SM Active": {"deeper": "no"}}',
        '{"SM Active": "5',
        '{"other": "5"}',
        '{"SM Active":' * 50_000,
        b"\xff\x00\xfe",
        "[" * 100_000,
    ],
    ids=range(13),
)
def test_what_is_no_sample_is_left_out(data, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        text(writer, 100, data)
        text(writer, 200, '{"SM Active": "5"}')

    assert told(tmp_path / "run.sqlite") == [(0, 200, "sm active", 5.0)]


@pytest.mark.parametrize("lazy", [True, False], ids=["no tables", "empty tables"])
def test_an_export_without_samples_gives_an_empty_frame(lazy, tmp_path):
    with ExportWriter(tmp_path / "run.sqlite", lazy=lazy) as writer:
        writer.call("cudaLaunchKernel_v7000", 1, 2)

    assert told(tmp_path / "run.sqlite") == []


def test_a_word_for_a_value_is_refused(tmp_path):
    with ExportWriter(tmp_path / "run.sqlite") as writer:
        sample(writer, 100, 0, "high")

    with pytest.raises(InputError, match="not an integer"):
        told(tmp_path / "run.sqlite")


def test_real_samples_are_the_same_from_numbers_and_from_texts(traces, tmp_path):
    numbers = told(traces / "als_gpumetrics.sqlite")
    assert len(numbers) == 91_746
    names = sorted({name for _, _, name, _ in numbers})
    assert len(names) == 18
    assert {"sm active", "gr active", "dram read bandwidth", "unallocated warps in active sm"} <= set(names)
    clocks = [value for _, _, name, value in numbers if name == "gpc clock frequency"]
    assert (min(clocks), max(clocks)) == (1_054_257_482.0, 1_935_630_830.0)

    plain = sqlite3.connect(f"file:{traces / 'als_gpumetrics.sqlite'}?mode=ro&immutable=1", uri=True)
    with ExportWriter(tmp_path / "old.sqlite", "3.0.0") as writer:
        for raw, at, type_id, data in plain.execute(
            "SELECT rawTimestamp, timestamp, typeId, data FROM GENERIC_EVENTS"
        ):
            text(writer, at, data, raw=raw, type_id=type_id)
    plain.close()
    assert told(tmp_path / "old.sqlite") == numbers

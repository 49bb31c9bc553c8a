"""Real exports: every one of them answered or refused by name, budgets equal to a plain sweep."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from tests.answered_once import write_json_once
from tests.conftest import run_part
from wallscope.errors import NothingToAnalyzeError
from wallscope.files import read_query
from wallscope.model.schemas import NAMES
from wallscope.nsys import read_contents
from wallscope.trace.kernel_classes import classify_kernels, load_shipped_kernel_rules

TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
EXPORTS = sorted(TRACES.glob("*.sqlite"))
TABLES = ("KERNEL", "MEMCPY", "MEMSET", "GRAPH_TRACE")
STATES = ("compute", "opaque_graph", "exposed_communication", "exposed_copy")
WITHOUT_DEVICE_OPERATIONS = {
    "cs336_divinrkz_nocuda",
    "cs336_ihor_nocuda",
    "jacc_a100_2026",
    "mpi_test_nocuda",
    "nevakrien_4090",
    "own_cap_nsys2022_export2022",
    "own_cap_nsys2023_export2023",
    "own_cap_nsys2023_export2023_lazyfalse",
    "own_cap_nsys2024_export2024",
    "own_nvtx0217_on_nsys2023_ranges_lost",
    "poolformer_nvtx_only",
    "poolformer_nvtx_only_exp",
    "uvmtorch",
    "vqe_h100_nokernel",
}

pytestmark = pytest.mark.skipif(not EXPORTS, reason="no real exports here: ../shared/traces is absent")


def answer(path: Path) -> dict:
    return json.loads(write_json_once(path))


def plain_rows(path: Path) -> Iterator[tuple[tuple, int, int, str]]:
    """(process, device), start, end and class of each device operation, straight from the tables."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    strings = dict(connection.execute("SELECT id, value FROM StringIds"))
    for table, state in zip(TABLES, ("", "exposed_copy", "exposed_copy", "opaque_graph"), strict=True):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        columns = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        if not columns:
            continue
        pid = "globalPid" if "globalPid" in columns else "NULL"
        extra = {
            "KERNEL": "COALESCE(demangledName, shortName)" if "demangledName" in columns else "shortName",
            "MEMCPY": "copyKind = 10"
            + (" OR (copyKind = 8 AND srcDeviceId <> dstDeviceId)" if "srcDeviceId" in columns else ""),
        }.get(table, "0")
        rows = connection.execute(f"SELECT {pid}, deviceId, start, end, {extra} FROM {name}").fetchall()
        communicating: set[str] = set()
        if table == "KERNEL":
            texts = sorted({strings[row[4]] for row in rows})
            frame = pl.DataFrame(list(enumerate(texts)), schema=NAMES, orient="row")
            kinds = classify_kernels(frame, load_shipped_kernel_rules())
            communicating = {
                text for text, kind in zip(texts, kinds["class"], strict=True) if kind == "communication"
            }
        for process, device, start, end, what in rows:
            if end < start or start == end == 0:
                continue
            kind = state
            if table == "KERNEL":
                kind = "exposed_communication" if strings[what] in communicating else "compute"
            elif table == "MEMCPY" and what:
                kind = "exposed_communication"
            yield (process, device), start, end, kind
    connection.close()


def swept(rows: list[tuple[int, int, str]], start_ns: int, end_ns: int) -> dict[str, int]:
    """Budget of one window: walk over starts and ends inside it, counting what is open."""
    edges = [(start_ns, 0, "compute"), (end_ns, 0, "compute")]
    for start, end, kind in rows:
        if max(start, start_ns) < min(end, end_ns):
            edges.extend([(max(start, start_ns), 1, kind), (min(end, end_ns), -1, kind)])
    edges.sort(key=lambda edge: (edge[0], edge[1]))
    budget = dict.fromkeys((*STATES, "idle"), 0)
    running = dict.fromkeys(STATES, 0)
    last = start_ns
    for at, change, kind in edges:
        state = next((state for state in STATES if running[state] > 0), "idle")
        budget[state] += at - last
        running[kind] += change
        last = at
    return budget


@pytest.mark.parametrize("path", run_part(EXPORTS, of=9))
def test_a_real_export_is_answered_or_refused_by_name(path):
    if path.stem in WITHOUT_DEVICE_OPERATIONS:
        with pytest.raises(NothingToAnalyzeError, match=path.name):
            answer(path)
        return

    found = answer(path)

    rows: dict[tuple, list[tuple[int, int, str]]] = {}
    for (process, device), start, end, kind in plain_rows(path):
        pid = None if process is None else process >> 24 & 0xFFFFFF
        rows.setdefault((pid, device), []).append((start, end, kind))
    if {pid for pid, _ in rows} == {None}:  # the reader takes the process from the only one that made calls
        rows = {(rank["pid"], device): own for rank in found["ranks"] for (_, device), own in rows.items()}
    assert set(rows) == {(rank["pid"], rank["device"]) for rank in found["ranks"]}
    for rank in found["ranks"]:
        own = rows[rank["pid"], rank["device"]]
        steps = rank["steps"]
        first_ns, last_ns = min(start for start, _, _ in own), max(end for _, end, _ in own)
        assert rank["outside_ns"] == max(steps[0]["start_ns"] - first_ns, 0)
        assert rank["after_ns"] == max(last_ns - steps[-1]["end_ns"], 0)
        assert [step["end_ns"] for step in steps[:-1]] == [step["start_ns"] for step in steps[1:]]
        for step in steps:
            assert step["budget"] == swept(own, step["start_ns"], step["end_ns"])


@pytest.mark.parametrize("path", EXPORTS, ids=lambda path: path.stem)
def test_contents_of_a_real_export_are_counted(path):
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    for entry in read_contents(path, lambda _: None).tables:
        (count,) = (
            connection.execute(f"SELECT COUNT(*) FROM {entry.table}").fetchone()
            if entry.table in tables
            else (None,)
        )
        assert entry.row_count == count
    connection.close()


@pytest.mark.parametrize("path", run_part(EXPORTS, of=9))
def test_the_shipped_sql_recomputes_busy_and_idle_time(path):
    if path.stem in WITHOUT_DEVICE_OPERATIONS:
        return
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    for table in TABLES:
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        if "globalPid" not in columns:
            source = (
                f"SELECT *, NULL AS globalPid FROM main.{name}" if columns else "SELECT 0, 0, 0, 0 LIMIT 0"
            )
            heads = [*columns, "globalPid"] if columns else ["start", "end", "deviceId", "globalPid"]
            quoted = ", ".join(f'"{head}"' for head in heads)
            connection.execute(f"CREATE TEMP TABLE {name} ({quoted})")
            connection.execute(f"INSERT INTO temp.{name} {source}")

    found = answer(path)
    shift_ns = found["inputs"][0]["time_shift_ns"]
    for index, rank in enumerate(found["ranks"]):
        for step in (rank["steps"][0], rank["steps"][-1]):
            bounds = {"start_ns": step["start_ns"], "end_ns": step["end_ns"], "time_shift_ns": shift_ns}
            *_, idle_ns = connection.execute(read_query("device_busy"), bounds).fetchall()[index]
            assert idle_ns == step["budget"]["idle"]
    connection.close()


@pytest.mark.parametrize(
    ("stem", "kind", "unit", "steps"),
    [
        pytest.param("cs336_tianshi_result", "nvtx", "step", 10, id="forward, backward and optimizer"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (
                ("cs336_zx_2.7B", "kernel-sequence", "step", 4),
                ("cs336_zx_2.7B_nvtx", "kernel-sequence", "step", 4),
                ("cs336_zx_result", "kernel-sequence", "step", 4),
                ("cs336_athrun", "kernel-sequence", "step", 5),
                ("nsysai_mfu_before", "kernel-sequence", "window", 16),
            )
        ),
        pytest.param("cs336_zx_2.7B_compile_graph", "kernel-sequence", "step", 10, id="graphs"),
        pytest.param("nsysai_mfu_after", "kernel-sequence", "window", 15, id="blocks, after"),
        pytest.param("nsysai_h100_2gpu_1s", "whole-trace", "window", 1, id="one pass of a model"),
        pytest.param("t4_streams", "whole-trace", "window", 1, id="a loop of single kernels"),
    ],
)
def test_steps_of_real_exports_are_counted_or_said_to_be_none(stem, kind, unit, steps, traces):
    anchor = answer(traces / f"{stem}.sqlite")["anchor"]

    assert (anchor["kind"], anchor["unit"], anchor["steps"]) == (kind, unit, steps)


def share(found: dict, part: str) -> float:
    return max(rank["typical"]["budget"][part] / rank["typical"]["step_ns"] for rank in found["ranks"])


def test_copies_are_work_a_known_tool_says_97_percent_idle(traces):
    assert share(answer(traces / "nsysai_h100_2gpu_1s.sqlite"), "idle") < 0.01


def test_replays_of_graphs_traced_as_a_whole_are_busy_time(traces):
    found = answer(traces / "cs336_zx_2.7B_compile_graph.sqlite")

    assert share(found, "opaque_graph") > 0.99
    assert found["capture"]["cuda_graphs"] == "graph"


def test_one_report_through_two_exporters_gives_one_answer(traces):
    """But for the GPU: the newer exporter lost its description."""
    stem = "ompoffload_2021_report2"
    left, right = (answer(traces / f"{name}.sqlite") for name in (stem, f"{stem}_exp"))

    unknown = {"gpu": None}
    for rank in [*left["ranks"], *right["ranks"]]:
        rank["memory"] |= {"capacity_bytes": None}
        rank["compute_details"] |= {"launch_shapes": None}
        rank["profile"] = None  # names its input, and the GPU
        assert all(line["ns"] >= 0 for line in rank["speed_of_light"]["lines"])
        rank["speed_of_light"]["peak"] = None
    assert [rank | unknown for rank in left["ranks"]] == right["ranks"]
    assert left["diagnosis"] == right["diagnosis"]

"""Whatever an export holds of its owner, no output repeats it; kernels, ranges and calls are the answer."""

import polars as pl
import pytest

from fixtures.export import SCHEMAS, ExportWriter, global_pid

CANARY = "canary-7f3a"
ADDRESS = "/home/canary-user/job"


def planted(path, schema: str) -> None:
    """An export with a canary in every place that can hold one."""
    with ExportWriter(path, schema, lazy=False) as writer:
        writer.gpu()
        writer.kernel("nvjet_tst_128x128", 1_000, 2_000)
        writer.environment(
            API_KEY=CANARY, RANK=CANARY, NCCL_NVLS_ENABLE=CANARY, PYTORCH_CUDA_ALLOC_CONF=CANARY
        )
        for column in ("globalVid", "devStateName", "name", "value"):
            writer.row("TARGET_INFO_SYSTEM_ENV", **{"name": "CpuInfo", "value": CANARY, column: CANARY})
        for name in ("DeviceEnvironment", "Hostname", "OsDescription"):
            writer.row("TARGET_INFO_SYSTEM_ENV", name=name, value=f"RANK=1;TOKEN={CANARY}; {ADDRESS}")
        writer.row("PROCESSES", globalPid=global_pid(1000), pid=1000, name=f"{ADDRESS}/{CANARY}")
        writer.row("ThreadNames", nameId=writer.string(CANARY), globalTid=global_pid(1000) + 1000, priority=0)
        metadata = "META_DATA_EXPORT" if writer.has("META_DATA_EXPORT") else "EXPORT_META_DATA"
        for name in ("EXPORT_USER", "EXPORT_HOST", "EXPORT_INPUT_FILE", "EXPORT_PARAM_TABLES_TO_EXPORT"):
            writer.row(metadata, name=name, value=CANARY)
        for name in (
            "PROCESS_0:COMMAND",
            "PROCESS_0:ARGUMENT_0",
            "PROCESS_0:WORKING_DIR",
            "CAPTURE_EVENT_TYPE",
        ):
            writer.capture_option(name, f"{ADDRESS}/{CANARY}")
        if writer.has("DIAGNOSTIC_EVENT"):
            writer.row("DIAGNOSTIC_EVENT", severity=3, text=f"CUPTI dropped 5 records. {ADDRESS} {CANARY}")
        if writer.has("ANALYSIS_FILE"):
            writer.row("ANALYSIS_FILE", id=1, filename=CANARY, contentId=writer.string(f"env\0{CANARY}"))
        writer.row(
            "ProcessStreams", globalPid=1, filenameId=writer.string(CANARY), contentId=writer.string(CANARY)
        )
        writer.gpu(1, name=f"{ADDRESS} {CANARY}")
        writer.call("cudaDeviceSynchronize", 1, 2)
        writer.connection.execute(f'CREATE TABLE "{CANARY}" (x)')


@pytest.mark.parametrize(
    "schema",
    [
        *(pytest.param(schema, marks=pytest.mark.slow) for schema in SCHEMAS[:-1]),
        SCHEMAS[-1],
    ],
)
def test_planted_secrets_appear_in_no_output(schema, wallscope, tmp_path):
    planted(tmp_path / "run.sqlite", schema)
    results = {
        "--json": "run.json",
        "--html": "run.html",
        "--markdown": "run.md",
        "--csv": "csv",
        "--parquet": "parquet",
        "--perfetto": "run.pftrace",
    }

    runs = [
        wallscope("analyze", "run.sqlite", "-v", *(word for pair in results.items() for word in pair)),
        wallscope("analyze", "run.sqlite", "--json", "-"),
        wallscope("info", "run.sqlite", "-v"),
        *(
            wallscope(command, "run.sqlite", "--json", "-")
            for command in ("steps", "kernels", "ranges", "gaps")
        ),
        wallscope("diff", "run.json", "run.sqlite", "--json", "diff.json", "--html", "diff.html"),
        wallscope("record", "run.sqlite", "--commit", "a" * 40, "--store", "store"),
        wallscope("capture-help", "run.sqlite"),
    ]

    assert [ran.code for ran in runs] == [0] * len(runs)
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "run.sqlite"]
    contents = [text.encode() for ran in runs for text in (ran.out, ran.err)]
    contents += [path.read_bytes() for path in written]
    contents += [polars_text(path) for path in written if path.suffix == ".parquet"]
    assert {path.relative_to(tmp_path).parts[0] for path in written} >= {
        *results.values(),
        "diff.html",
        "store",
    }
    assert [content[:200] for content in contents if b"canary" in content.lower()] == []


def polars_text(path) -> bytes:
    """What a Parquet file says once it is unpacked."""
    return pl.read_parquet(path).write_csv().encode()

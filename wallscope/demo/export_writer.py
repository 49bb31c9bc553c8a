"""The one writer of Nsight Systems exports: real tables and columns of a schema generation.

As in nsys, a table appears with its first row. Columns that the generation does not have are left out of a
row, and required columns without a value get a neutral one.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wallscope.records import dataclass

_COPY_KINDS = {
    "host-to-device": 1,
    "device-to-host": 2,
    "device-to-device": 8,
    "peer": 10,
    "migration-to-device": 11,
    "migration-to-host": 12,
}
_MEMORY_KINDS = {"pageable": 0, "pinned": 1, "device": 2, "managed": 4}


@dataclass(frozen=True, slots=True)
class Generation:
    """A schema generation: its version, the nsys release that writes it, and the statements of its tables."""

    version: str
    product: str
    ddl: str
    metadata_table: str = "META_DATA_EXPORT"

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yield each table with its CREATE statement."""
        for block in self.ddl.split("CREATE TABLE ")[1:]:
            yield block.split(" ", 1)[0], "CREATE TABLE " + block.split(";", 1)[0]


def load_generation() -> Generation:
    """Return the generation of the example, the only one in the package."""
    ddl = Path(__file__).with_name("nsys-3.25.0.sql").read_text(encoding="utf-8")
    return Generation("3.25.0", "2026.2.1.210", ddl)


def global_pid(pid: int, *, host: int = 0, machine: int = 1) -> int:
    """Return a process id as exports spell it: host, virtual machine and pid in one signed 64-bit number."""
    number = host << 56 | machine << 48 | pid << 24
    return number - (1 << 64) if number >= 1 << 63 else number


class ExportWriter:
    """Write one export, which is complete when the block of this context manager ends.

    Times are ns of session time. `lazy=False` makes every table, empty ones too.
    """

    def __init__(
        self,
        path: Path,
        generation: Generation | None = None,
        *,
        lazy: bool = True,
        page_bytes: int = 4096,
        time_shift_ns: int = 0,
        application_id: int = 0,
    ) -> None:
        self.generation = generation or load_generation()
        self._ddl = dict(self.generation.tables())
        self._columns: dict[str, dict[str, object]] = {}
        self._strings: dict[str, int] = {}
        self._correlation = 0
        self.time_shift_ns = time_shift_ns
        path.unlink(missing_ok=True)
        self.connection = sqlite3.connect(path, isolation_level=None)
        for pragma in ("journal_mode = OFF", "synchronous = OFF", f"page_size = {page_bytes}"):
            self.connection.execute(f"PRAGMA {pragma}").close()
        if application_id:
            self.connection.execute(f"PRAGMA application_id = {application_id}").close()
        self.connection.execute("BEGIN")
        for table in self._ddl if not lazy else ("StringIds",):
            self._make(table)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._metadata()
                self.rows("StringIds", {"id": list(self._strings.values()), "value": list(self._strings)})
                self.connection.execute("COMMIT")
        finally:
            self.connection.close()

    def has(self, table: str) -> bool:
        """Return whether this schema generation has the table."""
        return table in self._ddl

    def string(self, text: str) -> int:
        """Return the id of a text in StringIds."""
        return self._strings.setdefault(text, len(self._strings) + 1)

    def row(self, table: str, **values: object) -> None:
        """Write one row; columns that this schema generation does not have are left out."""
        self.rows(table, {column: [value] for column, value in values.items()})

    def rows(self, table: str, columns: Mapping[str, Sequence[object]]) -> None:
        """Write many rows, column by column, all of one length.

        Raises:
            KeyError: this schema generation does not have the table.
        """
        defaults = self._make(table)
        given = {column: values for column, values in columns.items() if column in defaults}
        names = list(given) + [
            column for column, value in defaults.items() if column not in given and value is not None
        ]
        if not given:
            return
        count = len(next(iter(given.values())))
        filled: Iterable[Sequence[object]] = [
            given[name] if name in given else [defaults[name]] * count for name in names
        ]
        quoted = ", ".join(f'"{name}"' for name in names)
        marks = ", ".join("?" * len(names))
        self.connection.executemany(
            f'INSERT INTO "{table}" ({quoted}) VALUES ({marks})', zip(*filled, strict=True)
        )

    def kernel(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        pid: int = 1000,
        device: int = 0,
        stream: int = 7,
        correlation: int | None = None,
        graph_node: int | None = None,
        short_name: str | None = None,
        **more: object,
    ) -> int:
        """Write a kernel; return its correlation id."""
        identity = self._where(start_ns, end_ns, pid, device, stream, correlation)
        text = self.string(name)
        self.row(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            **identity,
            **{
                "demangledName": text,
                "mangledName": text,
                "shortName": self.string(short_name or _short(name)),
                "gridX": 132,
                "gridY": 1,
                "gridZ": 1,
                "blockX": 256,
                "blockY": 1,
                "blockZ": 1,
                "registersPerThread": 64,
                "launchType": 1,
                "graphNodeId": graph_node,
                "tensorSizeMinusOneElements": "[]",
                **more,
            },
        )
        return int(identity["correlationId"])

    def copy(
        self,
        direction: str,
        start_ns: int,
        end_ns: int,
        copied_bytes: int,
        *,
        pid: int = 1000,
        device: int = 0,
        stream: int = 7,
        correlation: int | None = None,
        host_memory: str = "pinned",
        **more: object,
    ) -> int:
        """Write a memory copy; return its correlation id."""
        identity = self._where(start_ns, end_ns, pid, device, stream, correlation)
        host, inside = _MEMORY_KINDS[host_memory], _MEMORY_KINDS["device"]
        self.row(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            **identity,
            **{
                "bytes": copied_bytes,
                "copyKind": _COPY_KINDS[direction],
                "srcKind": host if direction == "host-to-device" else inside,
                "dstKind": host if direction == "device-to-host" else inside,
                "copyCount": 1,
                **more,
            },
        )
        return int(identity["correlationId"])

    def fill(
        self,
        start_ns: int,
        end_ns: int,
        filled_bytes: int,
        *,
        pid: int = 1000,
        device: int = 0,
        stream: int = 7,
        correlation: int | None = None,
    ) -> int:
        """Write a memory fill; return its correlation id."""
        identity = self._where(start_ns, end_ns, pid, device, stream, correlation)
        self.row("CUPTI_ACTIVITY_KIND_MEMSET", **identity, bytes=filled_bytes, memKind=2)
        return int(identity["correlationId"])

    def graph(
        self,
        start_ns: int,
        end_ns: int,
        *,
        pid: int = 1000,
        device: int = 0,
        stream: int = 7,
        correlation: int | None = None,
    ) -> int:
        """Write one replay of a CUDA graph, traced as a whole; return its correlation id."""
        identity = self._where(start_ns, end_ns, pid, device, stream, correlation)
        self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **identity, graphId=1, graphExecId=1)
        return int(identity["correlationId"])

    def call(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        *,
        pid: int = 1000,
        thread: int | None = None,
        correlation: int | None = None,
    ) -> int:
        """Write a CUDA API call, on the main thread unless another is named; return its correlation id."""
        number = self.correlation() if correlation is None else correlation
        self.row(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start_ns + self.time_shift_ns,
            end=end_ns + self.time_shift_ns,
            eventClass=1 if name.startswith("cu") and not name.startswith("cuda") else 0,
            globalTid=global_pid(pid) + (pid if thread is None else thread),
            correlationId=number,
            nameId=self.string(name),
            returnValue=0,
        )
        return number

    def range(
        self,
        text: str,
        start_ns: int,
        end_ns: int,
        *,
        pid: int = 1000,
        thread: int | None = None,
        domain: int = 0,
    ) -> None:
        """Write an NVTX push/pop range of a thread."""
        self.row(
            "NVTX_EVENTS",
            start=start_ns + self.time_shift_ns,
            end=end_ns + self.time_shift_ns,
            eventType=59,
            text=text,
            globalTid=global_pid(pid) + (pid if thread is None else thread),
            domainId=domain,
        )

    def gpu(self, number: int = 0, name: str = "NVIDIA H100 80GB HBM3", **more: object) -> None:
        """Write a GPU of the machine."""
        facts: dict[str, object] = {
            "vmId": 1,
            "id": number,
            "name": name,
            "totalMemory": 85_520_809_984,
            "memoryBandwidth": 3_352_320_000_000,
            "clockRate": 1_980_000_000,
            "smCount": 132,
            "computeMajor": 9,
            "computeMinor": 0,
            "cuDevice": number,
            **more,
        }
        self.row("TARGET_INFO_GPU", **facts)

    def machine(self, hostname: str, session_start_utc_ns: int) -> None:
        """Write the name of the host, and the UTC time of session time 0."""
        self.row(
            "TARGET_INFO_SYSTEM_ENV",
            globalVid=1 << 48,
            devStateName="Local (CLI)",
            name="Hostname",
            value=hostname,
        )
        self.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=session_start_utc_ns)

    def environment(self, **variables: str) -> None:
        """Write the environment of the profiled command; exports before 2023 do not hold it."""
        for name, value in variables.items():
            self.capture_option("PROCESS_0:ENVIRONMENT_VARIABLE", f'{name}="{value}"')

    def capture_option(self, name: str, value: str) -> None:
        """Write an option of the capture."""
        if self.has("META_DATA_CAPTURE"):
            self.row("META_DATA_CAPTURE", name=name, value=value)

    def correlation(self) -> int:
        """Return a correlation id not used before."""
        self._correlation += 1
        return self._correlation

    def _where(
        self, start_ns: int, end_ns: int, pid: int, device: int, stream: int, correlation: int | None
    ) -> dict[str, Any]:
        return {
            "start": start_ns + self.time_shift_ns,
            "end": end_ns + self.time_shift_ns,
            "deviceId": device,
            "contextId": 1,
            "streamId": stream,
            "correlationId": self.correlation() if correlation is None else correlation,
            "globalPid": global_pid(pid),
        }

    def _make(self, table: str) -> dict[str, object]:
        """Make the table on first use; its columns with the value each gets where none is given."""
        if table not in self._columns:
            self.connection.execute(self._ddl[table])
            self._columns[table] = {
                name: ("" if kind == "TEXT" else 0) if required and not key else None
                for _, name, kind, required, _, key in self.connection.execute(
                    f'PRAGMA table_info("{table}")'
                )
            }
        return self._columns[table]

    def _metadata(self) -> None:
        facts = {
            "EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems",
            "EXPORT_PRODUCT_VERSION": self.generation.product,
            "EXPORT_SCHEMA_VERSION": self.generation.version,
        }
        if self.time_shift_ns:
            facts["EXPORT_CONFIG_TIME_SHIFT"] = str(self.time_shift_ns)
        self.rows(self.generation.metadata_table, {"name": list(facts), "value": list(facts.values())})


def _short(demangled: str) -> str:
    """The bare name of a kernel."""
    return demangled.removeprefix("void ").partition("(")[0].partition("<")[0].rpartition("::")[2]

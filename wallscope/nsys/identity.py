"""Which export this is: versions, machine, GPUs."""

import re
from dataclasses import dataclass

from wallscope.model.capture import Export, Gpu
from wallscope.nsys.catalog import EXPORT_METADATA
from wallscope.nsys.environment import allowed_environment
from wallscope.nsys.integrity import content_size_bytes, fingerprint
from wallscope.nsys.tables import Database

_VERSION = re.compile(r"\d{1,5}(?:\.\d{1,9}){0,4}(?:-[0-9a-z]{1,40})?")
_HOSTNAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})")
_GPU_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ()._/+-]{0,63}")
_INT64 = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class ExportFacts:
    """What the export says of itself: time shift in ns, and whether it holds all that was captured."""

    product_version: str | None
    schema_version: str | None
    time_shift_ns: int
    is_filtered: bool


def export_facts(source: Database) -> ExportFacts:
    """The metadata of the export, under either of its two names; all unknown where it has none."""
    facts: dict[str, object] = {}
    for table, query_name in zip(EXPORT_METADATA, ("metadata_new", "metadata_old"), strict=True):
        if not facts and source.has(table, "name", "value"):
            facts = {str(name): value for name, value in source.rows(query_name)}
    return ExportFacts(
        product_version=_matching(_VERSION, facts.get("EXPORT_PRODUCT_VERSION")),
        schema_version=_matching(_VERSION, facts.get("EXPORT_SCHEMA_VERSION")),
        time_shift_ns=_integer(facts.get("EXPORT_CONFIG_TIME_SHIFT")) or 0,
        is_filtered=bool(
            facts.get("EXPORT_PARAM_TABLES_TO_EXPORT") or facts.get("EXPORT_PARAM_TIMES_TO_EXPORT")
        ),
    )


def export_identity(source: Database, facts: ExportFacts) -> Export:
    """Identity of the export; the base name of the file, never its folder."""
    size_bytes = content_size_bytes(source.path)
    return Export(
        name=source.path.name,
        fingerprint=fingerprint(source.path, size_bytes),
        size_bytes=size_bytes,
        nsys_version=facts.product_version,
        schema_version=facts.schema_version,
        hostname=_hostname(source),
        session_start_utc_ns=_session_start_utc_ns(source),
        time_shift_ns=facts.time_shift_ns,
        gpus=gpus(source),
        environment=allowed_environment(source),
    )


def _session_start_utc_ns(source: Database) -> int | None:
    if not source.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
        return None
    rows = source.rows("session_start")
    return _integer(rows[0][0]) if rows else None


def _hostname(source: Database) -> str | None:
    if not source.has("TARGET_INFO_SYSTEM_ENV", "name", "value"):
        return None
    hostnames = [value for name, value in source.rows("system_facts") if name == "Hostname"]
    return _matching(_HOSTNAME, hostnames[0]) if hostnames else None


def gpus(source: Database) -> tuple[Gpu, ...]:
    """The GPUs of the machine by id, used or not; columns that an export lacks are unknown."""
    table, identifier = "TARGET_INFO_GPU", "id"
    if not source.has(table, identifier):
        table, identifier = "TARGET_INFO_CUDA_GPU", "deviceId"  # before mid-2021
        if not source.has(table, identifier):
            return ()
    wanted = {
        "id": (identifier,),
        "name": ("name",),
        "major": ("computeMajor", "computeCapabilityMajor"),
        "minor": ("computeMinor", "computeCapabilityMinor"),
        "sm_count": ("smCount", "numMultiprocessors"),
        "memory_bytes": ("totalMemory",),
        "memory_mib": ("globalMemorySize",),  # seen in an export of 2021: 32510 for a V100 of 32 GB
        "bandwidth": ("memoryBandwidth",),
    }
    columns = [
        next((f'"{column}"' for column in spellings if source.has(table, column)), "NULL")
        for spellings in wanted.values()
    ]
    rows = source.selected(f'SELECT {", ".join(columns)} FROM "{table}" ORDER BY 1')
    found = (_gpu(dict(zip(wanted, row, strict=True))) for row in rows if _integer(row[0]) is not None)
    return tuple({gpu.id: gpu for gpu in found}.values())  # the early table repeats a GPU for each process


def _gpu(row: dict[str, object]) -> Gpu:
    major, minor = _positive(row["major"]), _integer(row["minor"])
    memory_bytes, memory_mib = _positive(row["memory_bytes"]), _positive(row["memory_mib"])
    return Gpu(
        id=_integer(row["id"]) or 0,
        name=_matching(_GPU_NAME, row["name"]),
        architecture=f"sm_{major}{minor or 0}" if major is not None else None,
        sm_count=_positive(row["sm_count"]),
        memory_bytes=memory_mib << 20 if memory_bytes is None and memory_mib is not None else memory_bytes,
        memory_bandwidth_bytes_per_s=_positive(row["bandwidth"]),
    )


def _matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _integer(value: object) -> int | None:
    """An int64, also where the export keeps numbers as text."""
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    return value if isinstance(value, int) and value in _INT64 else None


def _positive(value: object) -> int | None:
    """A quantity; Nsight writes 0 for what it could not find out."""
    number = _integer(value)
    return number if number is not None and number > 0 else None

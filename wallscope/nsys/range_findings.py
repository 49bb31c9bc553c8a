"""What limits the claims made from NVTX ranges: none traced, lost, cut off, or too many of them."""

import polars as pl

from wallscope.arrays.lookup import are_among
from wallscope.model.capture import Capture, Finding, Presence, Severity
from wallscope.model.kinds import CallRole
from wallscope.nsys.strings import texts_of
from wallscope.nsys.tables import Database
from wallscope.thresholds import FEWEST_OPERATOR_RANGES_COUNT, RANGES_A_LAUNCH_RATIO
from wallscope.units import plural

FOR_FINDINGS = ("start", "eventType", "text", "textId")
"""The columns of NVTX_EVENTS that findings are told from."""
_PUSH_POP, _START_END, _MARK, _DOMAIN = 59, 60, 34, 75
_OF_LIBRARIES = (
    r"(?i)^(MPI|UCX|NVSHMEM|NCCL|OpenACC|CCCL|CUB|Thrust|TensorRT|myelin.*"
    r"|cu(BLAS|DNN|FFT|RAND|SOLVER|SPARSE|TENSOR|StateVec|File)\w*)$"
)
"""Domains that a library or the profiler makes whether or not it then marks anything."""
_AUTOGRAD = r"^(aten|autograd|c10d)::"
_MARK_STEPS = "Mark steps and phases with NVTX (Megatron Bridge: profiling.nvtx_ranges=true)."


def range_findings(source: Database, raw: pl.DataFrame, capture: Capture) -> tuple[Finding, ...]:
    """What the rows of NVTX_EVENTS, `raw`, and the ranges made of them tell."""
    return (
        *_absent(source, raw),
        *_clipped(source, capture),
        *_annotated(capture),
        *payload_findings(source),
    )


def began_inside(source: Database, raw: pl.DataFrame, time_shift_ns: int) -> bool:
    """Whether the capture began while the program ran: names given before it, or diagnostics, tell."""
    if (raw["start"] < time_shift_ns).any():
        return True
    if not source.has("DIAGNOSTIC_EVENT", "text"):
        return False
    ((starts,),) = source.rows("capture_range_starts")
    return bool(starts)


def _absent(source: Database, raw: pl.DataFrame) -> tuple[Finding, ...]:
    if raw["eventType"].is_in([_PUSH_POP, _START_END]).any():
        return ()
    traced = _traced(source)
    domains = _domains_of_program(source, raw)
    if domains and not (raw["eventType"] == _MARK).any():
        return (
            Finding(
                "ranges-lost",
                Severity.WARNING,
                f"The program named {plural(domains, 'NVTX domain')}, but no range is in the export: the nvtx"
                " package from 0.2.12 on loses its ranges under nsys up to 2024.2.",
                "Capture with a newer nsys, or install nvtx==0.2.11.",
            ),
        )
    if traced and "NvtxEvents" not in traced:
        message = "NVTX was not traced: steps and phases have no names."
        return (Finding("no-nvtx", Severity.WARNING, message, "Capture with --trace=cuda,nvtx."),)
    if traced:
        message = "NVTX was traced, but the program marks no range: steps and phases have no names."
        return (Finding("no-nvtx", Severity.INFO, message, _MARK_STEPS),)
    message = "No NVTX range is in the export: steps and phases have no names."
    return (Finding("no-nvtx", Severity.INFO, message, f"Capture with --trace=cuda,nvtx. {_MARK_STEPS}"),)


def _traced(source: Database) -> set[str]:
    """The kinds of event that the capture was told to record; empty where it does not say."""
    if not source.has("META_DATA_CAPTURE", "name", "value"):
        return set()
    return {str(value) for name, value in source.rows("capture_options") if name == "CAPTURE_EVENT_TYPE"}


def _domains_of_program(source: Database, raw: pl.DataFrame) -> int:
    domains = raw.filter(pl.col("eventType") == _DOMAIN)
    by_id = texts_of(source, domains.filter(pl.col("text").is_null())["textId"])
    names = pl.concat([domains["text"].drop_nulls(), by_id["text"]]).unique()
    return int((~names.str.contains(_OF_LIBRARIES)).sum())


def _clipped(source: Database, capture: Capture) -> tuple[Finding, ...]:
    """Where the export does not tell when the capture ended, an end that ranges share proves nothing."""
    clipped = int(capture.ranges["clipped"].sum())
    if clipped == 0 or not source.has("ANALYSIS_DETAILS", "duration"):
        return ()
    return (
        Finding(
            "clipped-ranges",
            Severity.INFO,
            f"{plural(clipped, 'range')} still open when the capture ended: how long they took is unknown.",
            "End the capture outside the ranges that matter.",
        ),
    )


def _annotated(capture: Capture) -> tuple[Finding, ...]:
    autograd = capture.range_names.filter(pl.col("text").str.contains(_AUTOGRAD))
    annotations = int(are_among(capture.ranges["name"].to_numpy(), autograd["name"].to_numpy()).sum())
    launches = int(capture.calls["role"].is_in([CallRole.LAUNCH, CallRole.GRAPH]).sum())
    if annotations < max(FEWEST_OPERATOR_RANGES_COUNT, RANGES_A_LAUNCH_RATIO * launches):
        return ()
    return (
        Finding(
            "emit-nvtx",
            Severity.WARNING,
            f"{plural(annotations, 'range')} of PyTorch operators for {plural(launches, 'launch')}: marking"
            " them slows the host, so idle time is inflated.",
            "Capture without emit_nvtx (Megatron-LM: without --record-shapes).",
        ),
    )


def payload_findings(source: Database) -> tuple[Finding, ...]:
    """Whether payloads of ranges, which hold the sizes of NCCL's calls, were left out by the exporter."""
    if source.presence("NVTX_PAYLOAD_SCHEMAS") is not Presence.ROWS:
        return ()
    if not source.has("NVTX_EVENTS", "binaryData", "jsonText", "jsonTextId"):
        return ()
    ((layouts, payloads),) = source.rows("payload_count")
    if payloads:
        return ()
    return (
        Finding(
            "payloads-not-exported",
            Severity.WARNING,
            f"{plural(layouts, 'layout')} of NVTX payloads and no payload: sizes and groups of collectives"
            " are unknown.",
            "Export again: nsys export --include-blobs=true.",
        ),
    )

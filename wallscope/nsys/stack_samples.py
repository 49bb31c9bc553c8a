"""Find garbage collection in the call stacks of CPU samples.

A collector has no NVTX range. Its functions are in the stacks of the thread that it holds up. Samples in it
that follow each other show when it began and ended, to half the time between samples.
"""

import json
from collections.abc import Iterator

import numpy as np
import polars as pl

from wallscope.columns import Flags, Rows, are_among, iterate_groups
from wallscope.model.capture import Progress
from wallscope.nsys.tables import STRINGS, CatalogTable, Database, read_table
from wallscope.thresholds.causes import COLLECTOR_SAMPLES_APART_RATIO, FEWEST_COLLECTOR_SAMPLES_COUNT

GARBAGE_COLLECTION = "garbage collection"
COLLECTORS = (
    "gc_collect_main",  # CPython
    "gc_collect_generations",
    "gc_collect_with_callback",
    "collect_with_callback",  # CPython up to 3.8
    "PyGC_Collect",
    "_PyGC_Collect",
    "_PyGC_CollectNoFail",
    "_PyGC_CollectIfEnabled",
    "jl_gc_collect",  # Julia
    "ijl_gc_collect",
    "_jl_gc_collect",
)
"""Functions that are on the stack while a collector runs."""
_STACKS = CatalogTable("SAMPLING_CALLCHAINS", ("id", "symbol"), required=("id", "symbol"))
_SAMPLES = CatalogTable(
    "COMPOSITE_EVENTS",
    ("id", "start", "globalTid", "cpuCycles"),
    required=("id", "start", "globalTid", "cpuCycles"),
)


def read_collections(source: Database, progress: Progress) -> pl.DataFrame:
    """Return `start`, `end`, `globalTid`, as in the export, of each run of a garbage collector."""
    nothing = pl.DataFrame(schema=dict.fromkeys(("start", "end", "globalTid"), pl.Int64()))
    is_there = source.has(STRINGS, "id", "value") and source.has(_SAMPLES.name, "id")
    if not (is_there and source.has(_STACKS.name, "id", "symbol")):
        return nothing
    symbols = [number for (number,) in source.rows("ids_of_names", json.dumps(COLLECTORS))]
    if not symbols:
        return nothing
    wanted = pl.DataFrame({"symbol": symbols}, schema={"symbol": pl.Int64()})
    stacks = read_table(source, _STACKS, progress, wanted)["id"].unique()
    if stacks.is_empty():
        return nothing
    samples = read_table(source, _SAMPLES, progress).drop_nulls(["start", "globalTid"])
    samples = samples.filter(pl.col("cpuCycles") > 0).sort("globalTid", "start", maintain_order=True)
    at_ns, thread = samples["start"].to_numpy(), samples["globalTid"].to_numpy()
    collects = are_among(samples["id"].to_numpy(), np.sort(stacks.to_numpy()))
    found = [
        (start_ns, end_ns, one)
        for one, own in iterate_groups(thread)
        for start_ns, end_ns in _join_samples(at_ns[own], collects[own])
    ]
    return pl.DataFrame(found, schema=nothing.schema, orient="row")


def _join_samples(at_ns: Rows, collects: Flags) -> Iterator[tuple[int, int]]:
    """Yield when a collector ran on a thread, given its samples in order."""
    if not collects.any() or at_ns.size < FEWEST_COLLECTOR_SAMPLES_COUNT:
        return
    usual_ns = int(np.median(np.diff(at_ns)))
    is_near = np.diff(at_ns) <= COLLECTOR_SAMPLES_APART_RATIO * usual_ns
    goes_on = np.append(False, collects[1:] & collects[:-1] & is_near)
    first = np.flatnonzero(collects & ~goes_on)
    last = np.flatnonzero(collects & ~np.append(goes_on[1:], False))
    for begin, end in zip(first.tolist(), last.tolist(), strict=True):
        if end - begin + 1 >= FEWEST_COLLECTOR_SAMPLES_COUNT:
            yield int(at_ns[begin]) - usual_ns // 2, int(at_ns[end]) + usual_ns // 2

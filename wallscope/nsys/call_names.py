"""Names of CUDA API calls: one spelling per entry point, and the role of each call.

An export includes the version of an entry point, and whether it uses the thread's stream as the default one
(`_ptsz`, `_ptds`), in any order: `cudaStreamSynchronize_ptsz_v7000`, `cuMemcpyDtoHAsync_v2_ptsz`.
"""

import polars as pl

from wallscope.model.enums import CallRole
from wallscope.model.schemas import ROLE

_SPELLING = r"^_*cu(?:64)?(\w*?)(?:_(?:ptsz|ptds|v\d+))*$"
"""Leading underscores mark calls that the compiler generates. `64` is from the time of 32-bit pointers."""
_ALLOCATING = (
    r"Malloc|Free"
    r"|(Mem)?Host(Alloc|Register|Unregister)"
    r"|Mem(Alloc|Free|Create|Release|Retain|Export|Import|Address(Reserve|Free)|Map|Unmap|SetAccess)"
    r"|MemPool(Create|Destroy|Export|Import|Trim|SetAccess)|DeviceGraphMemTrim"
    r"|(Array|Array3D|MipmappedArray)(Create|Destroy)"
    r"|(Mem)?Peer(Register|Unregister)|Ipc(Open|Close)Mem|Multicast(Create|AddDevice|Bind|Unbind)"
    r"|(Import|Destroy)ExternalMemory|ExternalMemoryGetMapped"
)
_ROLES = (
    (CallRole.GRAPH, r"GraphLaunch"),
    (CallRole.OTHER, r"Graph|LaunchHost"),  # building a graph issues no work; functions of the host
    (CallRole.LAUNCH, r"Launch"),
    (CallRole.SYNC, r"\w*Synchronize"),
    (CallRole.EVENT, r"Event|Ipc(Get|Open)Event|Stream(Query|Wait|Write|BatchMemOp)"),
    (CallRole.EVENT, r"\w*Ctx(Record|Wait)Event|\w*ExternalSemaphore"),
    (CallRole.COPY, r"Mem(cpy|set|\w*Prefetch|BatchDecompress)"),
    (CallRole.ALLOC, _ALLOCATING),
)
"""Patterns after `cu` or `cuda` in the names of a role; the first match counts, no match is `other`.

Calls of `sync` block their caller. Queries, and waits that are put into a stream, do not: those are `event`.
"""


def normalize_call_names(column: str) -> pl.Expr:
    """Return the names in a column, each entry point in one spelling."""
    return pl.col(column).str.replace(_SPELLING, "cu$1")


def express_roles(column: str) -> pl.Expr:
    """Return the roles of calls with normalized names."""
    role = pl.lit(CallRole.OTHER, ROLE)
    for meaning, begins in reversed(_ROLES):
        is_meant = pl.col(column).str.contains(f"^cu(da)?({begins})")
        role = pl.when(is_meant).then(pl.lit(meaning, ROLE)).otherwise(role)
    return role

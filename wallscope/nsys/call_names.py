"""Names of CUDA API calls: every spelling of an entry point as one name, and what calls of a name are for.

An export spells out the version of an entry point, and whether it takes the stream of the thread for the
default one (`_ptsz`, `_ptds`), in any order: `cudaStreamSynchronize_ptsz_v7000`, `cuMemcpyDtoHAsync_v2_ptsz`.
"""

import polars as pl

from wallscope.model.enums import CallRole
from wallscope.model.schemas import ROLE

_SPELLING = r"^_*cu(?:64)?(\w*?)(?:_(?:ptsz|ptds|v\d+))*$"
"""Leading underscores are of calls that the compiler writes, 64 of a time when pointers had fewer bits."""
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
    (CallRole.OTHER, r"Graph|LaunchHost"),  # what builds graphs does nothing yet; functions of the host
    (CallRole.LAUNCH, r"Launch"),
    (CallRole.SYNC, r"\w*Synchronize"),
    (CallRole.EVENT, r"Event|Ipc(Get|Open)Event|Stream(Query|Wait|Write|BatchMemOp)"),
    (CallRole.EVENT, r"\w*Ctx(Record|Wait)Event|\w*ExternalSemaphore"),
    (CallRole.COPY, r"Mem(cpy|set|\w*Prefetch|BatchDecompress)"),
    (CallRole.ALLOC, _ALLOCATING),
)
"""What follows `cu` or `cuda` in the names of a role; the first that fits counts, none is `other`.

Calls of `sync` hold their caller. Queries, and waits that are put into a stream, do not: those are `event`.
"""


def normalize_call_names(column: str) -> pl.Expr:
    """Return the names in a column, each entry point in one spelling."""
    return pl.col(column).str.replace(_SPELLING, "cu$1")


def tell_roles(column: str) -> pl.Expr:
    """Return what the calls of normalized names are for."""
    role = pl.lit(CallRole.OTHER, ROLE)
    for meaning, begins in reversed(_ROLES):
        is_meant = pl.col(column).str.contains(f"^cu(da)?({begins})")
        role = pl.when(is_meant).then(pl.lit(meaning, ROLE)).otherwise(role)
    return role

"""Communication of a rank: how long it ran, how much of that nothing hid, by operation."""

import polars as pl

from wallscope.model.analysis import Communication, CommunicationOperation
from wallscope.model.kinds import Backend, Collective, OperationClass
from wallscope.timeline.spans import length_ns, union
from wallscope.walls.budget import exposed_ns, spans_of


def communication(operations: pl.DataFrame) -> Communication:
    """Volume and exposure of the communication of one rank (`CLASSIFIED`).

    Exposed means: neither compute nor an opaque graph ran. Operations that overlap each other are
    each shown with all their exposed time, so the list may add up to more than the total.
    """
    own = operations.filter(pl.col("class") == OperationClass.COMMUNICATION)
    covering = [OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH]
    computing = union(spans_of(operations.filter(pl.col("class").is_in(covering))))
    union_ns = length_ns(union(spans_of(own)))
    exposed = exposed_ns(own, computing)
    listed = [
        CommunicationOperation(
            operation=Collective(category),
            axis="unknown",
            backend=Backend(backend),
            count=len(group),
            work_ns=int((group["end_ns"] - group["start_ns"]).sum()),
            exposed_ns=exposed_ns(group, computing),
            bytes=int(group["bytes"].sum()) if group["bytes"].is_not_null().all() else None,
        )
        for (category, backend), group in own.group_by("category", "backend")
    ]
    return Communication(
        union_ns=union_ns,
        exposed_ns=exposed,
        blocking_ns=None,
        hidden_share=(union_ns - exposed) / union_ns if union_ns else None,
        operations=tuple(
            sorted(
                listed, key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.operation, entry.backend)
            )
        ),
    )

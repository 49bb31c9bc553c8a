"""Communication of a rank: how long it ran, how much of that nothing hid, by operation."""

import polars as pl

from wallscope.model.analysis import Communication, CommunicationOperation
from wallscope.model.kinds import Backend, Collective, OperationClass
from wallscope.timeline.spans import union
from wallscope.walls.budget import spans_of
from wallscope.walls.typical import TypicalWork

_COVERING = (OperationClass.COMPUTE, OperationClass.OPAQUE_GRAPH)


def communication(work: TypicalWork, all_exposed_ns: int) -> Communication:
    """Volume and exposure of the communication in the typical step of one rank.

    `all_exposed_ns` is the exposed part of its budget.

    Exposed means: neither compute nor an opaque graph ran. Operations that overlap each other are
    each shown with all their exposed time, so the list may add up to more than the total.
    """
    own = work.operations.filter(pl.col("class") == OperationClass.COMMUNICATION)
    computing = union(spans_of(work.operations.filter(pl.col("class").is_in(_COVERING))))
    computed_ns = work.all_covered_ns(computing)

    def exposed_ns(operations: pl.DataFrame) -> int:
        return work.all_covered_ns(union(computing, spans_of(operations))) - computed_ns

    ran_ns = work.all_covered_ns(union(spans_of(own)))
    hidden_ns = ran_ns - exposed_ns(own)
    listed = [
        CommunicationOperation(
            operation=Collective(category),
            axis="unknown",
            backend=Backend(backend),
            count=work.mean(int(group["begins"].sum())),
            work_ns=work.mean(int(group["inside_ns"].sum())),
            exposed_ns=work.mean(exposed_ns(group)),
            bytes=_bytes(work, group),
        )
        for (category, backend), group in own.group_by("category", "backend")
    ]
    return Communication(
        union_ns=all_exposed_ns + work.mean(hidden_ns),
        exposed_ns=all_exposed_ns,
        blocking_ns=None,
        hidden_share=hidden_ns / ran_ns if ran_ns else None,
        operations=tuple(
            sorted(
                listed, key=lambda entry: (-entry.exposed_ns, -entry.work_ns, entry.operation, entry.backend)
            )
        ),
    )


def _bytes(work: TypicalWork, operations: pl.DataFrame) -> int | None:
    begun = operations.filter(pl.col("begins"))["bytes"]
    return None if begun.null_count() else work.mean(int(begun.sum()))

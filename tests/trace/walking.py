"""Walks of traces written by hand in microseconds."""

from tests.attribution.brute_trace import Call, HostRow, Op, Trace, capture, evidence, in_order, operations
from wallscope.attribution.slices import blame_gaps
from wallscope.model.enums import LINK_KINDS
from wallscope.trace.dependencies import Dependencies, resolve_dependencies

US = 1_000


def trace_of(*rows, syncs=()) -> Trace:
    """Operations, calls and rows of the system, written in microseconds, as a trace."""

    def scaled(kind):
        held = (row for row in rows if isinstance(row, kind))
        return tuple(row._replace(start=round(row.start * US), end=round(row.end * US)) for row in held)

    return in_order(Trace(scaled(Op), scaled(Call), (), tuple(syncs), host=scaled(HostRow)))


def waits_of(*rows, syncs=()) -> Dependencies:
    """Who waits for whom."""
    return resolve_dependencies(capture(trace_of(*rows, syncs=syncs)))


def walk(*rows, syncs=()) -> list[tuple[float, float, str, bool]]:
    """From, to and kind of each link, and whether it is inferred."""
    trace = trace_of(*rows, syncs=syncs)
    links = blame_gaps(operations(trace), evidence(trace).constraints)
    sides = ((links.start_ns / US).tolist(), (links.end_ns / US).tolist())
    kinds = [str(LINK_KINDS[kind]) for kind in links.kind.tolist()]
    return [*zip(*sides, kinds, (links.inferred > 0).tolist(), strict=True)]


def launch(thread, start, end=None) -> Call:
    """A launch, of a microsecond where nothing is said."""
    return Call(thread, start, start + 1 if end is None else end, "launch")

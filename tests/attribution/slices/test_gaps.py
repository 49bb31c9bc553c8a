from hypothesis import assume, given
from hypothesis import strategies as st

from tests.attribution.brute import computes
from tests.attribution.brute_programs import jittered, possible, programmatic, senseless
from tests.attribution.brute_trace import Call, Op, Trace
from tests.attribution.slices.test_chain import found
from wallscope.model.enums import LinkKind
from wallscope.trace.intervals import make_spans, union


@given(st.one_of(senseless(), jittered(), programmatic()))
def test_links_tile_the_time_in_which_nothing_computed(trace):
    links = found(trace)

    busy = union(make_spans(*((op.start, op.end) for op in trace.ops if computes(op)))).rows()
    edges = sorted([*busy, *((link.start, link.end) for link in links)])
    assert [start for start, _ in edges[1:]] == [end for _, end in edges[:-1]]
    assert edges == [] or edges[0][0] == trace.ops[0].start
    assert edges == [] or edges[-1][1] == max(op.end for op in trace.ops)


@given(possible(), st.data())
def test_a_gap_does_not_depend_on_what_starts_after_it(trace, data):
    ends = sorted({trace.ops[link.gap].start for link in found(trace) if link.gap >= 0})
    assume(ends)
    until = data.draw(st.sampled_from(ends))
    later = [row for row, op in enumerate(trace.ops) if op.start > until]
    assume(later)
    ops = list(trace.ops)
    for row in later:
        length = data.draw(st.integers(0, 30_000))
        kind = data.draw(st.sampled_from(["compute", "communication", "copy", "opaque_graph"]))
        ops[row] = ops[row]._replace(end=ops[row].start + length, kind=kind)

    other = found(type(trace)(tuple(ops), trace.calls, trace.records, trace.syncs, trace.flags))

    before = [link for link in found(trace) if link.end <= until]
    assert [link for link in other if link.end <= until] == before


def test_an_operation_that_starts_later_holds_nothing_back_however_short_it_is():
    compute = Op(stream=0, start=0, end=0, kind="compute")
    of_unknown_issue = compute._replace(start=10, end=11)  # work of the null stream holds back that of others
    trace = Trace(
        ops=(
            compute._replace(start=5, end=6, call=0),
            compute._replace(start=9, end=10, call=1, stream=1),
            of_unknown_issue,
            compute._replace(start=12, end=13, call=2),
        ),
        calls=tuple(Call(thread=0, start=start, end=start + 1, what="launch") for start in (4, 8, 11)),
        records=(),
        syncs=(),
        flags={0: "null", 1: "blocking"},
    )
    [*_, before_second] = [link for link in found(trace) if link.gap == 1]
    assert (before_second.kind, before_second.call) == (LinkKind.LAUNCH_CALL, 1)

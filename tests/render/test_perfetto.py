"""The trace read back with Perfetto's own classes: slices nest, arrows meet, sums are those of the answer."""

import gzip
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from fixtures.export import ExportWriter
from tests.conftest import TRACES, slow
from wallscope.demo.machine import SimulatedMachine
from wallscope.model.capture import Options, Selection
from wallscope.model.enums import DeviceState, Wall
from wallscope.model.report import TRACED, Track
from wallscope.model.schemas import MEMORY_EVENTS, NAMES, SAMPLES
from wallscope.pipeline import analyze_capture, build_tables
from wallscope.render.perfetto import write_trace

HOSTILE = "evil</script>\x1b[31m\n\u202e" + "x" * 5_000


@dataclass
class Slice:
    name: str
    start_ns: int
    end_ns: int
    depth: int
    category: str | None = None
    notes: dict = field(default_factory=dict)


@dataclass
class Read:
    """Tracks by number: their descriptors and slices; where arrows begin and end."""

    tracks: dict
    slices: dict
    counters: dict
    out: Counter
    into: Counter

    def named(self, name):
        found = (number for number, track in self.tracks.items() if track.name == name)
        return [piece for number in found for piece in self.slices[number]]

    def path(self, number):
        track = self.tracks[number]
        return (*(self.path(track.parent_uuid) if track.HasField("parent_uuid") else ()), track.name)


def read(data):
    """What a viewer makes of it: events of a track in the order of time, then of the file."""
    trace = protos.Trace()
    trace.ParseFromString(data)
    texts = defaultdict(dict)
    events = defaultdict(list)
    found = Read({}, defaultdict(list), defaultdict(list), Counter(), Counter())
    for place, packet in enumerate(trace.packet):
        assert packet.trusted_packet_sequence_id == 1
        assert bool(packet.sequence_flags & 1) == (place == 0)
        for kind in ("event_names", "event_categories", "debug_annotation_names"):
            for entry in getattr(packet.interned_data, kind):
                assert texts[kind].setdefault(entry.iid, entry.name) == entry.name
        for entry in packet.interned_data.debug_annotation_string_values:
            texts["values"][entry.iid] = entry.str.decode()
        if packet.HasField("track_descriptor"):
            told = packet.track_descriptor
            assert told.uuid not in found.tracks
            assert not told.HasField("parent_uuid") or told.parent_uuid in found.tracks
            found.tracks[told.uuid] = told
        if packet.HasField("track_event"):
            assert packet.track_event.track_uuid in found.tracks
            events[packet.track_event.track_uuid].append((packet.timestamp, packet.track_event))
    for number, own in events.items():
        _read_track(found, number, sorted(own, key=lambda event: event[0]), texts)
    return found


def _read_track(found, number, events, texts):
    opened = []
    for at_ns, event in events:
        if event.type == event.TYPE_COUNTER:
            found.counters[number].append((at_ns, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            category = texts["event_categories"][event.category_iids[0]] if event.category_iids else None
            notes = {
                texts["debug_annotation_names"][note.name_iid]: texts["values"][note.string_value_iid]
                if note.HasField("string_value_iid")
                else note.int_value
                for note in event.debug_annotations
            }
            name = texts["event_names"][event.name_iid]
            opened.append(Slice(name, at_ns, -1, len(opened), category, notes))
            found.slices[number].append(opened[-1])
            found.out.update(event.flow_ids)
            found.into.update(event.terminating_flow_ids)
        else:
            opened.pop().end_ns = at_ns
    assert not opened


def written(path, **selected):
    options = Options(step_range="train_step", selection=Selection(**selected))
    found = analyze_capture(path, options, lambda _: None)
    traced = build_tables(found).build_tracks()
    return found, b"".join(write_trace(traced.tracks(), traced.earliest_ns()))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp("perfetto") / "run.sqlite"
    with ExportWriter(path) as writer:
        writer.gpu()
        main = SimulatedMachine(writer, pid=1000, device=0).thread("python", start_ns=1_000_000)
        for _ in range(6):
            with main.range("train_step"):
                with main.range(HOSTILE):
                    main.launch(HOSTILE, 400_000, stream=7)
                main.work(100_000)
                main.copy("host-to-device", 1 << 20, 50_000, stream=13)
                main.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000, stream=7)
                main.synchronize()
                main.work(50_000)
    return path


@pytest.fixture(scope="module")
def both(path):
    found, data = written(path)
    return found, read(data)


def test_the_tracks_are_those_of_the_capture(both):
    _, trace = both
    process = "process 1000"
    rank = next(trace.path(number)[1] for number in trace.tracks if len(trace.path(number)) == 2)
    paths = [trace.path(number) for number in trace.tracks]

    assert paths[:9] == [
        (process,),
        (process, rank),
        *(
            (process, rank, name)
            for name in ("steps", "walls", "causes", "device state", "critical path", "stream 7", "stream 13")
        ),
    ]
    assert [path[-1] for path in paths[9:]] == [paths[9][-1], "NVTX", "CUDA API"]
    (thread,) = (track.thread for track in trace.tracks.values() if track.HasField("thread"))
    assert (thread.pid, trace.tracks[1].process.pid) == (1000, 1000)


@pytest.mark.parametrize(
    ("track", "kinds", "part"),
    [
        pytest.param("walls", Wall, "walls", id="walls"),
        pytest.param("device state", DeviceState, "budget", id="budget"),
    ],
)
def test_a_band_tiles_each_step_and_sums_to_the_answer(both, track, kinds, part):
    found, trace = both
    band = trace.named(track)
    for step in found.analysis.ranks[0].steps:
        own = [one for one in band if step.start_ns <= one.start_ns < step.end_ns]
        sums = Counter()
        for one in own:
            sums[one.name] += one.end_ns - one.start_ns

        assert [one.start_ns for one in own] == [step.start_ns, *(one.end_ns for one in own[:-1])]
        assert own[-1].end_ns == step.end_ns
        assert tuple(sums[kind] for kind in kinds) == getattr(step, part).parts()


def test_the_critical_path_tiles_the_steps_that_were_played(both):
    found, trace = both
    path = found.replays.path
    band = trace.named("critical path")
    lengths = {step.index: step.end_ns - step.start_ns for step in found.analysis.ranks[0].steps}

    assert sum(one.end_ns - one.start_ns for one in band) == sum(
        lengths[step] for step in set(path.steps["step"])
    )
    assert {one.category for one in band} == {part.name for part in path.critical.walls}


def test_causes_sum_to_their_walls(both):
    _, trace = both
    causes, walls = Counter(), Counter()
    for one in trace.named("causes"):
        causes[one.category] += one.end_ns - one.start_ns
        assert one.name.startswith(f"{one.category}/") or one.name == one.category
    for one in trace.named("walls"):
        walls[one.name] += one.end_ns - one.start_ns

    assert causes == walls


def test_each_arrow_goes_from_a_launch_to_what_it_launched(both):
    found, trace = both
    issued = found.prepared.trace.operations.filter(pl.col("call") >= 0)

    assert trace.out == trace.into == Counter((issued["op"] + 1).to_list())


def test_names_and_times_are_those_of_the_capture(both):
    found, trace = both
    shown = [*trace.named("stream 7"), *trace.named("stream 13")]
    operations = found.prepared.trace.operations.select("op", "start_ns", "end_ns").sort("op").rows()

    assert sorted((one.notes["op"], one.start_ns, one.end_ns) for one in shown) == operations
    assert {one.name for one in trace.named("stream 13")} == {"copy host-to-device"}
    assert len(trace.named("CUDA API")) == len(found.prepared.trace.capture.calls)
    assert [one.depth for one in trace.named("NVTX")] == [0, 1] * 6


def test_hostile_names_are_spelled_out_and_cut(both):
    _, trace = both
    names = {one.name for one in trace.named("stream 7")}

    assert "evil</script>\\x1b[31m\\n\\u202e" in min(names, key=lambda name: name.startswith("nccl"))
    assert max(map(len, names)) < 500


def test_a_selection_of_steps_is_all_that_is_written(path):
    found, data = written(path, steps=(2, 3))
    trace = read(data)
    from_ns, until_ns = (found.analysis.ranks[0].steps[place] for place in (2, 3))

    assert [one.name for one in trace.named("steps")] == ["step 2", "step 3"]
    walls = trace.named("walls")
    assert (walls[0].start_ns, walls[-1].end_ns) == (from_ns.start_ns, until_ns.end_ns)
    shown = [*trace.named("stream 7"), *trace.named("stream 13")]
    assert all(one.end_ns > from_ns.start_ns and one.start_ns < until_ns.end_ns for one in shown)
    assert len(shown) == 6
    assert trace.out == trace.into


def test_the_same_capture_makes_the_same_bytes(path):
    assert written(path)[1] == written(path)[1]


@pytest.mark.parametrize("name", ["mpi_v100_4rank", *slow("nsysai_h100_2gpu_1s")])
def test_of_real_exports_with_several_ranks_walls_and_arrows_are_right(name):
    path = TRACES / f"{name}.sqlite"
    if not path.exists():
        pytest.skip("no real exports here: ../shared/traces is absent")
    found = analyze_capture(path, Options(), lambda _: None)
    traced = build_tables(found).build_tracks()
    trace = read(b"".join(write_trace(traced.tracks(), traced.earliest_ns())))
    bands = [number for number, track in trace.tracks.items() if track.name == "walls"]

    assert trace.out == trace.into
    assert len(bands) == len(found.analysis.ranks) > 1
    for rank, number in zip(found.analysis.ranks, bands, strict=True):
        sums = Counter()
        for one in trace.slices[number]:
            sums[one.name] += one.end_ns - one.start_ns
        walls = [step.walls.parts() for step in rank.steps]
        assert [sums[wall] for wall in Wall] == [sum(part) for part in zip(*walls, strict=True)]


def test_compressed_it_is_the_same(path, called, tmp_path):
    for name in ("t.pftrace", "t.pftrace.gz"):
        assert called("analyze", path, "--perfetto", tmp_path / name).code == 0

    packed = (tmp_path / "t.pftrace.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "t.pftrace").read_bytes()


def tracks(spans, nesting):
    ordered = sorted(spans, key=lambda span: (span[0], -span[1]))
    rows = [(start, end, f"n{end - start}", None, None, None) for start, end in ordered]
    return [Track("all", None, slices=pl.DataFrame(rows, schema=TRACED, orient="row"), nesting=nesting)]


@pytest.mark.parametrize("nesting", ["nested", "side by side"])
@given(
    spans=st.lists(
        st.tuples(st.integers(-9, 30), st.integers(0, 12)).map(lambda span: (span[0], sum(span))), min_size=1
    )
)
def test_slices_that_overlap_in_any_way_are_all_there_and_nest(nesting, spans):
    earliest_ns = min(start for start, _ in spans)
    trace = read(b"".join(write_trace(tracks(spans, nesting), earliest_ns)))
    later_ns = max(-earliest_ns, 0)
    found = trace.named("all")

    assert sorted((one.start_ns - later_ns, one.end_ns - later_ns) for one in found) == sorted(spans)
    assert all(one.name == f"n{one.end_ns - one.start_ns}" for one in found)
    assert nesting == "nested" or {one.depth for one in found} == {0}


def test_memory_and_samples_of_the_gpu_of_a_rank_are_counters(both):
    found, _ = both
    capture, rank = found.prepared.trace.capture, found.prepared.trace.capture.ranks.row(0, named=True)
    memory = [(rank["process"], rank["device"], 5, 100), (rank["process"], rank["device"] + 1, 6, 7)]
    samples = [(rank["gpu"], 5, 0, 1.5), (rank["gpu"], 9, 0, 2.5), (rank["gpu"] + 1, 5, 0, 3.5)]
    told = replace(
        capture,
        memory=pl.DataFrame(memory, schema=MEMORY_EVENTS, orient="row"),
        samples=pl.DataFrame(samples, schema=SAMPLES, orient="row"),
        metric_names=pl.DataFrame({"name": [0], "text": ["SMs Active"]}, schema=NAMES),
    )
    traced = build_tables(
        replace(found, prepared=replace(found.prepared, trace=replace(found.prepared.trace, capture=told)))
    ).build_tracks()
    trace = read(b"".join(write_trace(traced.tracks(), traced.earliest_ns())))
    counters = {trace.tracks[number].name: values for number, values in trace.counters.items()}

    assert counters == {"memory in use": [(5, 100.0)], "SMs Active": [(5, 1.5), (9, 2.5)]}


def test_counters_are_real_numbers():
    counter = pl.DataFrame({"at_ns": [5, 2**40], "value": [0.5, 2.0**60]})
    trace = read(b"".join(write_trace([Track("memory", None, counter=counter, unit="bytes")], 0)))

    assert trace.counters == {1: [(5, 0.5), (2**40, 2.0**60)]}
    assert trace.tracks[1].counter.unit_name == "bytes"


@given(values=st.lists(st.integers(0, 2**63 - 1), max_size=40))
def test_integers_of_every_size_are_written_as_protobuf_does(values):
    from google.protobuf.internal.encoder import _VarintBytes

    from wallscope.render.perfetto import join, repeat, write_number, write_numbers

    found = join(repeat(b"", len(values)), write_numbers(1, np.array(values, np.int64)))

    assert found.flat.tobytes() == b"".join(b"\x08" + _VarintBytes(value) for value in values)
    assert found.flat.tobytes() == b"".join(write_number(1, value) for value in values)

"""The events of a trace as frames, one per kind of event, with times in integer nanoseconds of the file.

Categories and arguments: libkineto's `output_json.cpp` and torch's `profiler_kineto.cpp`. Times are
microseconds with up to three decimals, integers up to torch 2.3.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Any

import numpy as np
import polars as pl

from wallscope.kernels import is_compiled
from wallscope.kineto.event_decoding import (
    CATEGORIES,
    FLOW,
    ArgumentType,
    DecodedRows,
    Event,
    NameArguments,
    collect_texts,
    decode_arguments,
)
from wallscope.kineto.event_scanner import UNNAMED, EventScanner, Scanned, ScannedRows
from wallscope.kineto.trace_bytes import TraceBytes
from wallscope.kineto.trace_events import FileFacts, iterate_events
from wallscope.model.capture import Progress
from wallscope.nsys.identity import LONGEST_NAME_LETTERS, number_texts
from wallscope.records import dataclass
from wallscope.thresholds.causes import LONGEST_LEAD_NS
from wallscope.trace.operator_flops import BACKWARD_OF, FLOP_FORMULAS
from wallscope.trace.record_times import (
    Extent,
    LeftOut,
    RecordTimes,
    count_time_faults,
    find_extent,
    mark_possible,
)
from wallscope.units import plural

_SPAN: dict[str, pl.DataType] = {
    "start": pl.Int64(),
    "end": pl.Int64(),
    "pid": pl.Int64(),
    "tid": pl.Int64(),
    "text": pl.UInt32(),  # index in the texts of the trace
}


_WHERE = ("correlation", "device", "context", "stream")
_NCCL_NUMBERS = (
    "group_size", "sent_count", "received_count", "old_sent_count", "old_received_count",
    "source_rank", "destination_rank",
)  # fmt: skip
_NCCL_TEXTS = ("collective", "dtype", "group_name", "old_group_name", "group_ranks")


_Rows = ScannedRows | DecodedRows


@dataclass(frozen=True, slots=True)
class _EventKind:
    """A kind of event to keep: its categories, and its arguments that are numbers, texts and sizes.

    `names` are those of its events, if the kind is only a part of its categories; `lists` are kept as JSON.
    """

    categories: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    reals: tuple[str, ...] = ()
    names: Collection[str] = ()

    @property
    def types(self) -> dict[str, ArgumentType]:
        """Return what each argument is."""
        return {
            **dict.fromkeys(self.numbers, ArgumentType.WHOLE),
            **dict.fromkeys(self.products, ArgumentType.PRODUCT),
            **dict.fromkeys(self.texts, ArgumentType.TEXT),
            **dict.fromkeys(self.reals, ArgumentType.REAL),
            **dict.fromkeys(self.lists, ArgumentType.LIST),
        }

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {
            **_SPAN,
            **dict.fromkeys((*self.numbers, *self.products), pl.Int64()),
            **dict.fromkeys((*self.texts, *self.lists), pl.String()),
            **dict.fromkeys(self.reals, pl.Float64()),
        }


_OPERATORS = ("cpu_op", "operator", "Operator")
_KINDS = {
    "kernels": _EventKind(
        ("kernel", "Kernel"),
        (*_WHERE, "registers", "shared_bytes", "graph_node", *_NCCL_NUMBERS),
        _NCCL_TEXTS,
        ("grid", "block"),
        reals=("blocks_per_sm", "warps_per_sm", "occupancy"),
    ),
    "copies": _EventKind(
        ("gpu_memcpy", "Memcpy"), (*_WHERE, "bytes", "graph_node", "in_device", "from_device")
    ),
    "fills": _EventKind(("gpu_memset", "Memset"), (*_WHERE, "bytes", "graph_node")),
    "calls": _EventKind(("cuda_runtime", "cuda_driver", "Runtime"), ("correlation",)),
    "annotations": _EventKind(("user_annotation",)),
    "operators": _EventKind(_OPERATORS, ("sequence", "forward_thread")),
    "multiplications": _EventKind(
        _OPERATORS,
        ("sequence",),
        lists=("shapes", "types", "values"),
        names=FLOP_FORMULAS.keys() | BACKWARD_OF.keys(),
    ),
    "syncs": _EventKind(
        ("cuda_sync",), (*_WHERE, "wait_stream", "wait_event", "wait_record"), ("sync_kind",)
    ),
    "overheads": _EventKind(("overhead",)),
}  # fmt: skip
_PYTHON = _EventKind(("python_function",))
_OF_ALLOCATIONS = ("reserved_bytes", "device_type", "device_id")
_ALLOCATIONS: dict[str, pl.DataType] = {
    "start": pl.Int64(),
    "pid": pl.Int64(),
    **dict.fromkeys(_OF_ALLOCATIONS, pl.Int64()),
}
_THREAD_NAMES: dict[str, pl.DataType] = {"pid": pl.Int64(), "tid": pl.Int64(), "role": pl.String()}
_FLOWS: dict[str, pl.DataType] = {
    **dict.fromkeys(("start", "pid", "tid", "link"), pl.Int64()),
    "is_backward": pl.Boolean(),
}
DEVICE_FRAMES = ("kernels", "copies", "fills")
_BATCH_COUNT = 8_000
"""Spans of a kind that become a frame together: fewer frames take less time, more values more memory."""
_FLOW_CODES = {"s": False, "f": True}
_SPAN_CODE, _THREAD_NAME = "X", "thread_name"
_INSTANT, _INSTANT_CODE, _ALLOCATION = "cpu_instant_event", "i", "[memory]"


@dataclass(frozen=True, slots=True)
class TraceTables:
    """The events of a trace: a frame per kind, the numbered texts, and faults found on the way.

    `counts` are the events of each category, `unknown_events` those of no known one; `left_out` has what was
    excluded of each kind because of its time. `is_coarse` means that no time has a fraction of a microsecond.
    """

    frames: dict[str, pl.DataFrame]
    texts: list[str]
    facts: FileFacts
    counts: Counter[str]
    unknown_events: int
    left_out: Mapping[str, LeftOut]
    is_coarse: bool

    @property
    def has_work(self) -> bool:
        """Whether there is a device operation."""
        return any(len(self.frames[name]) for name in DEVICE_FRAMES)

    def number_names(self, text: pl.Series) -> tuple[pl.DataFrame, pl.Series]:
        """Return the names among some texts (`NAMES`), and the number of each text, null without one."""
        used = text.unique().drop_nulls().sort()
        spelled = pl.Series("spelled", [self.texts[index] for index in used.to_list()], dtype=pl.String)
        names = number_texts(spelled)
        numbers = pl.DataFrame({"text": used, "spelled": spelled}).join(
            names, left_on="spelled", right_on="text", how="left", maintain_order="left"
        )
        found = text.to_frame("text").join(numbers, on="text", how="left", maintain_order="left")
        return names, found["name"]


@dataclass(slots=True)
class _Collector:
    """Frames under construction."""

    kinds: dict[str, _EventKind]
    waiting: dict[str, DecodedRows] = field(default_factory=dict)
    parts: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    unknown_events: int = 0
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    is_coarse: bool = True
    scanner: EventScanner | None = None

    def make_scanner(self) -> EventScanner:
        """Return a scanner of events, whose rows become frames in `make_room` and `build`."""
        types = {name: own_type for kind in self.kinds.values() for name, own_type in kind.types.items()}
        columns: defaultdict[str, set[str]] = defaultdict(set)
        for kind in self.kinds.values():
            for category in kind.categories:
                columns[category] |= kind.types.keys()
        chosen = {category: sorted(names) for category, names in columns.items()}
        chosen |= {FLOW: [], _INSTANT: list(_OF_ALLOCATIONS)}
        named = {name for kind in self.kinds.values() for name in kind.names}
        self.scanner = EventScanner(chosen, (FLOW, _INSTANT), types, self.texts, named)
        return self.scanner

    def add(self, events: list[Any]) -> None:
        """Add the events of a slice, behind those that were scanned."""
        if self.scanner is not None:
            self._use_scanned(self.scanner)
        by_struct: defaultdict[type[Any], list[Any]] = defaultdict(list)
        for event in events:
            by_struct[event.__class__].append(event)
        self._add_others(by_struct.pop(Event, []))
        by_category = {CATEGORIES[struct]: own for struct, own in by_struct.items()}
        flows = by_category.pop(FLOW, [])
        for code, is_backward in _FLOW_CODES.items():
            rows = DecodedRows([one for one in flows if one.ph == code])
            self._keep_flows(rows, is_backward=is_backward)
        noted = by_category.pop(_INSTANT, [])
        self._keep_allocations(
            DecodedRows([one for one in noted if one.ph == _INSTANT_CODE and one.name == _ALLOCATION])
        )
        spans = {name: [one for one in own if one.ph == _SPAN_CODE] for name, own in by_category.items()}
        self.counts.update({name: len(own) for name, own in spans.items() if own})
        for name, kind in self.kinds.items():
            own = [event for category in kind.categories for event in spans.get(category, ())]
            if kind.names:
                own = [event for event in own if event.name in kind.names]
            if own:
                self._add_spans(name, own)

    def _add_others(self, events: list[Event]) -> None:
        """Count spans of other categories, and add the names of threads, which have no category."""
        self.unknown_events += len(events)
        self.counts.update(event.cat for event in events if event.cat and event.ph == _SPAN_CODE)
        self._add_thread_names(
            [one for one in events if one.cat is None and one.ph == "M" and one.name == _THREAD_NAME]
        )

    def make_room(self) -> None:
        """Build frames of scanned events if there are many."""
        if self.scanner is not None and self.scanner.is_full:
            self._use_scanned(self.scanner)

    def _use_scanned(self, scanner: EventScanner) -> None:
        self._build_waiting()
        self._add_others(scanner.others)
        self.counts.update(
            {name: count for name, count in scanner.counts.items() if count and name not in (FLOW, _INSTANT)}
        )
        flows = scanner.find_rows([FLOW])
        for code, is_backward in _FLOW_CODES.items():
            self._keep_flows(flows.filter(flows.phase == ord(code)), is_backward=is_backward)
        noted = scanner.find_rows([_INSTANT])
        is_allocation = noted.text == self.texts.get(_ALLOCATION, -1)
        self._keep_allocations(noted.filter((noted.phase == ord(_INSTANT_CODE)) & is_allocation))
        for name, kind in self.kinds.items():
            rows = scanner.find_rows(kind.categories)
            if kind.names:
                numbers = [self.texts[text] for text in kind.names if text in self.texts]
                rows = rows.filter(np.isin(rows.text, numbers))
            if len(rows):
                self._keep_spans(name, rows)
        scanner.clear()

    def _add_spans(self, name: str, events: list[Any]) -> None:
        texts, waiting = self.texts, self.waiting.setdefault(name, DecodedRows())
        waiting.events.extend(events)
        waiting.numbers_of_names.extend(
            texts.setdefault((event.name or UNNAMED)[:LONGEST_NAME_LETTERS], len(texts)) for event in events
        )
        if len(waiting) >= _BATCH_COUNT:
            self._keep_spans(name, self.waiting.pop(name))

    def build(self) -> None:
        """Build frames of the spans that still wait for it."""
        if self.scanner is not None:
            self._use_scanned(self.scanner)
        self._build_waiting()

    def _build_waiting(self) -> None:
        for name in list(self.waiting):
            self._keep_spans(name, self.waiting.pop(name))

    def _keep_spans(self, name: str, rows: _Rows) -> None:
        kind = self.kinds[name]
        (start, is_fine), (duration, is_finer) = rows.times_ns("ts"), rows.times_ns("dur")
        self.is_coarse &= not (is_fine or is_finer)
        columns = {
            "start": start,
            "end": start + duration,
            "pid": rows.numbers("pid"),
            "tid": rows.numbers("tid"),
            "text": pl.Series(rows.text.astype(np.uint32)),
            **{column: rows.read(column, own_type) for column, own_type in kind.types.items()},
        }
        frame = pl.DataFrame(columns, schema=kind.schema)
        is_whole = not start.null_count() and not duration.null_count() and duration.min() >= 0  # type: ignore[operator]  # integers
        self._keep(name, frame if is_whole else self._drop_untimed(name, frame))

    def _drop_untimed(self, name: str, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with a valid time."""
        timed = frame.drop_nulls(["start", "end"])
        kept = timed.filter(pl.col("end") >= pl.col("start"))
        self.leave_out(name, LeftOut(len(frame) - len(timed), len(timed) - len(kept)))
        return kept

    def leave_out(self, name: str, some: LeftOut) -> None:
        """Count rows; those that were chosen by their name count with all of their category."""
        if not self.kinds[name].names:
            self.left_out[name] = self.left_out.get(name, LeftOut()) + some

    def _keep(self, name: str, frame: pl.DataFrame) -> None:
        self.parts.setdefault(name, []).append(frame)

    def _keep_flows(self, rows: _Rows, *, is_backward: bool) -> None:
        if not len(rows):
            return
        columns = {
            "start": rows.times_ns("ts")[0],
            "pid": rows.numbers("pid"),
            "tid": rows.numbers("tid"),
            "link": rows.numbers("id"),
            "is_backward": pl.repeat(is_backward, len(rows), eager=True),
        }
        self.counts[FLOW] += 0 if is_backward else len(rows)
        self._keep("flows", pl.DataFrame(columns, schema=_FLOWS).drop_nulls())

    def _keep_allocations(self, rows: _Rows) -> None:
        if not len(rows):
            return
        columns = {
            "start": rows.times_ns("ts")[0],
            **{name: rows.numbers(name) for name in ("pid", *_OF_ALLOCATIONS)},
        }
        self._keep("allocations", pl.DataFrame(columns, schema=_ALLOCATIONS).drop_nulls("start"))

    def _add_thread_names(self, events: list[Event]) -> None:
        if not events:
            return
        named = [decode_arguments(event, NameArguments).name for event in events]
        rows = DecodedRows(events)
        columns = {"pid": rows.numbers("pid"), "tid": rows.numbers("tid"), "role": collect_texts(named)}
        self._keep("thread_names", pl.DataFrame(columns, schema=_THREAD_NAMES))


def read_trace_tables(source: TraceBytes, progress: Progress, *, with_python: bool = False) -> TraceTables:
    """Return the events of a trace; the many events of Python functions only on request."""
    kinds = _KINDS | ({"python": _PYTHON} if with_python else {})
    facts, collector = FileFacts(), _Collector(kinds)
    scanner = collector.make_scanner() if is_compiled() else None
    seen = 0
    for events in iterate_events(source, facts, None if scanner is None else scanner.scan):
        if isinstance(events, Scanned):
            seen += events.event_count
            collector.make_room()
        else:
            collector.add(events)
            seen += len(events)
        progress(f"reading events: {seen:,}")
    collector.build()
    schemas: dict[str, dict[str, pl.DataType]] = {name: kind.schema for name, kind in kinds.items()}
    schemas |= {
        "allocations": _ALLOCATIONS,
        "flows": _FLOWS,
        "thread_names": _THREAD_NAMES,
    }
    frames = {
        name: pl.concat([pl.DataFrame(schema=schema), *collector.parts.pop(name, ())])
        for name, schema in schemas.items()
    }
    possible = dict(_mark_impossible(frames))
    for name, is_possible in possible.items():
        collector.leave_out(name, count_time_faults(_read_times(frames[name]), is_possible.to_numpy()))
    timed = {name: frames[name].filter(is_possible) for name, is_possible in possible.items()}
    return TraceTables(
        frames=frames | timed,
        texts=list(collector.texts),
        facts=facts,
        counts=collector.counts,
        unknown_events=collector.unknown_events,
        left_out=collector.left_out,
        is_coarse=collector.is_coarse,
    )


def _read_times(frame: pl.DataFrame) -> RecordTimes:
    return RecordTimes(frame["start"].to_numpy(), frame["end"].to_numpy())


def _mark_impossible(frames: dict[str, pl.DataFrame]) -> Iterator[tuple[str, pl.Series]]:
    """Yield the frames with events whose time cannot be, and which events of them are possible.

    CUPTI writes 0 for both times of work that it could not time, and Kineto passes them on.
    """
    times = {
        name: _read_times(frame) for name, frame in frames.items() if {"start", "end"} <= {*frame.columns}
    }
    on_device, calls = [times[name] for name in DEVICE_FRAMES], [times["calls"]]
    extents = dict.fromkeys(DEVICE_FRAMES, find_extent(on_device, calls))
    extents["calls"] = find_extent(calls, on_device)
    anywhere = Extent(min(extent.first_ns for extent in extents.values()))
    for name, own in times.items():
        extent = extents.get(name)
        is_possible = mark_possible(own, extent) if extent else mark_possible(own, anywhere, LONGEST_LEAD_NS)
        if not is_possible.all():
            yield name, pl.Series(is_possible)


def describe_counts(counts: Counter[str]) -> str:
    """Return the categories with most events, as text.

    >>> describe_counts(Counter({"cpu_op": 3, "kernel": 1}))
    '3 events of cpu_op, 1 event of kernel'
    """
    most = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:4]
    return ", ".join(f"{plural(count, 'event')} of {category}" for category, count in most)

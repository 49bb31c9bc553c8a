"""The events of a trace as frames, one per kind of event, with times in integer nanoseconds of the file.

Categories and arguments: libkineto's `output_json.cpp` and torch's `profiler_kineto.cpp`. Times are
microseconds with up to three decimals, integers up to torch 2.3.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from types import NoneType
from typing import Any

import msgspec
import polars as pl

from wallscope.kineto.operator_flops import BACKWARD_OF, FLOP_FORMULAS
from wallscope.kineto.trace_bytes import TraceBytes
from wallscope.kineto.trace_events import Event, FileFacts, iterate_events
from wallscope.model.capture import Progress
from wallscope.units import plural

_INT64 = range(-(2**63), 2**63)
_LARGEST_US = 2**53  # 285 years
_PLAIN_TYPES = {int, NoneType}

_SPAN: dict[str, pl.DataType] = {
    "start": pl.Int64(),
    "end": pl.Int64(),
    "pid": pl.Int64(),
    "tid": pl.Int64(),
    "text": pl.UInt32(),  # index in the texts of the trace
}


class _Arguments(msgspec.Struct, gc=False):
    """Arguments to read, of any kind of event; of any type, as versions differ."""

    correlation: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    bytes: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared_bytes: Any = msgspec.field(default=None, name="shared memory")
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    in_device: Any = msgspec.field(default=None, name="inDevice")
    from_device: Any = msgspec.field(default=None, name="fromDevice")
    collective: Any = msgspec.field(default=None, name="Collective name")
    dtype: Any = None
    group_size: Any = msgspec.field(default=None, name="Group size")
    sent_count: Any = msgspec.field(default=None, name="In msg nelems")
    received_count: Any = msgspec.field(default=None, name="Out msg nelems")
    old_sent_count: Any = msgspec.field(default=None, name="In msg size")
    old_received_count: Any = msgspec.field(default=None, name="Out msg size")
    group_name: Any = msgspec.field(default=None, name="Process Group Name")
    old_group_name: Any = msgspec.field(default=None, name="Process Group ID")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")
    source_rank: Any = msgspec.field(default=None, name="Src Rank")
    destination_rank: Any = msgspec.field(default=None, name="Dst Rank")
    sync_kind: Any = msgspec.field(default=None, name="cuda_sync_kind")
    wait_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    wait_event: Any = msgspec.field(default=None, name="wait_on_cuda_event_id")
    wait_record: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    warps_per_sm: Any = msgspec.field(default=None, name="warps per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
    name: Any = None
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    shapes: Any = msgspec.field(default=None, name="Input Dims")
    types: Any = msgspec.field(default=None, name="Input type")
    values: Any = msgspec.field(default=None, name="Concrete Inputs")
    reserved_bytes: Any = msgspec.field(default=None, name="Total Reserved")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")


class _LinkArguments(msgspec.Struct, gc=False):
    """The few arguments to read of every operator, of which there are many."""

    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")


_Struct = type[_Arguments] | type[_LinkArguments]
_DECODERS = {
    struct: (msgspec.json.Decoder(list[struct]), msgspec.json.Decoder(struct))  # type: ignore[valid-type]
    for struct in (_Arguments, _LinkArguments)
}

_WHERE = ("correlation", "device", "context", "stream")
_NCCL_NUMBERS = (
    "group_size", "sent_count", "received_count", "old_sent_count", "old_received_count",
    "source_rank", "destination_rank",
)  # fmt: skip
_NCCL_TEXTS = ("collective", "dtype", "group_name", "old_group_name", "group_ranks")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of event to keep: its categories, and its arguments that are numbers, texts and sizes.

    `names` are those of its events, if the kind is only a part of its categories; `lists` are kept as JSON.
    `struct` decodes the arguments.
    """

    categories: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    products: tuple[str, ...] = ()
    lists: tuple[str, ...] = ()
    reals: tuple[str, ...] = ()
    names: Collection[str] = ()
    struct: _Struct = _Arguments

    @property
    def schema(self) -> dict[str, pl.DataType]:
        return {
            **_SPAN,
            **dict.fromkeys((*self.numbers, *self.products), pl.Int64()),
            **dict.fromkeys((*self.texts, *self.lists), pl.String()),
            **dict.fromkeys(self.reals, pl.Float64()),
        }


_KINDS = {
    "kernels": _Kind(
        ("kernel",),
        (*_WHERE, "registers", "shared_bytes", "graph_node", *_NCCL_NUMBERS),
        _NCCL_TEXTS,
        ("grid", "block"),
        reals=("blocks_per_sm", "warps_per_sm", "occupancy"),
    ),
    "copies": _Kind(("gpu_memcpy",), (*_WHERE, "bytes", "graph_node", "in_device", "from_device")),
    "fills": _Kind(("gpu_memset",), (*_WHERE, "bytes", "graph_node")),
    "calls": _Kind(("cuda_runtime", "cuda_driver"), ("correlation",)),
    "annotations": _Kind(("user_annotation",)),
    "operators": _Kind(("cpu_op", "operator"), ("sequence", "forward_thread"), struct=_LinkArguments),
    "multiplications": _Kind(
        ("cpu_op", "operator"),
        ("sequence",),
        lists=("shapes", "types", "values"),
        names=FLOP_FORMULAS.keys() | BACKWARD_OF.keys(),
    ),
    "syncs": _Kind(
        ("cuda_sync",), (*_WHERE, "wait_stream", "wait_event", "wait_record"), ("sync_kind",)
    ),
    "overheads": _Kind(("overhead",)),
}  # fmt: skip
_PYTHON = _Kind(("python_function",))
_ALLOCATIONS: dict[str, pl.DataType] = {
    "start": pl.Int64(),
    "pid": pl.Int64(),
    **dict.fromkeys(("reserved_bytes", "device_type", "device_id"), pl.Int64()),
}
_THREAD_NAMES: dict[str, pl.DataType] = {"pid": pl.Int64(), "tid": pl.Int64(), "role": pl.String()}
_FLOWS: dict[str, pl.DataType] = {
    **dict.fromkeys(("start", "pid", "tid", "link"), pl.Int64()),
    "is_backward": pl.Boolean(),
}
_FLOW, _FLOW_CODES = "fwdbwd", {"s": False, "f": True}
_SPAN_CODE, _ALLOCATION, _THREAD_NAME = "X", "[memory]", "thread_name"


@dataclass(frozen=True, slots=True)
class TraceTables:
    """The events of a trace: a frame per kind, the numbered texts, and faults found on the way.

    `counts` are the events of each category, `negative_spans` and `timeless_events` were excluded.
    `is_coarse` means that no time has a fraction of a microsecond.
    """

    frames: dict[str, pl.DataFrame]
    texts: list[str]
    facts: FileFacts
    counts: Counter[str]
    negative_spans: int
    timeless_events: int
    is_coarse: bool


@dataclass(slots=True)
class _Collector:
    """Frames under construction."""

    kinds: dict[str, _Kind]
    parts: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    negative_spans: int = 0
    timeless_events: int = 0
    is_coarse: bool = True

    def add(self, events: Sequence[Event]) -> None:
        """Add the events of a slice."""
        by_category: dict[tuple[str | None, str], list[Event]] = {}
        for event in events:
            key = (event.cat, event.ph)
            try:
                by_category[key].append(event)
            except KeyError:
                by_category[key] = [event]
        for (category, code), own in by_category.items():
            if category and code == _SPAN_CODE:
                self.counts[category] += len(own)
        for name, kind in self.kinds.items():
            own = [
                event for category in kind.categories for event in by_category.get((category, _SPAN_CODE), ())
            ]
            if kind.names:
                own = [event for event in own if event.name in kind.names]
            if own:
                self._add_spans(name, kind, own)
        for code, is_backward in _FLOW_CODES.items():
            self._add_flows(by_category.get((_FLOW, code), []), is_backward=is_backward)
        noted = by_category.get(("cpu_instant_event", "i"), ())
        self._add_allocations([event for event in noted if event.name == _ALLOCATION])
        self._add_thread_names([one for one in by_category.get((None, "M"), ()) if one.name == _THREAD_NAME])

    def _add_spans(self, name: str, kind: _Kind, events: list[Event]) -> None:
        start, is_fine = _to_ns([bytes(event.ts) for event in events])
        duration, is_finer = _to_ns([bytes(event.dur) for event in events])
        self.is_coarse &= not (is_fine or is_finer)
        texts = self.texts
        columns: dict[str, Any] = {
            "start": start,
            "end": start + duration,
            "pid": _numbers([event.pid for event in events]),
            "tid": _numbers([event.tid for event in events]),
            "text": [texts.setdefault(event.name or "(unnamed)", len(texts)) for event in events],
        }
        if kind.numbers or kind.texts or kind.lists:
            arguments = _decode_arguments(events, kind.struct)
            for column in kind.numbers:
                columns[column] = _numbers([getattr(one, column) for one in arguments])
            for column in kind.products:
                columns[column] = _numbers([_product(getattr(one, column)) for one in arguments])
            for column in kind.texts:
                columns[column] = [_text(getattr(one, column)) for one in arguments]
            for column in kind.reals:
                columns[column] = [_real(getattr(one, column)) for one in arguments]
            for column in kind.lists:
                columns[column] = [_spell_list(getattr(one, column)) for one in arguments]
        frame = pl.DataFrame(columns, schema=kind.schema)
        timed = frame.drop_nulls(["start", "end"])
        kept = timed.filter(pl.col("end") >= pl.col("start"))
        if not kind.names:  # events chosen by name count with all of their category
            self.timeless_events += len(frame) - len(timed)
            self.negative_spans += len(timed) - len(kept)
        self.parts.setdefault(name, []).append(kept)

    def _add_flows(self, events: list[Event], *, is_backward: bool) -> None:
        if not events:
            return
        start, _ = _to_ns([bytes(event.ts) for event in events])
        columns = {
            "start": start,
            **{name: _numbers([getattr(one, name) for one in events]) for name in ("pid", "tid")},
            "link": _numbers([event.id for event in events]),
            "is_backward": pl.repeat(is_backward, len(events), eager=True),
        }
        self.counts[_FLOW] += 0 if is_backward else len(events)
        self.parts.setdefault("flows", []).append(pl.DataFrame(columns, schema=_FLOWS).drop_nulls())

    def _add_allocations(self, events: list[Event]) -> None:
        if not events:
            return
        start, _ = _to_ns([bytes(event.ts) for event in events])
        arguments = _decode_arguments(events)
        columns = {
            "start": start,
            "pid": _numbers([event.pid for event in events]),
            **{name: _numbers([getattr(one, name) for one in arguments]) for name in list(_ALLOCATIONS)[2:]},
        }
        self.parts.setdefault("allocations", []).append(
            pl.DataFrame(columns, schema=_ALLOCATIONS).drop_nulls("start")
        )

    def _add_thread_names(self, events: list[Event]) -> None:
        if not events:
            return
        columns = {
            "pid": _numbers([event.pid for event in events]),
            "tid": _numbers([event.tid for event in events]),
            "role": [_text(one.name) for one in _decode_arguments(events)],
        }
        self.parts.setdefault("thread_names", []).append(pl.DataFrame(columns, schema=_THREAD_NAMES))


def read_trace_tables(source: TraceBytes, progress: Progress, *, with_python: bool = False) -> TraceTables:
    """Return the events of a trace; the many events of Python functions only on request."""
    kinds = _KINDS | ({"python": _PYTHON} if with_python else {})
    facts, collector = FileFacts(), _Collector(kinds)
    seen = 0
    for events in iterate_events(source, facts):
        collector.add(events)
        seen += len(events)
        progress(f"reading events: {seen:,}")
    schemas: dict[str, dict[str, pl.DataType]] = {name: kind.schema for name, kind in kinds.items()}
    schemas |= {
        "allocations": _ALLOCATIONS,
        "flows": _FLOWS,
        "thread_names": _THREAD_NAMES,
    }
    return TraceTables(
        frames={
            name: pl.concat([pl.DataFrame(schema=schema), *collector.parts.pop(name, ())])
            for name, schema in schemas.items()
        },
        texts=list(collector.texts),
        facts=facts,
        counts=collector.counts,
        negative_spans=collector.negative_spans,
        timeless_events=collector.timeless_events,
        is_coarse=collector.is_coarse,
    )


def describe_counts(counts: Counter[str]) -> str:
    """Return the categories with most events, as text.

    >>> describe_counts(Counter({"cpu_op": 3, "kernel": 1}))
    '3 events of cpu_op, 1 event of kernel'
    """
    most = sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:4]
    return ", ".join(f"{plural(count, 'event')} of {category}" for category, count in most)


def _decode_arguments(events: Sequence[Event], struct: _Struct = _Arguments) -> Sequence[Any]:
    raw = [bytes(event.args) or b"{}" for event in events]
    many, one_by_one = _DECODERS[struct]
    try:
        return many.decode(b"".join((b"[", b",".join(raw), b"]")))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_decode_one(one, one_by_one, struct) for one in raw]


def _decode_one(raw: bytes, decoder: msgspec.json.Decoder[Any], struct: _Struct) -> Any:
    try:
        return decoder.decode(raw.decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return struct()


def _to_ns(raw: Sequence[bytes]) -> tuple[pl.Series, bool]:
    """Return microseconds as integer nanoseconds, null if invalid, and whether any has a fraction.

    >>> values, is_fine = _to_ns([b"4458676416788.066", b"68.0", b"-7", b"", b"1e3", b'"0.5"'])
    >>> values.to_list(), is_fine
    ([4458676416788066, 68000, -7000, None, 1000000, 500], True)
    """
    texts = pl.Series("time", [str(one, "latin-1") for one in raw], dtype=pl.String)
    whole = texts.cast(pl.Int64, strict=False)
    if not whole.null_count() and whole.abs().max() <= _LARGEST_US:  # type: ignore[operator]  # integers
        return whole * 1_000, False
    split = pl.col("time").str.strip_chars('" ').str.split_exact(".", 1)
    tenths = split.struct[1].fill_null("").str.pad_end(4, "0").str.slice(0, 4)
    frame = texts.to_frame().select(
        whole=split.struct[0].cast(pl.Int64, strict=False),
        thousandths=(tenths.cast(pl.UInt16, strict=False).cast(pl.Int64) + 5) // 10,
        sign=pl.when(pl.col("time").str.contains("-", literal=True)).then(-1).otherwise(1),
    )
    told = frame.select(
        ns=pl.when(pl.col("whole").abs() <= _LARGEST_US).then(
            pl.col("whole") * 1_000 + pl.col("sign") * pl.col("thousandths")
        )
    )["ns"]
    is_fine = bool((told % 1_000 != 0).any())
    if told.null_count():
        values = [
            _reckon_ns(text) if value is None else value for value, text in zip(told, texts, strict=True)
        ]
        told = pl.Series("ns", values, dtype=pl.Int64)
    return told, is_fine


def _reckon_ns(text: str) -> int | None:
    try:
        microseconds = Decimal(text.strip('" '))
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or abs(microseconds) > _LARGEST_US:
        return None
    return round(microseconds * 1_000)


def _numbers(values: list[Any]) -> pl.Series:
    """Return whole numbers, also those spelled as text; null otherwise."""
    if set(map(type, values)) <= _PLAIN_TYPES:
        try:
            return pl.Series(values, dtype=pl.Int64)
        except (OverflowError, TypeError):
            pass  # some are too large
    return pl.Series(list(map(_whole, values)), dtype=pl.Int64)


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and len(value) < 20 and value.lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value in _INT64 else None


def _real(value: Any) -> float | None:
    """Return a number that is not negative, also one spelled as text; null otherwise."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LARGEST_US else None


def _product(value: Any) -> int | None:
    """Return the product of three sizes."""
    if not isinstance(value, list):
        return None
    sizes = [_whole(one) for one in value]
    product = 1
    for size in sizes:
        if size is None or size < 0:
            return None
        product *= size
    return product


def _spell_list(value: Any) -> str | None:
    return msgspec.json.encode(value).decode() if isinstance(value, list) else None


def _text(value: Any) -> str | None:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else None if value is None else str(value)

"""Decode the events of a PyTorch trace into one structure for each category of event.

Only the members and arguments that are read are decoded. The category selects the structure while msgspec
decodes, so text of other members never becomes an object. An event that does not fit, of an unknown
category for instance, is decoded as `Event`, then as far as it fits. Times are numbers while a double has
their nanoseconds, else text. Values have the usual type almost always, and any type otherwise.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, Union

import msgspec
import numpy as np
import polars as pl

_EXACT_US = 2.0**43
"""102 days: below this, a double has the nanoseconds of microseconds."""
_Time = int | Annotated[float, msgspec.Meta(gt=-_EXACT_US, lt=_EXACT_US)] | str | None
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")
MEMBERS = ("ts", "dur", "pid", "tid", "id")
"""Members of an event that are numbers."""
_INT64 = range(-(2**63), 2**63)
_LARGEST_US = 2**53  # 285 years
_INTEGERS, _REALS, _TEXTS = {int, NoneType}, {int, float, NoneType}, {str, NoneType}


class Event(msgspec.Struct, gc=False):
    """An event as in the file: times and arguments are undecoded text."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: msgspec.Raw = _NOTHING
    dur: msgspec.Raw = _NOTHING
    args: msgspec.Raw = _NOTHING
    id: Any = None


class NameArguments(msgspec.Struct, gc=False):
    """Arguments of a row that names a thread."""

    name: Any = None


class CallArguments(msgspec.Struct, gc=False):
    """Arguments of a CUDA call; of any type, as versions differ."""

    correlation: Any = None


class CopyArguments(msgspec.Struct, gc=False):
    """Arguments of a copy or fill."""

    correlation: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    bytes: Any = None
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    in_device: Any = msgspec.field(default=None, name="inDevice")
    from_device: Any = msgspec.field(default=None, name="fromDevice")


class KernelArguments(msgspec.Struct, gc=False):
    """Arguments of a kernel, with those that PyTorch adds to collectives."""

    correlation: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared_bytes: Any = msgspec.field(default=None, name="shared memory")
    graph_node: Any = msgspec.field(default=None, name="graph node id")
    blocks_per_sm: Any = msgspec.field(default=None, name="blocks per SM")
    warps_per_sm: Any = msgspec.field(default=None, name="warps per SM")
    occupancy: Any = msgspec.field(default=None, name="est. achieved occupancy %")
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


class SyncArguments(msgspec.Struct, gc=False):
    """Arguments of a synchronization."""

    correlation: Any = None
    device: Any = None
    context: Any = None
    stream: Any = None
    sync_kind: Any = msgspec.field(default=None, name="cuda_sync_kind")
    wait_stream: Any = msgspec.field(default=None, name="wait_on_stream")
    wait_event: Any = msgspec.field(default=None, name="wait_on_cuda_event_id")
    wait_record: Any = msgspec.field(default=None, name="wait_on_cuda_event_record_corr_id")


class OperatorArguments(msgspec.Struct, gc=False):
    """Arguments of an operator; shapes stay text, because only few operators need them."""

    sequence: Any = msgspec.field(default=None, name="Sequence number")
    forward_thread: Any = msgspec.field(default=None, name="Fwd thread id")
    shapes: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=_NOTHING, name="Input type")
    values: msgspec.Raw = msgspec.field(default=_NOTHING, name="Concrete Inputs")


class AllocationArguments(msgspec.Struct, gc=False):
    """Arguments of an allocation."""

    reserved_bytes: Any = msgspec.field(default=None, name="Total Reserved")
    device_type: Any = msgspec.field(default=None, name="Device Type")
    device_id: Any = msgspec.field(default=None, name="Device Id")


class _Counted(msgspec.Struct, gc=False):
    """An event of which only the number counts."""

    ph: str = ""


class _Timed(_Counted, gc=False):
    name: str | None = None
    pid: Any = None
    tid: Any = None
    ts: _Time = None
    dur: _Time = None


class _Flow(_Timed, gc=False):
    id: Any = None


_OLD_ARGUMENTS: dict[str, type[msgspec.Struct]] = {
    "Kernel": KernelArguments,
    "Memcpy": CopyArguments,
    "Memset": CopyArguments,
    "Runtime": CallArguments,
    "Operator": OperatorArguments,
}
"""Categories that PyTorch wrote from 1.8 to 1.12."""
ARGUMENTS: dict[str, type[msgspec.Struct]] = {
    "kernel": KernelArguments,
    "gpu_memcpy": CopyArguments,
    "gpu_memset": CopyArguments,
    "cuda_runtime": CallArguments,
    "cuda_driver": CallArguments,
    "cpu_op": OperatorArguments,
    "operator": OperatorArguments,
    "cuda_sync": SyncArguments,
    "cpu_instant_event": AllocationArguments,
    **_OLD_ARGUMENTS,
}
_TIMED = ("user_annotation", "python_function", "overhead")
COUNTED = (
    "ac2g", "async_cpu_to_gpu", "gpu_user_annotation", "cuda_event", "cuda_profiler_range",
    "hardware_counters", "Trace", "async",
)  # fmt: skip
FLOW = "fwdbwd"
"""Links from forward to backward operators."""


def _define(category: str, base: type[msgspec.Struct], **members: Any) -> type[msgspec.Struct]:
    fields = [(name, kind, msgspec.field(default_factory=kind)) for name, kind in members.items()]
    return msgspec.defstruct(category, fields, bases=(base,), tag_field="cat", tag=category, gc=False)


STRUCTS: dict[str, type[Any]] = {
    **{category: _define(category, _Timed, args=kind) for category, kind in ARGUMENTS.items()},
    **{category: _define(category, _Timed) for category in _TIMED},
    **{category: _define(category, _Counted) for category in COUNTED},
    FLOW: _define(FLOW, _Flow),
}
CATEGORIES: dict[type[Any], str] = {struct: category for category, struct in STRUCTS.items()}
"""The category of each structure other than `Event`."""
_SPECIFIC = msgspec.json.Decoder(list[Union[tuple(CATEGORIES)]])  # type: ignore[misc]  # made above  # noqa: UP007
_GENERAL = msgspec.json.Decoder(list[Event])
_ONE = msgspec.json.Decoder(Event)


def decode_events(text: bytes) -> list[Any] | None:
    """Return the events of a JSON list, each in the structure of its category; `None` if it is not one."""
    try:
        return list(_SPECIFIC.decode(text))
    except (msgspec.ValidationError, UnicodeDecodeError):
        pass
    except (msgspec.DecodeError, RecursionError):
        return None
    try:
        return [_specify(event) for event in _GENERAL.decode(text)]
    except _FAULTS:
        return None


def decode_event(text: bytes) -> Any:
    """Return one event in the structure of its category.

    Raises:
        msgspec.DecodeError: it is not an event; also UnicodeDecodeError and RecursionError.
    """
    return _specify(_ONE.decode(text))


def decode_arguments(event: Event, kind: type[Any]) -> Any:
    """Return the arguments of an event; none if they cannot be read."""
    try:
        return msgspec.json.decode(bytes(event.args).decode("utf-8", "replace"), type=kind)
    except (msgspec.DecodeError, RecursionError):
        return kind()


def decode_list(text: msgspec.Raw) -> list[Any] | None:
    """Return a list; `None` if it is another value."""
    try:
        value = msgspec.json.decode(bytes(text).decode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _specify(event: Event) -> Any:
    category = event.cat or ""
    if category not in STRUCTS:
        return event
    struct = STRUCTS[category]
    values = {name: getattr(event, name) for name in struct.__struct_fields__}
    values |= {name: str(bytes(values[name]), "latin-1") for name in ("ts", "dur") if name in values}
    if "args" in values:
        values["args"] = decode_arguments(event, ARGUMENTS[category])
    return struct(**values)


class ArgumentType(Enum):
    """What an argument is: a whole number, a list of sizes whose product counts, ..."""

    WHOLE = auto()
    PRODUCT = auto()
    REAL = auto()
    TEXT = auto()
    LIST = auto()


def convert_to_ns(times: list[Any]) -> tuple[pl.Series, bool]:
    """Return microseconds as integer nanoseconds, null if invalid, and whether any has a fraction.

    >>> values, is_fine = convert_to_ns(["1712195000000000.485", "68.0", -7, "", "1e3", '"0.5"'])
    >>> values.to_list(), is_fine
    ([1712195000000000485, 68000, -7000, None, 1000000, 500], True)
    >>> convert_to_ns(["1.5e3", "5.7e-70", "1.712195000000000485E+15"])[0].to_list()
    [1500000, 0, 1712195000000000485]
    >>> convert_to_ns(["1e1000000", "-1e1000000", "7" * 5_000, "nan"])[0].to_list()
    [None, None, None, None]
    >>> convert_to_ns([4458676416788.066, -0.5])[0].to_list()
    [4458676416788066, -500]
    """
    kinds = set(map(type, times))
    if kinds <= {int, float} and kinds:
        if max(map(abs, times)) > _LARGEST_US:
            pass  # some are invalid
        elif kinds == {int}:
            return pl.Series(times, dtype=pl.Int64) * 1_000, False
        else:
            return _round_to_ns(np.array(times, np.float64))
    return _parse_ns(times)


def _round_to_ns(times_us: np.ndarray) -> tuple[pl.Series, bool]:
    """Return nanoseconds; a double is exact if it is whole or below `_EXACT_US`."""
    whole = np.floor(np.abs(times_us))
    thousandths = np.floor((np.abs(times_us) - whole) * 1_000 + 0.5).astype(np.int64)
    ns = np.where(times_us < 0, -1, 1) * (whole.astype(np.int64) * 1_000 + thousandths)
    return pl.Series("ns", ns), bool((ns % 1_000).any())


def _parse_ns(times: list[Any]) -> tuple[pl.Series, bool]:
    texts = pl.Series("time", [None if one is None else str(one) for one in times], dtype=pl.String)
    split = pl.col("time").str.strip_chars('" ').str.split_exact(".", 1)
    tenths = split.struct[1].fill_null("").str.pad_end(4, "0").str.slice(0, 4)
    frame = texts.to_frame().select(
        whole=pl.when(~pl.col("time").str.contains("[eE]")).then(
            split.struct[0].cast(pl.Int64, strict=False)
        ),
        thousandths=(tenths.cast(pl.UInt16, strict=False).cast(pl.Int64) + 5) // 10,
        sign=pl.when(pl.col("time").str.contains("-", literal=True)).then(-1).otherwise(1),
    )
    found_ns = frame.select(
        ns=pl.when(pl.col("whole").abs() <= _LARGEST_US).then(
            pl.col("whole") * 1_000 + pl.col("sign") * pl.col("thousandths")
        )
    )["ns"]
    if found_ns.null_count():
        values = [
            _reckon_ns(text) if value is None else value for value, text in zip(found_ns, texts, strict=True)
        ]
        found_ns = pl.Series("ns", values, dtype=pl.Int64)
    return found_ns, bool((found_ns % 1_000 != 0).any())


def _reckon_ns(text: str | None) -> int | None:
    try:
        microseconds = Decimal((text or "").strip('" '))
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or not -_LARGEST_US <= microseconds <= _LARGEST_US:
        return None
    return round(microseconds * 1_000)


def _collect_numbers(values: list[Any]) -> pl.Series:
    """Return whole numbers, also those spelled as text; null otherwise."""
    if set(map(type, values)) <= _INTEGERS:
        try:
            return pl.Series(values, dtype=pl.Int64)
        except (OverflowError, TypeError):
            pass  # some are too large
    return pl.Series(list(map(read_whole, values)), dtype=pl.Int64)


def _collect_reals(values: list[Any]) -> pl.Series:
    """Return numbers that are not negative, also those spelled as text; null otherwise."""
    if set(map(type, values)) <= _REALS:
        try:
            found = pl.Series(values, dtype=pl.Float64, strict=False)
        except (OverflowError, TypeError):
            pass  # some are too large
        else:
            return found.set(~found.is_between(0, _LARGEST_US), None)
    return pl.Series(list(map(read_real, values)), dtype=pl.Float64)


def collect_texts(values: list[Any]) -> pl.Series:
    """Return texts, also of lists and numbers."""
    if not set(map(type, values)) <= _TEXTS:
        values = list(map(spell_value, values))
    return pl.Series(values, dtype=pl.String)


def _collect_lists(values: Iterable[msgspec.Raw]) -> pl.Series:
    """Return lists as JSON without spaces; null otherwise."""
    return pl.Series(list(map(spell_list, values)), dtype=pl.String)


def _collect_products(values: Iterable[Any]) -> pl.Series:
    """Return the products of lists of sizes; null otherwise."""
    return _collect_numbers(list(map(read_product, values)))


_COLLECTORS: dict[ArgumentType, Callable[[list[Any]], pl.Series]] = {
    ArgumentType.WHOLE: _collect_numbers,
    ArgumentType.PRODUCT: _collect_products,
    ArgumentType.REAL: _collect_reals,
    ArgumentType.TEXT: collect_texts,
    ArgumentType.LIST: _collect_lists,
}


@dataclass(slots=True)
class DecodedRows:
    """Decoded events of one kind, and the numbers of their names; columns as of `ScannedRows`."""

    events: list[Any] = field(default_factory=list)
    numbers_of_names: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.events)

    @property
    def text(self) -> np.ndarray:
        """The number of each event's name."""
        return np.array(self.numbers_of_names, np.int64)

    def times_ns(self, name: str) -> tuple[pl.Series, bool]:
        """Return times in nanoseconds, and whether any has a fraction of a microsecond."""
        return convert_to_ns(self._values(name))

    def numbers(self, name: str) -> pl.Series:
        """Return whole numbers; null otherwise."""
        return self.read(name, ArgumentType.WHOLE)

    def read(self, name: str, own_type: ArgumentType) -> pl.Series:
        """Return the values of a member or an argument."""
        return _COLLECTORS[own_type](self._values(name))

    def _values(self, name: str) -> list[Any]:
        return list(map(attrgetter(name if name in MEMBERS else f"args.{name}"), self.events))


def read_whole(value: Any) -> int | None:
    """Return a whole number, also one spelled as text; `None` for another value."""
    if isinstance(value, str) and len(value) < 20 and value.lstrip("-").isdecimal():
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and value in _INT64 else None


def read_real(value: Any) -> float | None:
    """Return a number that is not negative, also one spelled as text; `None` for another value."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= _LARGEST_US else None


def read_product(value: Any) -> int | None:
    """Return the product of a list of sizes; `None` for another value."""
    if not isinstance(value, list):
        return None
    product = 1
    for one in value:
        size = one if type(one) is int else read_whole(one)
        if size is None or size < 0:
            return None
        product *= size
    return product


def spell_list(text: msgspec.Raw) -> str | None:
    """Return a list as JSON without spaces; `None` for another value."""
    found = decode_list(text)
    return None if found is None else msgspec.json.encode(found).decode()


def spell_value(value: Any) -> str | None:
    """Return a text, also of a list or number."""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return value if isinstance(value, str) else None if value is None else str(value)

"""The events of each category as they are decoded: only the members and arguments that are read.

The category selects the structure while msgspec decodes, so text of other members never becomes an object.
An event that does not fit, of an unknown category for instance, is decoded as `Event`, then as far as it
fits. Times are numbers while a double has their nanoseconds, else text.
"""

from typing import Annotated, Any, Union

import msgspec

_EXACT_US = 2.0**43
"""102 days: below this, a double has the nanoseconds of microseconds."""
_Time = int | Annotated[float, msgspec.Meta(gt=-_EXACT_US, lt=_EXACT_US)] | str | None
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NOTHING = msgspec.Raw(b"")


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
}
_TIMED = ("user_annotation", "python_function", "overhead")
COUNTED = (
    "ac2g", "async_cpu_to_gpu", "gpu_user_annotation", "cuda_event", "cuda_profiler_range",
    "hardware_counters", "Trace",
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
    told = {name: getattr(event, name) for name in struct.__struct_fields__}
    told |= {name: str(bytes(told[name]), "latin-1") for name in ("ts", "dur") if name in told}
    if "args" in told:
        told["args"] = decode_arguments(event, ARGUMENTS[category])
    return struct(**told)

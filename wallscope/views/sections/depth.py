"""What is each wall of one rank made of, and what did its device do? Communication, memory, host, compute."""

from collections.abc import Iterator, Mapping, Sequence

from wallscope import units
from wallscope.model.analysis import Analysis, ComputeWork, KernelWork, Rank
from wallscope.model.enums import Axis, CopyDirection, DeviceState, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.rank_summaries import (
    BlockingCall,
    Communication,
    CommunicationOperation,
    ComputeDetails,
    CopyWork,
    GpuMetrics,
    HostDetails,
    KernelRate,
    LaunchShapes,
    LinkTraffic,
    MetricMean,
    PrecisionWork,
)
from wallscope.model.section import (
    PAGE,
    Block,
    Cell,
    Column,
    Grid,
    Limit,
    Lines,
    Medium,
    Section,
    make_column,
    make_columns,
    on_page,
    on_terminal,
    tabulate,
)
from wallscope.render.texts import visible
from wallscope.thresholds.verdict import (
    MATERIAL_SHARE,
    SHOWN_COMPUTE_SHARE,
    SHOWN_COPY_BYTES,
    SHOWN_HOST_SHARE,
    SHOWN_OVERLAP_TAX_SHARE,
)
from wallscope.views.sections.words import STATE_NAMES, STATE_WORDS, describe_pressure
from wallscope.views.verdict import name_wall_time

_ROWS: Mapping[Medium, Limit] = {"terminal": Limit(6, "smaller row"), "page": Limit(40)}
_ALL_ROWS: Mapping[Medium, Limit] = {"terminal": Limit(6, "smaller row")}
_MOST_CALLS, _MOST_ON_PAGE = 4, 30
_LONGEST_RANGE = 28
_TELLING_TIMES = 2
_MOST_PRECISIONS = 3
_PINNED = {True: "pinned", False: "pageable", None: ""}
_STATE_WALLS = {
    DeviceState.COMPUTE: Wall.COMPUTE,
    DeviceState.OPAQUE_GRAPH: Wall.UNATTRIBUTED,
    DeviceState.EXPOSED_COMMUNICATION: Wall.COMMUNICATION,
    DeviceState.EXPOSED_COPY: Wall.MEMORY,
    DeviceState.IDLE: None,
}
"""The wall whose color shows a state of the device."""
_ACTIVITY = (
    "This table shows what ran on the GPU. Its shares differ from those of the time breakdown, which shows"
    " what the step waited for. For example, a short gap between two kernels is idle time here, and compute"
    " there."
)


def build_walls_in_depth(analysis: Analysis, rank: Rank) -> tuple[Section, ...]:
    """Make a section of each wall, the largest loss first; the dominant one is open."""
    dominant, whole = analysis.diagnosis.dominant_wall, analysis.anchor.typical
    own_ns = dict(zip(Wall, rank.typical.walls.parts(), strict=True))
    blocks = {
        Wall.COMMUNICATION: _communication_in_depth(rank, whole),
        Wall.MEMORY: _memory_in_depth(analysis, rank),
        Wall.HOST: build_host_blocks(rank, whole),
        Wall.COMPUTE: tuple(build_compute_blocks(rank, whole)),
    }
    order = sorted(blocks, key=lambda wall: (wall != dominant, wall == Wall.COMPUTE, -own_ns[wall]))
    step_ns, nothing = rank.typical.step_ns, (Lines(("This capture has none.",)),)
    sections = []
    for wall in order:
        share = units.percent(own_ns[wall] / step_ns if step_ns else 0.0)
        title = f"{str(wall).capitalize()} in detail"
        took = f"{units.capitalize(name_wall_time(wall))} takes {units.duration(own_ns[wall])}, {share}"
        answer = f"{took} of the {whole} ({units.duration(step_ns)})."
        shown = blocks[wall] or nothing
        sections.append(Section(str(wall), title, answer, shown, is_open=wall == dominant, wall=wall))
    return tuple(sections)


def _communication_in_depth(rank: Rank, whole: str) -> tuple[Block, ...]:
    found = rank.communication
    if not found.operations:
        return ()
    lines = Lines((f"{_describe_hidden(found, whole)}.", *describe_communication(found, whole)))
    blocks = lines, _tabulate_communication(found, whole)
    return (*blocks, tabulate_traffic(found.traffic, whole)) if found.traffic else blocks


def _describe_hidden(found: Communication, whole: str) -> str:
    hidden = units.percent(found.hidden_share) if found.hidden_share else "none"
    ran = f"Communication ran for {units.milliseconds(found.union_ns)} of the {whole}"
    return f"{ran}; compute hides {hidden} of it"


def _tabulate_communication(found: Communication, whole: str) -> Grid:
    shown = found.operations[: _ROWS["terminal"].most]
    has_rate = any(entry.bus_bandwidth_bytes_per_s is not None for entry in shown)
    columns = (
        on_terminal("operation", "operation", value=_name_collective),
        make_column(CommunicationOperation, "operation", media=PAGE),
        make_column(CommunicationOperation, "axis", media=PAGE, value=_explain_axis),
        make_column(CommunicationOperation, "backend", media=PAGE),
        *make_columns(
            CommunicationOperation, "count", "exposed_ns", "work_ns", "bytes", words={"whole": whole}
        ),
        make_column(
            CommunicationOperation,
            "bus_bandwidth_bytes_per_s",
            media=("page", "terminal") if has_rate else PAGE,
        ),
    )
    return tabulate("Communication operations", columns, found.operations, limits=_ROWS, is_wordy=True)


def tabulate_traffic(traffic: tuple[LinkTraffic, ...], whole: str) -> Grid:
    """Make a table of what links carried, also in exposed communication, in the units that they have."""
    rates, shares = ("bytes_per_s", "exposed_bytes_per_s"), ("peak_share", "exposed_peak_share")
    shown = [
        name
        for names in (rates, shares)
        if any(getattr(entry, names[0]) is not None for entry in traffic)
        for name in names
    ]
    columns = make_columns(
        LinkTraffic, "link", "direction", *shown, "samples", "exposed_samples", words={"whole": whole}
    )
    note = (
        "Network cards and switches count the traffic of the whole host, NVLink only that of this rank's GPU."
    )
    return tabulate(f"Link traffic in the {whole}", columns, traffic, limits=_ROWS, notes=(note,))


def _name_collective(entry: CommunicationOperation) -> str:
    axis = "" if entry.axis is Axis.UNKNOWN else f"{entry.axis} "
    return f"{axis}{entry.operation} ({entry.backend})"


def _explain_axis(entry: CommunicationOperation) -> str:
    return "unknown" if entry.axis is Axis.UNKNOWN else f"{entry.axis} ({'; '.join(entry.evidence)})"


def describe_communication(communication: Communication, whole: str) -> Iterator[str]:
    """Say its exposed and critical time, the slowdown of overlapping compute, the parts of a dispatcher."""
    if communication.blocking_ns is not None:
        exposed, waited = map(units.milliseconds, (communication.exposed_ns, communication.blocking_ns))
        yield (
            f"No compute kernel runs during {exposed} of it (exposed); the {whole} waits {waited} for it."
            " Operations can overlap, so the sum of their exposed times can be larger."
        )
    if communication.traffic is None:
        yield "What NVLink and network cards carried is unknown, because the capture has no samples of them."
    tax, work = communication.overlap_tax, communication.dispatcher
    if tax is not None:
        compared = f"{units.number(tax.kernels)} in all"
        if tax.compared_share is not None:
            compared += f" ({units.percent(tax.compared_share)} of their time)"
        change = f"{units.duration(abs(tax.slowed_ns))} {'more' if tax.slowed_ns > 0 else 'less'}"
        is_alike = abs(tax.ratio - 1) < SHOWN_OVERLAP_TAX_SHARE
        taken = "" if is_alike else f": {change} in the {whole}"
        yield (
            f"Of the kernels that overlap communication, {compared} can be compared with the same kernels"
            f" alone. These take {'' if is_alike else f'{tax.ratio:.2f}x '}as long as alone{taken}."
        )
    elif (communication.hidden_share or 0.0) >= MATERIAL_SHARE:
        yield (
            "Whether communication slows the kernels that it overlaps is unknown: no kernel runs often enough"
            " both with communication and alone."
        )
    if work is not None:
        names = ("pack", "synchronise", "transport", "unpack", "route")
        spent_ns = (work.pack_ns, work.synchronise_ns, work.transport_ns, work.unpack_ns, work.routing_ns)
        parts = zip(names, spent_ns, strict=True)
        listed = ", ".join(f"{name} {units.duration(time_ns)}" for name, time_ns in parts if time_ns)
        yield f"Time in operations of the token dispatcher: {listed or 'none'}."


def _memory_in_depth(analysis: Analysis, rank: Rank) -> tuple[Block, ...]:
    lines = Lines(tuple(_describe_memory(analysis, rank)))
    whole = analysis.anchor.typical
    return (lines, _tabulate_copies(rank, whole)) if rank.memory.copies else (lines,)


def _describe_memory(analysis: Analysis, rank: Rank) -> Iterator[str]:
    memory, pressure = rank.memory, analysis.diagnosis.memory_pressure
    evidence = f" ({'; '.join(pressure.evidence)})" if pressure.evidence else ""
    yield f"Memory pressure: {describe_pressure(pressure)}{evidence}."
    capacity = units.size(memory.capacity_bytes)
    if memory.peak_bytes is not None:
        yield f"Peak in use {units.size(memory.peak_bytes)} of {capacity} on the device."
    elif memory.capacity_bytes is not None:
        yield f"Device memory: {capacity}; how much of it is in use is unknown."
    if memory.use is not None:
        started = "" if memory.use.from_the_start else "; earlier allocations are missing"
        yield f"Headroom {units.size(memory.use.headroom_bytes)} (from recorded allocations{started})."
    if memory.allocator_calls is not None:
        calls, spent = units.number(memory.allocator_calls), units.duration(memory.allocator_ns)
        text = f"Allocator calls in the {analysis.anchor.typical}: {calls}"
        yield (
            f"{text}; host time in them, summed over threads: {spent}." if memory.allocator_ns else f"{text}."
        )
    steady = [step for step in rank.steps if step.steady]
    worst, usual_ns = max(steady, key=lambda step: step.walls.memory, default=None), rank.typical.walls.memory
    if worst is not None and worst.walls.memory >= _TELLING_TIMES * max(usual_ns, 1):
        most, unit = units.duration(worst.walls.memory), analysis.anchor.unit
        usual = f"{units.duration(usual_ns)} in the {analysis.anchor.typical}"
        yield f"Memory takes {most} in {unit} {worst.index}, more than in any other {unit}, and {usual}."
    if memory.offload is not None and memory.offload.work_ns:
        there, back = units.size(memory.offload.to_host_bytes), units.size(memory.offload.to_device_bytes)
        work = units.milliseconds(memory.offload.work_ns)
        yield f"Offload: {there} to the host, {back} back, work {work}."


def _tabulate_copies(rank: Rank, whole: str) -> Grid:
    columns = (
        on_terminal("direction", "copies and fills", value=_name_copy),
        make_column(CopyWork, "direction", media=PAGE),
        make_column(CopyWork, "pinned", media=PAGE, value=lambda entry: _PINNED[entry.pinned]),
        *make_columns(CopyWork, "count", "bytes", "work_ns", "exposed_ns", words={"whole": whole}),
        on_terminal("rate", "rate", "rate", value=_achieved_rate, none=""),
        make_column(CopyWork, "bulk_bandwidth_bytes_per_s", media=PAGE, none=""),
    )
    brief = "Memory traffic (alone: nothing else ran)"
    return tabulate(f"Memory traffic of the {whole}", columns, rank.memory.copies, brief=brief, limits=_ROWS)


def _name_copy(entry: CopyWork) -> str:
    return ", ".join(filter(None, (str(entry.direction), _PINNED[entry.pinned])))


def _achieved_rate(entry: CopyWork) -> float | None:
    """Work out bandwidth; tiny copies are all latency, and fills of a cache go past the memory's peak."""
    is_telling = entry.direction != CopyDirection.FILL and entry.bytes >= SHOWN_COPY_BYTES * entry.count
    return entry.bytes / entry.work_ns * 1e9 if is_telling and entry.work_ns else None


def build_host_blocks(rank: Rank, whole: str) -> tuple[Block, ...]:
    """Make what launches cost and how far the host is ahead, then the calls that drained the queue."""
    details = rank.host_details
    if details is None:
        return (Lines(("The capture has no CUDA API calls, so host time is unknown.",)),)
    lines = tuple(describe_host(details, rank.typical.step_ns, whole))
    calls = details.blocking_calls[:_MOST_ON_PAGE]
    return (*([Lines(lines)] if lines else ()), *([_tabulate_calls(calls, whole)] if calls else ()))


def _tabulate_calls(calls: Sequence[BlockingCall], whole: str) -> Grid:
    count = _count_per(whole) if whole.startswith("typical ") else "times"
    columns = (
        on_terminal("call", "call that drained the queue", value=_place_call, wrap="cut"),
        *make_columns(BlockingCall, "name", "path", media=PAGE, none=""),
        make_column(BlockingCall, "count", words={"whole": whole}, value=_count_blocking_calls, brief=count),
        *make_columns(BlockingCall, "waited_ns", "drained_ns"),
    )
    title = "Blocking calls that drained the GPU queue"
    return tabulate(
        title, columns, calls, limits={"terminal": Limit(_MOST_CALLS, "more call")}, is_wordy=True
    )


def _place_call(call: BlockingCall) -> str:
    """Name the call and the innermost range that it is mostly made in."""
    name = visible(call.name, most=40)
    innermost = (call.path or "").rsplit(" / ", 1)[-1]
    cut = innermost if len(innermost) <= _LONGEST_RANGE else f"…{innermost[1 - _LONGEST_RANGE :]}"
    return f"{name} in {visible(cut)}" if call.path else name


def _count_blocking_calls(call: BlockingCall) -> str:
    """Say how many of a call a step holds, and a layer or microbatch."""
    is_known = call.unit is not None and call.per_unit is not None
    each = f", {units.average(call.per_unit or 0.0)} per {call.unit}" if is_known else ""
    return f"{units.average(call.count)}{each}"


def _count_per(whole: str) -> str:
    """Say what a count refers to.

    >>> _count_per("typical window"), _count_per("capture")
    ('per window', 'in the capture')
    """
    unit = whole.removeprefix("typical ")
    return f"in the {whole}" if unit == whole else f"per {unit}"


def describe_host(details: HostDetails, step_ns: int, whole: str) -> Iterator[str]:
    """Say what launches cost, how far the host is ahead, its CPU time, and which order is false."""
    launches, ahead, cpu = details.launches, details.ahead, details.cpu
    if launches is not None:
        bound = (
            ", so the host cannot launch as fast as the GPU executes (launch-bound)"
            if launches.is_launch_bound
            else ""
        )
        middle, high = units.duration(launches.median_ns), units.duration(launches.p90_ns)
        yield (
            f"{units.plural(launches.calls, 'launch call')} {_count_per(whole)}, median {middle}, p90 {high};"
            f" {units.percent(launches.outpaced_share)} take longer than the kernel that they launch{bound}."
        )
    if ahead is not None:
        middle, low = units.duration(ahead.median_ns), f"10th percentile {units.duration(ahead.p10_ns)}"
        low = low if ahead.p10_ns else "at least 10 % start before the call ends"
        yield (
            f"Compute kernels start {middle} after their launch call ends (median; {low})."
            " If it takes at most a few µs, the kernel waited only for its launch."
            if ahead.median_ns
            else "At least half of the compute kernels start before their launch call ends."
        )
    if cpu is not None:
        source = {"switches": "the OS's thread switches", "samples": "CPU samples"}[cpu.source]
        share = f"{units.percent(cpu.share)} of the {whole}"
        yield f"The thread that launches kernels ran on a CPU for {share} (source: {source})."
    serial = details.serialisation
    if serial is not None and serial.held_ns >= SHOWN_HOST_SHARE * step_ns:
        limit = serial.max_connections
        connections = "" if limit is None else f"; CUDA_DEVICE_MAX_CONNECTIONS is {limit}"
        yield (
            f"{units.average(serial.count)} kernels {_count_per(whole)} waited for another stream without a"
            f" dependency, {units.duration(serial.held_ns)} in total. The reason is a shared work queue, or a"
            f" full GPU{connections}."
        )


def build_compute_blocks(rank: Rank, whole: str) -> Iterator[Block]:
    """Make categories, precisions, launch shapes, sampled metrics, unknown kernels."""
    details, metrics = rank.compute_details, rank.gpu_metrics
    lines = () if details is None else (*describe_compute(details), *_describe_shapes(details.launch_shapes))
    if lines:
        yield Lines(lines)
    if rank.compute:
        yield _tabulate_compute(rank, whole)
    if details is not None and details.kernel_rates:
        yield _tabulate_rates(details.kernel_rates, whole)
    if details is not None and details.precisions:
        title = "Matrix multiplications by precision (from kernel names)"
        names = ("precision", "kernels", "work_ns", "share")
        columns = make_columns(PrecisionWork, *names, words={"whole": whole})
        yield tabulate(title, columns, details.precisions)
    if metrics is not None and metrics.means:
        yield tabulate_metrics(metrics, whole)
    if rank.unmatched_kernels:
        yield _tabulate_unmatched(rank, whole)


def _tabulate_compute(rank: Rank, whole: str) -> Grid:
    names = ("category", "kernels", "work_ns", "share")
    columns = make_columns(ComputeWork, *names, words={"whole": whole})
    if any(entry.flops_per_s is not None for entry in rank.compute):
        columns = (*columns, make_column(ComputeWork, "flops_per_s", none=""))
    if any(entry.flops_share is not None and entry.flops_share < 1 for entry in rank.compute):
        columns = (*columns, make_column(ComputeWork, "flops_share", none=""))
    return tabulate("Compute kernels by category", columns, rank.compute, limits=_ALL_ROWS)


def _tabulate_rates(rates: tuple[KernelRate, ...], whole: str) -> Grid:
    columns = (
        make_column(KernelRate, "name", media=("terminal",), most=40, wrap="cut"),
        make_column(KernelRate, "name", media=PAGE),
        *make_columns(KernelRate, "kernels", "work_ns", "flops_per_s", words={"whole": whole}),
        make_column(KernelRate, "peak_share", none=""),
    )
    return tabulate("Kernels with known FLOPs", columns, rates, limits=_ALL_ROWS)


def tabulate_metrics(metrics: GpuMetrics, whole: str) -> Grid:
    """Make a table of the means of sampled metrics, and say whose they are."""
    note = "Values are for the whole GPU; it is unknown on which GPU the other ranks ran."
    if metrics.exclusive_share is not None:
        share = units.percent(metrics.exclusive_share)
        others = f"; in {share} of the samples no other rank of this export ran on it"
        note = f"Values are for the whole GPU{'' if metrics.exclusive_share == 1 else others}."
    columns = make_columns(MetricMean, "metric", "mean_share", "samples")
    return tabulate(f"GPU metrics, sampled in the {whole}", columns, metrics.means, notes=(note,))


def _tabulate_unmatched(rank: Rank, whole: str) -> Grid:
    columns = (
        make_column(KernelWork, "name", media=("terminal",), most=60, wrap="cut"),
        make_column(KernelWork, "name", media=PAGE),
        make_column(
            KernelWork,
            "count",
            words={"whole": whole},
            value=lambda entry: units.number(entry.count) if entry.count else "<1",
        ),
        *make_columns(KernelWork, "work_ns", "share", words={"whole": whole}),
    )
    title = "Unrecognized kernels (classify them with --kernels FILE)"
    return tabulate(title, columns, rank.unmatched_kernels, limits=_ALL_ROWS)


def describe_compute(details: ComputeDetails) -> Iterator[str]:
    """Say the precisions, and what is larger than a twentieth of the work and could be done in less."""
    if details.precisions:
        shown = details.precisions[:_MOST_PRECISIONS]
        listed = ", ".join(f"{entry.precision} {units.percent(entry.share)}" for entry in shown)
        yield f"Matrix multiplications by precision (from kernel names): {listed}."
    shapes = details.launch_shapes
    shares = {
        "elementwise kernels of single operations (not fused)": details.unfused_elementwise_share,
        "casts between number formats": details.cast_share,
        "quantization": details.quantize_share,
        "sequences of small GEMMs": details.small_multiplications.share,
        "kernels with fewer blocks than multiprocessors": shapes.small_grid_share,
        "kernels of low occupancy": shapes.low_occupancy_share,
    }
    large = [
        f"{units.percent(share)} {name}"
        for name, share in shares.items()
        if share is not None and share >= SHOWN_COMPUTE_SHARE
    ]
    if large:
        overlap = " (one kernel can be in several groups)" if len(large) > 1 else ""
        yield f"Of the time in compute kernels: {', '.join(large)}{overlap}."
    if shapes.tail_share is not None and shapes.tail_share >= SHOWN_COMPUTE_SHARE:
        idle = units.percent(shapes.tail_share)
        yield (
            f"The last wave of blocks is partly empty, which leaves {idle} of the multiprocessors' time in"
            " compute kernels unused, by grid sizes and occupancy."
        )


def _describe_shapes(shapes: LaunchShapes) -> Iterator[str]:
    if shapes.occupancy is not None:
        yield (
            f"Theoretical occupancy of the compute kernels: {units.percent(shapes.occupancy)}, a mean"
            " weighted by duration. Matrix multiplications and attention are left out."
        )
    if shapes.achieved_occupancy is not None:
        achieved = units.percent(shapes.achieved_occupancy)
        yield f"The profiler estimates {achieved} achieved occupancy of these kernels, grid sizes included."
    if shapes.small_grid_kernels:
        small = units.plural(shapes.small_grid_kernels, "kernel")
        verb = "has" if shapes.small_grid_kernels == 1 else "have"
        yield f"{small} {verb} fewer blocks than the GPU has multiprocessors."


def tabulate_budget(analysis: Analysis, rank: Rank) -> Grid:
    """Make a table of what the device did in the typical step."""
    unseen = any(finding.code == FindingCode.GRAPH_REPLAYS_MISSING for finding in analysis.capture.findings)
    step_ns = rank.typical.step_ns
    columns = (
        on_terminal("state", ""),
        on_page("state", "part"),
        on_terminal("bar", "", "bar"),
        on_terminal("share", "share", "percent"),
        Column("time_ns", "time", "ms"),
        on_page("share", "share", "percent"),
    )
    rows = []
    for state in DeviceState:
        time_ns = getattr(rank.typical.budget, state)
        share = time_ns / step_ns if step_ns else 0.0
        name = Cell(STATE_NAMES[state], hint=STATE_WORDS[state])
        brief = "idle or unseen graphs" if state is DeviceState.IDLE and unseen else STATE_NAMES[state]
        rows.append((brief, name, Cell(share, _STATE_WALLS[state]), share, time_ns, share))
    title = f"GPU activity in the {analysis.anchor.typical}"
    return Grid(title, columns, tuple(rows), has_header=False, notes=(_ACTIVITY,))

"""Conditions that make one capture seem slower: profiler, its options, driver, clocks, amount of work.

What a capture costs is in its times: each launch takes longer under a profiler that records more. How much
work a step does is known only where the user gives the tokens; kernels and copies show when it differs.
"""

from collections.abc import Iterator, Sequence

from wallscope.compare.kernel_changes import sum_work
from wallscope.compare.operation_changes import KEPT, pair_operations
from wallscope.compare.typical_steps import Key, TypicalStep, total_work
from wallscope.model.capture import GraphTracing
from wallscope.model.comparison import Direction, Mismatch
from wallscope.model.enums import CopyDirection, Wall
from wallscope.model.finding_codes import FindingCode
from wallscope.model.profile import Header, ProfiledInput
from wallscope.records import dataclass
from wallscope.thresholds.verdict import (
    BIAS_SHARE,
    LIKE_INPUT_RATIO,
    OTHER_CLOCK_RATIO,
    OTHER_WORK_RATIO,
    UNIFORM_CHANGE_RATIO,
    UNIFORM_CLOCK_RATIO,
    UNIFORM_WORK_SHARE,
)
from wallscope.units import duration, percent, plural

_COPIES = frozenset(map(str, CopyDirection))
_HOST = "host"
_ON_BOTH = frozenset({"CUDA", "NVTX"})
_CUT_OFF = FindingCode.TRACE_CUT_OFF
_LACKS_WORK = "any time may lack work that is not in the file: copy the file again, or profile fewer steps"
_EITHER_WAY = "another version can change kernels, launch times and clocks"


@dataclass(frozen=True, slots=True)
class BiasSide:
    """One side: whose profile it is, and its typical step."""

    header: Header
    step: TypicalStep

    @property
    def capture(self) -> ProfiledInput | None:
        """The first capture of the side."""
        return next(iter(self.header.inputs), None)


def find_biases(base: BiasSide, head: BiasSide) -> tuple[Mismatch, ...]:
    """Return the conditions that differ and bias the comparison, those with an estimate first."""
    ours, theirs = base.capture, head.capture
    found = [*_incomplete(base, head), *_amount_of_work(base, head)]
    if ours is not None and theirs is not None:
        found += _launch_calls(base, head, ours, theirs)
        if ours.profiler is theirs.profiler:
            found += [*_profilers(ours, theirs), *_capture_options(ours, theirs)]
        found += _machines(ours, theirs)
    return tuple(sorted(found, key=lambda entry: -abs(entry.bias_ns or 0)))


def _incomplete(base: BiasSide, head: BiasSide) -> Iterator[Mismatch]:
    """Refuse a verdict on a capture that ends early: any of its times may lack work."""
    ours, theirs = (
        "ends early" if any(_CUT_OFF in one.findings for one in side.header.inputs) else "complete"
        for side in (base, head)
    )
    if "ends early" in {ours, theirs}:
        yield Mismatch("capture", ours, theirs, "incomparable", _LACKS_WORK, "either")


def _profilers(base: ProfiledInput, head: ProfiledInput) -> Iterator[Mismatch]:
    versions = [one.conditions.profiler_version for one in (base, head)]
    if None in versions:
        versions = [one.nsys_version for one in (base, head)]
    if None not in versions and versions[0] != versions[1]:
        effect = "another version may add more or less time to each call, which changes host time"
        yield _either("profiler version", versions, effect, Wall.HOST)


def _capture_options(base: ProfiledInput, head: ProfiledInput) -> Iterator[Mismatch]:
    sides = [dict(one.conditions.options) for one in (base, head)]
    if not all(sides):
        return
    for name in sorted((sides[0].keys() | sides[1].keys()) - _ON_BOTH):
        ours, theirs = (side.get(name, "off") for side in sides)
        if ours == theirs:
            continue
        direction: Direction = "slower" if ours == "off" else "faster" if theirs == "off" else "either"
        more = {"slower": "in head", "faster": "in base", "either": "on both sides"}[direction]
        effect = f"this option costs host time {more}"
        effect += "" if direction == "either" else f": head seems {direction} than it is"
        yield Mismatch(f"capture option {name}", ours, theirs, "note", effect, direction, wall=Wall.HOST)


def _launch_calls(
    base: BiasSide, head: BiasSide, ours: ProfiledInput, theirs: ProfiledInput
) -> Iterator[Mismatch]:
    """Compare what a launch takes that waits for nothing: what a profiler or driver costs shows in it."""
    if ours.launch_call_ns is None or theirs.launch_call_ns is None:
        return
    if {base.header.work.graphs, head.header.work.graphs} != {GraphTracing.NONE}:
        return
    each_ns = theirs.launch_call_ns - ours.launch_call_ns
    launches = round(min(sum_work(side.step, _is_kernel).count for side in (base, head)))
    bias_ns = each_ns * launches
    if abs(bias_ns) < BIAS_SHARE * base.step.step_ns or not base.step.step_ns:
        return
    direction: Direction = "slower" if bias_ns > 0 else "faster"
    effect = (
        f"over {plural(launches, 'launch')} per step the difference is up to {duration(abs(bias_ns))} of host"
        f" time. If launches limit the step and the profiler causes the difference, head seems {direction} by"
        f" up to {percent(abs(bias_ns) / base.step.step_ns)} of base's step"
    )
    values = duration(ours.launch_call_ns), duration(theirs.launch_call_ns)
    yield Mismatch(
        "time of a launch call (lower quartile)", *values, "note", effect, direction, bias_ns, Wall.HOST
    )


def _is_kernel(key: Key) -> bool:
    return key.category not in _COPIES and key.category != _HOST


def _machines(base: ProfiledInput, head: ProfiledInput) -> Iterator[Mismatch]:
    ours, theirs = base.conditions, head.conditions
    for what, values in (
        ("NVIDIA driver", (ours.driver_version, theirs.driver_version)),
        ("CUDA version of the driver", (ours.cuda_version, theirs.cuda_version)),
    ):
        if None not in values and values[0] != values[1]:
            yield _either(what, values, _EITHER_WAY)
    if ours.clock_hz and theirs.clock_hz and ours.clock_hz != theirs.clock_hz:
        direction: Direction = "slower" if theirs.clock_hz < ours.clock_hz else "faster"
        share = percent(abs(theirs.clock_hz / ours.clock_hz - 1))
        effect = f"kernels that compute may run up to {share} {direction} in head"
        values = (f"{ours.clock_hz / 1e6:.0f} MHz", f"{theirs.clock_hz / 1e6:.0f} MHz")
        yield Mismatch("highest GPU clock", *values, "note", effect, direction, wall=Wall.COMPUTE)
    devices = base.device_count, head.device_count
    if None not in devices and devices[0] != devices[1]:
        effect = "more GPUs share the host and communicate more, which can make head slower or faster"
        yield _either("GPUs in the capture", devices, effect)


def _amount_of_work(base: BiasSide, head: BiasSide) -> Iterator[Mismatch]:
    """Compare how long the same kernels take at the same number of calls, and if nearly all changed alike.

    Larger inputs make kernels longer and copies of the input larger, lower clocks make kernels alone longer.
    """
    if None not in {base.header.work.tokens_per_step, head.header.work.tokens_per_step}:
        return
    scaled = _find_uniform_change(base.step, head.step)
    copied = _input_ratio(base.step, head.step)
    if scaled is None:
        return
    ratio, spread = scaled
    size = max(ratio, 1 / ratio)
    has_other_input = copied is not None and max(copied, 1 / copied) > LIKE_INPUT_RATIO
    direction: Direction = "slower" if ratio > 1 else "faster"
    compute_ns = base.step.walls[Wall.COMPUTE] + head.step.walls[Wall.COMPUTE]
    bias_ns = round(compute_ns / 2 * (ratio - 1) / ((ratio + 1) / 2))
    values = ("1.00x", f"{ratio:.2f}x")
    if size >= OTHER_WORK_RATIO and spread <= UNIFORM_CHANGE_RATIO and (copied is None or has_other_input):
        if copied is not None and (copied > 1) != (ratio > 1):
            return
        proof = "" if copied is None else f" and {copied:.2f}x the bytes are copied to the GPU"
        effect = (
            f"the same kernels run as often and take {ratio:.2f}x as long{proof}, as with another batch size"
            " or sequence length; give --tokens-per-step and --head-tokens-per-step to compare throughput"
        )
        yield Mismatch("work per step (inferred)", *values, "note", effect, direction, bias_ns, Wall.COMPUTE)
    elif size >= OTHER_CLOCK_RATIO and spread <= UNIFORM_CLOCK_RATIO and not has_other_input:
        effect = (
            f"nearly all kernels take {ratio:.2f}x as long at the same number of calls, as with"
            f" {'lower' if ratio > 1 else 'higher'} GPU clocks or a GPU that others use too"
        )
        yield Mismatch(
            "speed of all kernels (inferred)", *values, "note", effect, direction, bias_ns, Wall.COMPUTE
        )


def _find_uniform_change(base: TypicalStep, head: TypicalStep) -> tuple[float, float] | None:
    """Return the median ratio of the time per call of kernels that run as often, by work, and its spread.

    The spread is the ratio that holds most of the work around the median. It must hold without the kernel
    that runs longest too: one kernel that got slower does not show another condition. `None` where few of
    them are alike.
    """
    ratios: list[tuple[float, float]] = []
    for pair in pair_operations(base, head):
        keys = [key for key in (*pair.base, *pair.head) if not _is_kernel(key) or key.axis is not None]
        if keys or pair.matched_by not in KEPT:
            continue
        ours, theirs = (
            total_work([side.ran[key] for key in own if key in side.ran])
            for side, own in ((base, pair.base), (head, pair.head))
        )
        if ours.work_ns and theirs.work_ns and ours.count == theirs.count > 0:
            ratios.append((float(theirs.work_ns / ours.work_ns), float(ours.work_ns + theirs.work_ns)))
    kernels = [
        sum_work(side, lambda key: _is_kernel(key) and key.axis is None).work_ns for side in (base, head)
    ]
    weight = sum(part for _, part in ratios)
    if len(ratios) < 2 or weight < UNIFORM_WORK_SHARE * float(sum(kernels)):
        return None
    middle = _weighted_quantile(ratios, 0.5)
    apart = [(max(ratio / middle, middle / ratio), part) for ratio, part in ratios]
    others = sorted(apart, key=lambda entry: entry[1])[:-1]
    return middle, max(_weighted_quantile(entries, UNIFORM_WORK_SHARE) for entries in (apart, others))


def _weighted_quantile(values: list[tuple[float, float]], share: float) -> float:
    """Return the value below which a share of the weight lies.

    >>> _weighted_quantile([(1.0, 1.0), (2.0, 5.0), (9.0, 1.0)], 0.5)
    2.0
    """
    left = share * sum(weight for _, weight in values)
    for value, weight in sorted(values):
        left -= weight
        if left <= 0:
            return value
    return max(values)[0]


def _input_ratio(base: TypicalStep, head: TypicalStep) -> float | None:
    """Return head by base of the bytes that a step copies to the device, `None` where they are unknown."""
    ours, theirs = (
        sum_work(step, lambda key: key.category == CopyDirection.HOST_TO_DEVICE).bytes
        for step in (base, head)
    )
    return float(theirs) / float(ours) if ours and theirs else None


def _either(what: str, values: Sequence[object], effect: str, wall: Wall | None = None) -> Mismatch:
    """Return a note on what may make head seem slower or faster."""
    base, head = map(str, values)
    return Mismatch(what, base, head, "note", effect, "either", None, wall)

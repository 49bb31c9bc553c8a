"""The only place that turns numbers into text for people, and that makes any text one that UTF-8 can hold.

Unknown (`None`) reads `unknown`; a measured zero keeps its unit. Bytes of file names and options become
halves of surrogate pairs, which UTF-8 cannot hold: they are spelled out.
"""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any

_LARGEST_SPEEDUP = 20
"""Above, a speedup says only that nearly all time is lost."""
_UNKNOWN = "unknown"
_LEAST_SHARE, _LEAST_PERCENT = 0.0005, "0.1 %"
_LEAST_SHOWN_NS = 1_000
"""Shorter times would need many decimals as milliseconds."""
_DURATIONS = (
    (86_400_000_000_000, "d", 1),
    (3_600_000_000_000, "h", 2),
    (60_000_000_000, "min", 2),
    (1_000_000_000, "s", 3),
    (1_000_000, "ms", 1),
    (1_000, "µs", 1),
)
"""Units of time with their decimals; the page's script (`timeline.js`) has the same."""
_DECIMALS = ((995_000, 1), (99_500, 2), (9_950, 3), (1, 4))
"""Decimals of milliseconds from so many nanoseconds on, for two digits that count."""
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def duration(time_ns: int | None) -> str:
    """Nanoseconds in the largest unit that leaves a digit before the point.

    >>> duration(412_600_000), duration(1_500), duration(949), duration(2_456_000_000), duration(None)
    ('412.6 ms', '1.5 µs', '949 ns', '2.456 s', 'unknown')
    >>> duration(999_999), duration(999_960_000), duration(75 * 10**9), duration(119_265_840 * 10**9)
    ('1.0 ms', '1.000 s', '1.25 min', '1,380.4 d')
    """
    if time_ns is None:
        return _UNKNOWN
    for unit_ns, unit, decimals in _DURATIONS:
        if round(abs(time_ns) / unit_ns, decimals) >= 1:
            return f"{time_ns / unit_ns:,.{decimals}f} {unit}"
    return f"{time_ns} ns"


def change(before_ns: int, after_ns: int) -> str:
    """Return a time that changes to another, with the unit once if both have the same.

    >>> change(48_400_000, 31_000_000), change(1_200_000, 900_000)
    ('48.4 → 31.0 ms', '1.2 ms → 900.0 µs')
    """
    before, after = duration(before_ns), duration(after_ns)
    value, _, unit = before.partition(" ")
    return f"{value if after.endswith(f' {unit}') else before} → {after}"


def signed_duration(time_ns: int) -> str:
    """A difference of times, with its sign.

    >>> signed_duration(34_900_000), signed_duration(-1_500), signed_duration(0)
    ('+34.9 ms', '-1.5 µs', '0 ns')
    """
    return f"+{duration(time_ns)}" if time_ns > 0 else duration(time_ns)


_WHOLE_PERCENT = 1000
"""From here on tenths of a per cent are not written."""


def signed_percent(share: float) -> str:
    """A relative difference, with its sign; a large one in whole per cent.

    >>> signed_percent(0.088), signed_percent(-0.0214), signed_percent(0.0), signed_percent(207.616)
    ('+8.8 %', '-2.1 %', '0.0 %', '+20762 %')
    """
    rounded = round(100 * share, 1) or 0.0
    text = f"{rounded:.1f} %" if rounded < _WHOLE_PERCENT else f"{rounded:.0f} %"
    return f"+{text}" if rounded > 0 else text


def seconds(time_ns: int) -> str:
    """Session time in seconds, to the nanosecond, as Nsight shows it.

    >>> seconds(60_127_760_123), seconds(5)
    ('60.127760123', '0.000000005')
    """
    sign, rest = ("-", -time_ns) if time_ns < 0 else ("", time_ns)
    return f"{sign}{rest // 1_000_000_000}.{rest % 1_000_000_000:09d}"


def milliseconds(time_ns: int | None, *, is_bare: bool = False) -> str:
    """Nanoseconds as milliseconds, for columns that are compared by eye: two digits at least count.

    Where the head of the column has the unit, the number is bare.

    >>> milliseconds(127_949_000), milliseconds(0), milliseconds(3_921_000_000), milliseconds(1_040_000)
    ('127.9 ms', '0.0 ms', '3,921.0 ms', '1.0 ms')
    >>> milliseconds(115_000), milliseconds(48_000), milliseconds(4_000), milliseconds(30)
    ('0.12 ms', '0.048 ms', '0.0040 ms', '30 ns')
    """
    if time_ns is None:
        return _UNKNOWN
    if 0 < time_ns < _LEAST_SHOWN_NS:
        return f"{round(time_ns)} ns"
    decimals = next((count for least_ns, count in _DECIMALS if abs(time_ns) >= least_ns), 1)
    return f"{time_ns / 1e6:,.{decimals}f}{'' if is_bare else ' ms'}"


def signed_milliseconds(time_ns: int, *, is_bare: bool = False) -> str:
    """A difference of times as milliseconds, with its sign.

    >>> signed_milliseconds(127_949_000), signed_milliseconds(-4_000), signed_milliseconds(0)
    ('+127.9 ms', '-0.0040 ms', '0.0 ms')
    >>> signed_milliseconds(-30)
    '-30 ns'
    """
    if time_ns < 0:
        return f"-{milliseconds(-time_ns, is_bare=is_bare)}"
    return f"{'+' if time_ns else ''}{milliseconds(time_ns, is_bare=is_bare)}"


def percent_in_words(share: float) -> str:
    """A share of 0..1 as per cent in a sentence, where a sign does not stand for "less than".

    >>> percent_in_words(0.314), percent_in_words(0.0001)
    ('31.4 %', 'less than 0.1 %')
    """
    return f"less than {_LEAST_PERCENT}" if 0 < share < _LEAST_SHARE else percent(share)


def percent(share: float | None) -> str:
    """A share of 0..1 as per cent; what would round to 0 or 100 and is neither says so.

    >>> percent(0.314), percent(0.0), percent(0.0001), percent(0.99999), percent(1.0), percent(None)
    ('31.4 %', '0.0 %', '<0.1 %', '>99.9 %', '100.0 %', 'unknown')
    """
    if share is None:
        return _UNKNOWN
    if 0 < share < _LEAST_SHARE:
        return f"<{_LEAST_PERCENT}"
    if 0.9995 <= share < 1:
        return ">99.9 %"
    return f"{100 * share:.1f} %"


def write_speedup(ratio: float) -> str:
    """A speedup; one that nothing would reach is not written as a number.

    >>> write_speedup(1.384), write_speedup(30_085_722.0)
    ('1.38x', 'more than 20x')
    """
    return f"{ratio:.2f}x" if ratio <= _LARGEST_SPEEDUP else f"more than {_LARGEST_SPEEDUP}x"


def write_ceiling(ratio: float) -> str:
    """An upper bound on a speedup.

    >>> write_ceiling(1.384), write_ceiling(30_085_722.0)
    ('up to 1.38x', 'more than 20x')
    """
    return f"up to {write_speedup(ratio)}" if ratio <= _LARGEST_SPEEDUP else write_speedup(ratio)


def write_most(ratio: float) -> str:
    """The largest speedup that any change of some kernels can bring.

    >>> write_most(1.384), write_most(30_085_722.0)
    ('at most 1.38x', 'more than 20x')
    """
    return f"at most {write_speedup(ratio)}" if ratio <= _LARGEST_SPEEDUP else write_speedup(ratio)


def write_loose_most(ratio: float) -> str:
    """The largest speedup by kernels that would take no time; one that nothing would reach bounds nothing.

    >>> write_loose_most(7.52), write_loose_most(23.6)
    ('at most 7.52x', 'no bound below 20x')
    """
    return write_most(ratio) if ratio <= _LARGEST_SPEEDUP else f"no bound below {_LARGEST_SPEEDUP}x"


def write_gain(expected: float | None, most: float | None, *, has_floor: bool) -> str:
    """What a change gains: its largest speedup, or what it is about where that leaves kernels no time.

    Without a largest speedup, the expected one is itself an upper bound.

    >>> write_gain(3.05, 9.0, has_floor=True), write_gain(3.05, 23.6, has_floor=False)
    ('at most 9.00x', 'about 3.05x')
    >>> write_gain(1.2, None, has_floor=False), write_gain(None, 1.3, has_floor=False)
    ('up to 1.20x', 'at most 1.30x')
    """
    if most is None:
        return "" if expected is None else write_ceiling(expected)
    return write_most(most) if has_floor or expected is None else f"about {write_speedup(expected)}"


def write_gains(expected: float | None, most: float | None) -> str:
    """What a change gains in one line: about so much, and its largest speedup.

    >>> write_gains(1.2, 1.5), write_gains(1.2, None), write_gains(3.05, 23.6)
    ('about 1.20x, at most 1.50x', 'up to 1.20x', 'about 3.05x, no bound below 20x')
    """
    if expected is None or most is None:
        return write_gain(expected, most, has_floor=True)
    return f"about {write_speedup(expected)}, {write_loose_most(most)}"


def points(difference: float) -> str:
    """A difference of two shares in percentage points.

    >>> points(0.254), points(0.0)
    ('25.4 percentage points', '0.0 percentage points')
    """
    return f"{100 * difference:.1f} percentage points"


def size(size_bytes: int | None) -> str:
    """Bytes in binary units.

    >>> size(512), size(65_536), size(85_899_345_920), size(2**30 - 1), size(None)
    ('512 B', '64.0 KiB', '80.0 GiB', '1.0 GiB', 'unknown')
    """
    if size_bytes is None:
        return _UNKNOWN
    for unit_bytes, unit in _SIZES:
        if round(size_bytes / unit_bytes, 1) >= 1:
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes} B"


def rate(rate_bytes_per_s: float | None) -> str:
    """Bytes per second in decimal units, as links and memories are specified.

    >>> rate(24_600_000_000.0), rate(3.35e12), rate(4e6), rate(0.0), rate(None)
    ('24.6 GB/s', '3,350.0 GB/s', '4.0 MB/s', '0.0 MB/s', 'unknown')
    """
    if rate_bytes_per_s is None:
        return _UNKNOWN
    if rate_bytes_per_s >= 1e9:
        return f"{rate_bytes_per_s / 1e9:,.1f} GB/s"
    return f"{rate_bytes_per_s / 1e6:,.1f} MB/s"


def flops(rate_flops_per_s: float, *, is_bare: bool = False) -> str:
    """Floating-point operations per second.

    >>> flops(989.4e12), flops(1.2e15), flops(3e9)
    ('989.4 TFLOP/s', '1,200.0 TFLOP/s', '0.003 TFLOP/s')
    """
    decimals = 1 if rate_flops_per_s >= 1e12 else 3
    return f"{rate_flops_per_s / 1e12:,.{decimals}f}{'' if is_bare else ' TFLOP/s'}"


def join_ends(low: str, high: str, between: str) -> str:
    """Two numbers with a unit that both have once.

    >>> join_ends(percent(0.1), percent(0.2), " to "), join_ends(duration(900_000), duration(1_100_000), "-")
    ('10.0 to 20.0 %', '900.0 µs-1.1 ms')
    """
    value, _, unit = low.rpartition(" ")
    return f"{value if high.endswith(f' {unit}') else low}{between}{high}"


def number(value: int | None) -> str:
    """A count with separators.

    >>> number(1234567), number(None)
    ('1,234,567', 'unknown')
    """
    return _UNKNOWN if value is None else f"{value:,}"


def average(value: float) -> str:
    """A mean count: whole numbers without decimals.

    >>> average(24.0), average(1.66), average(1234.0), average(0.02)
    ('24', '1.7', '1,234', '<0.1')
    """
    if 0 < value < 0.05:
        return "<0.1"
    return f"{value:,.1f}".removesuffix(".0")


def plural(value: int, noun: str) -> str:
    """Return a count with its noun, singular or plural.

    >>> plural(1, "kernel"), plural(4010, "kernel"), plural(2, "copy"), plural(0, "launch"), plural(3, "fix")
    ('1 kernel', '4,010 kernels', '2 copies', '0 launches', '3 fixes')
    """
    if value == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{value:,} {noun[:-1]}ies"
    return f"{value:,} {noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"


def utc(time_ns: int | None) -> str:
    """Nanoseconds since 1970 as date and time.

    >>> utc(1_795_219_236_607_348_906), utc(None)
    ('2026-11-21 00:00:36 UTC', 'unknown')
    """
    if time_ns is None:
        return _UNKNOWN
    try:
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return _UNKNOWN
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def write_range(first: int, last: int) -> str:
    """Return numbers from first to last, both included, as a user writes them.

    >>> write_range(3, 3), write_range(3, 5)
    ('3', '3-5')
    """
    return str(first) if first == last else f"{first}-{last}"


def capitalize(text: str) -> str:
    """Return a text that begins with a capital letter; the others stay.

    >>> capitalize("the GPU"), capitalize("")
    ('The GPU', '')
    """
    return f"{text[:1].upper()}{text[1:]}"


def spell_surrogates(text: str) -> str:
    r"""Return a text with lone surrogates spelled out, so that it can be written as UTF-8.

    >>> spell_surrogates("run\udcff.sqlite"), spell_surrogates("für")
    ('run\\udcff.sqlite', 'für')
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def make_plain(value: Any) -> Any:
    """Return records, objects and lists as plain data; lone surrogates in their texts are spelled out."""
    if isinstance(value, str):
        return spell_surrogates(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: make_plain(getattr(value, name)) for name in _list_fields(type(value))}
    if isinstance(value, Mapping):
        return {spell_surrogates(key): make_plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [make_plain(entry) for entry in value]
    return value


@cache
def _list_fields(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))

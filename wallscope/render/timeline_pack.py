"""Step timelines packed small for the page: columns of integers, deflated, in base64.

The pack is a length (4 bytes, little-endian), that many bytes of JSON, and the columns one behind the other.
Of these, the lowest bytes of all numbers come first, then the next higher ones, because bytes of the same
rank resemble each other. The JSON has the lanes, the texts, and the length of each column. A start is kept as
the gap to the end of the row before, and a correlation id as the difference from the one before, both modulo
2**32. The columns of the steps in detail come first, then those of all steps at low detail.
"""

import json
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from wallscope import units
from wallscope.model.cause_catalogue import name_cause
from wallscope.model.enums import Wall
from wallscope.model.report import SHOWN_OPERATIONS, StepOverviews, StepTimeline
from wallscope.records import dataclass
from wallscope.render.texts import shorten_names, visible

_MOST_ROWS = 200_000
MOST_CHARACTERS = 600_000
_LEAST_ROWS, _MARGIN = 1_000, 0.85
_LONGEST_TEXT = 200
_KINDS_OF_ROWS = 2
"""Each lane kind, and the slices, may have this part of the rows of a step: seldom have all of them many."""
_FIRST_GRAIN = 100_000
_MOST_LANES = 80
_ISSUE = ("call", "call_start_ns", "correlation", "path")
"""What issued an operation; of host rows there is none."""
_MOST_TICKS = 2**32 - 1
_EFFORT = 6  # 9 takes seven times as long for two parts in a hundred

_LENGTH = pl.col("end_ns") - pl.col("start_ns")
_FROM_FIRST = pl.col("start_ns") - pl.col("start_ns").min()

Numbers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Pack:
    """The packed timelines, and what was merged or left out, in sentences."""

    base64: str
    notes: tuple[str, ...]


def pack_timelines(
    timelines: Sequence[StepTimeline],
    overviews: StepOverviews | None = None,
    rank_names: Mapping[int, str] | None = None,
    most_characters: int = MOST_CHARACTERS,
) -> Pack:
    """Pack as much detail as the page has room for; what is too small to see is merged with others.

    Args:
        timelines: steps in detail.
        overviews: all steps at low detail.
        rank_names: names of the ranks in `overviews`, by their place.
        most_characters: length of the pack in base64, at most.
    """
    if not timelines and (overviews is None or overviews.steps.is_empty()):
        return Pack("", ())
    most_rows, names = _MOST_ROWS, rank_names or {}
    raw, packer = _pack_columns(timelines, overviews, names, most_rows)
    while timelines and most_rows > _LEAST_ROWS and (size := _estimate_packed_size(raw)) > most_characters:
        rest = _estimate_packed_size(_pack_columns((), overviews, names, most_rows)[0])
        share = (most_characters - rest) / max(size - rest, 1) * _MARGIN
        level = _find_level(packer.rows, int(share * sum(packer.rows)))
        most_rows = max(level * _KINDS_OF_ROWS * len(timelines), _LEAST_ROWS)
        raw, packer = _pack_columns(timelines, overviews, names, most_rows)
    while overviews is not None and len(overviews.steps) > 1 and _estimate_packed_size(raw) > most_characters:
        overviews = _drop_steps(overviews)
        raw, packer = _pack_columns(timelines, overviews, names, most_rows)
    return Pack(b64encode(zlib.compress(raw, _EFFORT)).decode("ascii"), tuple(packer.notes))


def _find_level(counts: Sequence[int], most: int) -> int:
    """Return the limit of each count that leaves `most` of all, at most.

    >>> _find_level([10, 2, 30], 26), _find_level([10, 2, 30], 5), _find_level([10], -3)
    (14, 1, 0)
    """
    left = most
    for place, count in enumerate(sorted(counts)):
        if count * (len(counts) - place) > left:
            return max(left, 0) // (len(counts) - place)
        left -= count
    return max(counts, default=0)


def _drop_steps(found: StepOverviews) -> StepOverviews:
    """Leave out the later half of the steps of each rank, or the last rank where each has one."""
    steps, key = found.steps, ["place", "step"]
    kept = steps.filter(pl.int_range(pl.len()).over("place") < (pl.len().over("place") + 1) // 2)
    kept = kept if len(kept) < len(steps) else steps.filter(pl.col("place") != steps["place"][-1])
    own = (frame.join(kept, on=key, how="semi") for frame in (found.slices, found.operations))
    return StepOverviews(kept, *own)


def _estimate_packed_size(raw: bytes) -> int:
    """Estimate how many characters a pack takes; a quick compression is a few percent larger."""
    return len(zlib.compress(raw, 1)) * 4 // 3


def _pack_columns(
    timelines: Sequence[StepTimeline],
    overviews: StepOverviews | None,
    rank_names: Mapping[int, str],
    most_rows: int,
) -> tuple[bytes, "_Packer"]:
    packer = _Packer()
    room, is_alone = most_rows // max(len(timelines), 1), len(timelines) == 1
    steps = [packer.add_step(timeline, room, is_alone=is_alone) for timeline in timelines]
    others = [] if overviews is None else packer.add_overviews(overviews)
    columns = [np.asarray(column).astype(np.uint32) for column in packer.columns]
    texts, lengths = list(packer.texts), [len(column) for column in columns]
    shorts = shorten_names(texts)
    briefs = {place: name_cause(shorts[text]) for place, text in enumerate(texts)}
    short = {place: name for place, name in briefs.items() if name != texts[place]}
    ranks = {place: visible(name, most=60) for place, name in rank_names.items()}
    head = json.dumps(
        {
            "steps": steps,
            "overviews": others,
            "ranks": ranks,
            "texts": texts,
            "short": short,
            "lengths": lengths,
        }
    ).encode()
    return len(head).to_bytes(4, "little") + head + _part_bytes(columns), packer


def _part_bytes(columns: Sequence[Numbers]) -> bytes:
    """Return the lowest bytes of all numbers, then the next higher ones: that deflates to about four fifths.

    >>> list(_part_bytes([np.array([1, 258], np.uint32), np.array([3], np.uint32)])[:6])
    [1, 2, 3, 0, 1, 0]
    """
    numbers = np.concatenate([*columns, np.empty(0, np.uint32)]).astype("<u4")
    return numbers.view(np.uint8).reshape(-1, 4).T.tobytes()


class _Packer:
    """Gathers columns, their texts by number, and what is said about them."""

    def __init__(self) -> None:
        self.texts = {"": 0}
        self.columns: list[Numbers] = []
        self.notes: list[str] = []
        self.rows: list[int] = []

    def add_step(self, timeline: StepTimeline, room: int, *, is_alone: bool) -> dict[str, Any]:
        """Add the columns of one step, of each row of the timeline, then of the slices; return its head.

        Args:
            timeline: the step.
            room: rows that it may have.
            is_alone: whether no other step is shown in detail, so that notes need no number.
        """
        length_ns = timeline.end_ns - timeline.start_ns
        tick_ns = max(1, -(-length_ns // (2**32 - 1)))
        lanes: list[dict[str, Any]] = []
        hidden, merged_below_ns = 0, 0
        for kind, rows in _list_lanes(timeline):
            order = {lane: place for place, lane in enumerate(rows["lane"].unique(maintain_order=True))}
            kept, grain_ns = _coarsen(_clip(rows, timeline, order), room // _KINDS_OF_ROWS, length_ns)
            merged_below_ns = max(merged_below_ns, grain_ns)
            self.rows.append(len(kept))
            key = ["place", "lane", "depth"]
            counts = kept.group_by(key, maintain_order=True).len().rows()
            shown = counts[: _MOST_LANES - len(lanes)]
            hidden += len(counts) - len(shown)
            lanes += [
                {"kind": kind, "lane": visible(str(lane), most=60), "depth": depth}
                for _, lane, depth, _ in shown
            ]
            ends = list(accumulate((count for *_, count in shown), initial=0))
            own, firsts = kept.head(ends[-1]), ends[:-1]
            columns = _list_ticks(own, timeline.start_ns, tick_ns, firsts)
            columns += [self._number(own[name]) for name in ("name", "what")]
            columns.append(own["wall"].to_numpy())
            columns += self._list_issue(own, firsts) if kind == "stream" else []
            self.columns += [column[since:until] for since, until in pairwise(ends) for column in columns]
        slices, grain_ns = _coarsen_slices(timeline.slices, room // _KINDS_OF_ROWS, length_ns)
        self.rows.append(len(slices))
        self.columns += _list_ticks(slices, timeline.start_ns, tick_ns, [])
        self.columns.append(slices["wall"].cast(pl.Enum(Wall)).to_physical().to_numpy())
        self.columns += [
            self._number(slices[name]) for name in ("cause", "what", "ended_by", "path", "state")
        ]
        slack_ns = slices["slack_ns"].fill_null(-1).to_numpy()
        self.columns.append(np.clip(slack_ns // tick_ns, -1, 2**32 - 2) + 1)
        merged_below_ns = max(merged_below_ns, grain_ns)
        of_step = "" if is_alone else f"Step {timeline.step}: "
        notes = _note_losses(merged_below_ns, timeline.threads_left_out, hidden)
        self.notes += [f"{units.capitalize(f'{of_step}{note}')}." for note in notes]
        return {
            "step": timeline.step,
            "start": str(timeline.start_ns),
            "length": length_ns,
            "tick": tick_ns,
            "lanes": lanes,
        }

    def _list_issue(self, rows: pl.DataFrame, firsts: list[int]) -> list[Numbers]:
        """List what issued each operation: the call, its lead in ns and one more, its id, its ranges."""
        lead_ns = (rows["start_ns"] - rows["call_start_ns"]).fill_null(-1).to_numpy()
        correlation = rows["correlation"].fill_null(0).to_numpy() & (2**32 - 1)
        return [
            self._number(rows["call"]),
            np.clip(lead_ns, -1, 2**32 - 2) + 1,
            correlation - _list_befores(correlation, firsts),
            self._number(rows["path"]),
        ]

    def add_overviews(self, found: StepOverviews) -> list[dict[str, Any]]:
        """Add four columns of all slices and four of all operations; return the heads of the steps."""
        key = ["place", "step"]
        tick = ((pl.col("end_ns") - pl.col("start_ns") + _MOST_TICKS - 1) // _MOST_TICKS).clip(lower_bound=1)
        steps = found.steps.with_columns(tick=tick)
        of_step = steps.select(*key, "tick", from_ns="start_ns")
        slices = found.slices.join(of_step, on=key, maintain_order="left")
        operations = found.operations.join(of_step, on=key, maintain_order="left")
        counted = {row[:2]: row[2] for row in slices.group_by(key).len().iter_rows()}
        lanes: dict[tuple[int, int], list[tuple[str, int]]] = {}
        for *where, lane, count in operations.group_by(*key, "lane", maintain_order=True).len().iter_rows():
            lanes.setdefault((where[0], where[1]), []).append((visible(lane, most=60), count))
        self.columns += [
            (slices["length_ns"] // slices["tick"]).to_numpy(),
            slices["wall"].to_physical().to_numpy(),
            self._number(slices["cause"]),
            slices["is_gap"].cast(pl.UInt32).to_numpy(),
        ]
        start, end = (
            (pl.col(edge).clip(lower_bound="from_ns") - pl.col("from_ns")) // pl.col("tick")
            for edge in ("start_ns", "end_ns")
        )
        times = operations.select(
            gap=start - end.shift(1, fill_value=0).over(*key, "lane"), length=end - start
        )
        self.columns += [times["gap"].to_numpy(), times["length"].to_numpy()]
        self.columns += [self._number(operations["name"]), operations["wall"].to_physical().to_numpy()]
        return [
            {
                "place": row["place"],
                "step": row["step"],
                "start": str(row["start_ns"]),
                "length": row["end_ns"] - row["start_ns"],
                "tick": row["tick"],
                "steady": row["steady"],
                "shift": None if row["shift_ns"] is None else str(row["shift_ns"]),
                "slices": counted.get((row["place"], row["step"]), 0),
                "lanes": lanes.get((row["place"], row["step"]), []),
            }
            for row in steps.iter_rows(named=True)
        ]

    def _number(self, column: pl.Series) -> Numbers:
        column = column.fill_null("")
        texts = column.unique(maintain_order=True)
        numbers = [
            self.texts.setdefault(visible(text, most=_LONGEST_TEXT), len(self.texts)) for text in texts
        ]
        codes = column.cast(pl.Enum(texts)).to_physical().to_numpy()
        return np.take(np.array(numbers, np.uint32), codes)


def _list_lanes(timeline: StepTimeline) -> tuple[tuple[str, pl.DataFrame], ...]:
    """List the rows of all lanes by their kind, in order: the critical path, streams, threads.

    A segment of the path is named by its operation or call, else by its cause. The path ends with the first
    compute kernel of the next step: what lies behind the step is not shown. Calls have depth -1.
    """
    wall, surface = pl.col("wall").to_physical().cast(pl.UInt32), pl.lit(0, pl.Int32)
    name = pl.when(pl.col("name") == "").then("cause").otherwise("name")
    lane = pl.lit("critical path")
    path = timeline.path.filter(pl.col("start_ns") < timeline.end_ns).select(
        "start_ns", "end_ns", name=name, what="cause", wall=wall, lane=lane, depth=surface
    )
    calls = timeline.calls.with_columns(depth=pl.lit(-1, pl.Int32))
    threads = pl.concat([calls, timeline.ranges.cast({"depth": pl.Int32})])
    return (
        ("path", path),
        ("stream", timeline.operations.with_columns(wall, depth=surface)),
        ("host", threads),
    )


def _clip(rows: pl.DataFrame, timeline: StepTimeline, order: Mapping[str, int]) -> pl.DataFrame:
    """Cut rows to the step, with the columns that all lanes have and the place of each lane."""
    missing = (
        pl.lit("").alias("what"),
        pl.lit(0, pl.UInt32).alias("wall"),
        *(pl.lit(None, SHOWN_OPERATIONS[name]).alias(name) for name in _ISSUE),
    )
    added = [column for column in missing if column.meta.output_name() not in rows.columns]
    return rows.with_columns(
        *added,
        place=pl.col("lane").replace_strict(order, return_dtype=pl.Int64),
        start_ns=pl.col("start_ns").clip(lower_bound=timeline.start_ns),
        end_ns=pl.col("end_ns").clip(upper_bound=timeline.end_ns),
    ).select("place", "lane", "depth", "start_ns", "end_ns", "name", "what", "wall", *_ISSUE)


def _choose_grain(count_rows: Callable[[int], int], most: int, length_ns: int) -> int:
    """Return the first grain in ns that leaves at most `most` rows, else the first one above the step."""
    grain_ns = max(length_ns // _FIRST_GRAIN, 1)
    while grain_ns <= length_ns and count_rows(grain_ns) > most:
        grain_ns *= 2
    return grain_ns


def _coarsen(rows: pl.DataFrame, most: int, length_ns: int) -> tuple[pl.DataFrame, int]:
    """Merge rows shorter than a grain that begin in the same one; return the grain too, in ns, 0 without."""
    order = ["place", "depth", "start_ns", "end_ns", "name"]
    if len(rows) <= most:
        return rows.sort(order, maintain_order=True), 0
    keys = rows.select("place", "depth", from_ns=_FROM_FIRST, length=_LENGTH)

    def count_rows(grain_ns: int) -> int:
        short = keys.filter(pl.col("length") < grain_ns)
        parts = short.select("place", "depth", part=pl.col("from_ns") // grain_ns)
        return len(keys) - len(short) + parts.n_unique()

    grain_ns = _choose_grain(count_rows, most, length_ns)
    merged = _merge(rows, ["place", "lane", "depth"], grain_ns, ["name", "what", "wall", *_ISSUE])
    return merged.sort(order, maintain_order=True), grain_ns


def _coarsen_slices(slices: pl.DataFrame, most: int, length_ns: int) -> tuple[pl.DataFrame, int]:
    """Put slices shorter than a grain together by cause; they tile the step, and sums by cause stay exact."""
    plain = slices.sort("start_ns").with_columns(pl.col("wall", "state").cast(pl.String))
    if len(plain) <= most:
        return plain, 0
    owner = pl.struct("state", "wall", "cause").rank("dense")
    keys = plain.select("start_ns", "end_ns", owner=owner)

    def count_rows(grain_ns: int) -> int:
        return keys.select("owner", run=_number_runs(grain_ns)).n_unique()

    grain_ns = _choose_grain(count_rows, most, length_ns)
    return _merge_slices(plain, grain_ns), grain_ns


def _number_runs(grain_ns: int) -> pl.Expr:
    """Number runs of adjacent slices: short ones that begin in the same grain are one run."""
    bucket = pl.when(grain_ns > _LENGTH).then(_FROM_FIRST // grain_ns)
    return (bucket.is_null() | (bucket != bucket.shift(1)).fill_null(value=True)).cum_sum()


def _merge_slices(slices: pl.DataFrame, grain_ns: int) -> pl.DataFrame:
    longest = pl.col("what", "ended_by", "path", "slack_ns").sort_by("length", descending=True).first()
    until = pl.col("start_ns").first() + pl.col("length").cum_sum()
    return (
        slices.with_columns(length=_LENGTH, run=_number_runs(grain_ns))
        .group_by("run", "state", "wall", "cause", maintain_order=True)
        .agg(pl.col("start_ns").first(), pl.col("length").sum(), longest)
        .with_columns(end_ns=until)
        .with_columns(start_ns=pl.col("end_ns") - pl.col("length"))
        .drop("run", "length")
    )


def _merge(rows: pl.DataFrame, by: list[str], grain_ns: int, kept: list[str]) -> pl.DataFrame:
    """Merge short rows of one grain to one row, with the columns `kept` of the longest of them."""
    apart = -1 - pl.int_range(pl.len())
    bucket = pl.when(grain_ns > _LENGTH).then(_FROM_FIRST // grain_ns).otherwise(apart)
    return (
        rows.with_columns(bucket=bucket, length=_LENGTH)
        .sort("length", "start_ns", descending=[True, False])
        .group_by(*by, "bucket", maintain_order=True)
        .agg(pl.col("start_ns").min(), pl.col("end_ns").max(), pl.col(kept).first())
        .drop("bucket")
    )


def _list_ticks(rows: pl.DataFrame, from_ns: int, tick_ns: int, firsts: list[int]) -> list[Numbers]:
    """List gaps from the end of the row before to each start, and lengths, in ticks."""
    start, end = ((rows[edge].to_numpy() - from_ns) // tick_ns for edge in ("start_ns", "end_ns"))
    return [start - _list_befores(end, firsts), end - start]


def _list_befores(values: Numbers, firsts: list[int]) -> Numbers:
    """List the value of the row before each row; 0 for the first one, and for the first one of each lane."""
    before = np.roll(values, 1)
    before[:1] = before[firsts] = 0
    return before


def _note_losses(merged_below_ns: int, threads_left_out: int, hidden_lanes: int) -> Iterator[str]:
    """Say in clauses what of a step was merged or left out."""
    if merged_below_ns:
        below = units.duration(merged_below_ns)
        yield f"neighbors shorter than {below} are merged, named by the longest of them"
    if threads_left_out:
        yield f"{units.plural(threads_left_out, 'thread')} not shown"
    if hidden_lanes:
        yield f"{units.plural(hidden_lanes, 'row')} of the timeline not shown"

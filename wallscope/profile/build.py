"""The profile of a rank: tables from its slices and operations, headed by what the whole analysis knows."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import polars as pl

from wallscope.columns import (
    Flags,
    Rows,
    as_integers,
    combine_codes,
    encode_column,
    encode_member,
    find_places,
    mark_numbers,
    match_rows,
    select_distinct_rows,
    sum_by_group,
)
from wallscope.model.advice import RunConfiguration
from wallscope.model.analysis import Anchor, Rank
from wallscope.model.capture import Capture, Finding
from wallscope.model.diagnosis import StepFacts
from wallscope.model.enums import (
    LINK_KINDS,
    Absent,
    Axis,
    CallRole,
    Collective,
    LinkKind,
    OperationClass,
    OperationKind,
    Wall,
)
from wallscope.model.profile import (
    BEFORE,
    INSIDE,
    PROFILE_STEPS,
    RANK_COLLECTIVES,
    RECOVERABLE,
    STEP_CAUSES,
    STEP_OWNED,
    STEP_WORK,
    Communicators,
    Header,
    Profile,
    ProfiledInput,
    Work,
)
from wallscope.model.schemas import BUDGET_PARTS
from wallscope.process_tuning import run_side_by_side
from wallscope.profile.codec import EncodedTables, pack_profile
from wallscope.profile.step_slices import (
    NAME_COLUMN,
    OTHERS,
    PATH_COLUMN,
    CutOperations,
    NumberedSlices,
    OperationDescriptions,
    OperationTexts,
    cut_operations,
    key_table,
    number_slices,
)
from wallscope.records import dataclass
from wallscope.trace.intervals import Times
from wallscope.trace.kernel_classes import is_compute

_UNKNOWN = int(np.iinfo(np.int64).min)
_MOST_COLLECTIVES = 12_000
_OPERATION = pl.Enum(Collective)
_OTHER = pl.lit(Collective.OTHER, _OPERATION)


def rank_collectives(  # noqa: PLR0913, PLR0917  # all that is known of them
    operations: pl.DataFrame,
    keys: Rows,
    windows: pl.DataFrame,
    slices: pl.DataFrame,
    axes: pl.DataFrame,
    counted: pl.DataFrame,
) -> pl.DataFrame:
    """Return the collectives of one rank (`RANK_COLLECTIVES`).

    Of very many the first steps' worth is kept, so that ranks of one job keep the same.

    Args:
        operations: `CLASSIFIED`, those of the rank.
        keys: the key of each operation, -1 without one.
        windows: `WINDOWS` of the rank.
        slices: `SLICES` of the rank.
        axes: `AXES`.
        counted: `COLLECTIVES`, as far as they are known.
    """
    rows = _select_communication(operations)
    if not rows.size:
        return RANK_COLLECTIVES.to_frame()
    own = operations["op", "stream", "start_ns", "end_ns", "category"][rows]
    op, start_ns, end_ns = (own[name].to_numpy() for name in ("op", "start_ns", "end_ns"))
    table = own.hstack(
        [
            *_columns_of(op, axes, "operation", "axis"),
            *_columns_of(op, counted, "communicator", "participants", "peer", "bytes", "bus_bytes"),
        ]
    ).with_columns(
        operation=pl.coalesce("operation", pl.col("category").cast(_OPERATION, strict=False)).fill_null(
            _OTHER
        ),
        axis=pl.col("axis").fill_null(Axis.UNKNOWN),
    )
    kind = [
        pl.col("communicator"),
        *(_mask_known_communicators(column) for column in ("operation", "axis", "stream")),
    ]
    before, inside = _sum_step_walls(start_ns, end_ns, slices)
    key = keys[rows]
    columns = {
        **table.to_dict(),
        "input": np.zeros(rows.size, np.uint32),
        "place": np.arange(rows.size),
        "step": _find_steps(start_ns, windows),
        "key": pl.Series(key).set(pl.Series(key < 0), None),
        "sequence": table.select(pl.int_range(pl.len()).over(kind)).to_series(),
        "blocking_ns": _blocking_ns(op, slices),
        **{name: before[:, column] for column, name in enumerate(BEFORE)},
        **{name: inside[:, column] for column, name in enumerate(INSIDE)},
    }
    return pl.DataFrame({name: columns[name] for name in RANK_COLLECTIVES}, schema=RANK_COLLECTIVES)


def _select_communication(operations: pl.DataFrame) -> Rows:
    """Return the rows of those that are kept, by start."""
    is_wanted = as_integers(operations["class"]) == encode_member(OperationClass.COMMUNICATION)
    is_wanted &= as_integers(operations["kind"]) == encode_member(OperationKind.KERNEL)
    rows = np.flatnonzero(is_wanted)
    order = np.lexsort((operations["op"].to_numpy()[rows], operations["start_ns"].to_numpy()[rows]))
    return rows[order[:_MOST_COLLECTIVES]]


def _columns_of(op: Rows, table: pl.DataFrame, *names: str) -> list[pl.Series]:
    """Return columns of a table with an `op` a row, by operation; null where it has none."""
    row = find_places(op, table["op"].to_numpy())
    at = pl.Series(row).set(pl.Series(row < 0), None)
    return table.select(pl.col(names).gather(at)).get_columns()


def _mask_known_communicators(column: str) -> pl.Expr:
    return pl.when(pl.col("communicator").is_null()).then(column)


def _blocking_ns(op: Rows, slices: pl.DataFrame) -> Times:
    """Return the time of each operation on the blame chain, int64 ns."""
    bound = np.flatnonzero(as_integers(slices["kind"]) == LINK_KINDS.index(LinkKind.OPERATION))
    row, held = match_rows(op, slices["op"].to_numpy()[bound])
    length_ns = slices["end_ns"].to_numpy() - slices["start_ns"].to_numpy()
    return sum_by_group(row, length_ns[bound[held]], op.size)


def _find_steps(start_ns: Times, windows: pl.DataFrame) -> pl.Series:
    """Return the step that each begins in; null outside of all."""
    order = np.argsort(windows["start_ns"].to_numpy(), kind="stable")
    begin_ns, end_ns = (windows[name].to_numpy()[order] for name in ("start_ns", "end_ns"))
    row = np.searchsorted(begin_ns, start_ns, side="right") - 1
    is_outside = (row < 0) | (start_ns >= end_ns[row])
    return windows["step"][order[row]].set(pl.Series(is_outside), None)


def _sum_step_walls(start_ns: Times, end_ns: Times, slices: pl.DataFrame) -> tuple[Times, Times]:
    """Return time of each wall from the previous start to each start, and from each start to its end."""
    begin_ns = slices["start_ns"].to_numpy().min(initial=start_ns[0])
    owned = _sum_attributed_until(np.concatenate(([begin_ns], start_ns, end_ns)), slices)
    first, at_start, at_end = np.split(owned, (1, 1 + start_ns.size))
    return np.diff(at_start, axis=0, prepend=first), at_end - at_start


def _sum_attributed_until(at_ns: Times, slices: pl.DataFrame) -> Times:
    """Return the time of each wall until some moments, int64 ns: a row a moment, a column a wall."""
    found = np.zeros((at_ns.size, len(Wall)), np.int64)
    if slices.is_empty():
        return found
    start_ns, end_ns = slices["start_ns"].to_numpy(), slices["end_ns"].to_numpy()
    wall = as_integers(slices["wall"])
    if (start_ns[1:] < start_ns[:-1]).any():
        order = np.argsort(start_ns, kind="stable")
        start_ns, end_ns, wall = start_ns[order], end_ns[order], wall[order]
    row = np.searchsorted(start_ns, at_ns, side="right") - 1
    part_ns = np.where(row >= 0, np.minimum(at_ns, end_ns[row]) - start_ns[row], 0)
    length_ns = end_ns - start_ns
    for column in range(len(Wall)):
        own = np.flatnonzero(wall == column)
        total_ns = np.concatenate(([0], np.cumsum(length_ns[own])))
        found[:, column] = total_ns[np.searchsorted(own, row)]
    found[np.arange(row.size), wall[row]] += part_ns
    return found


_MOST_ROWS, _FEWEST_KEYS = 60_000, 100


@dataclass(frozen=True, slots=True)
class ProfileTables:
    """The tables of a profile that one capture fills."""

    steps: pl.DataFrame
    keys: pl.DataFrame
    work: pl.DataFrame
    owned: pl.DataFrame
    causes: pl.DataFrame
    communicators: tuple[Communicators, ...]
    collectives: pl.DataFrame

    def profile(self, header: Header, recoverable: pl.DataFrame) -> Profile:
        """Return the profile, with what only the whole answer knows."""
        return Profile(
            header, self.steps, self.keys, self.work, self.owned, self.causes, recoverable, self.collectives
        )


def build_profile_tables(
    operations: pl.DataFrame,
    windows: pl.DataFrame,
    slices: pl.DataFrame,
    sums: pl.DataFrame,
    described: OperationDescriptions,
) -> ProfileTables:
    """Build the tables of a rank from its `CLASSIFIED` operations, windows (`STEPS`, `BUDGETS`) and `SLICES`.

    `sums` are the slices summed (`SLICE_SUMS`). Of a rank with very many kinds of operations the smallest are
    one, named `other operations`, per category.
    """
    windows = windows[np.argsort(windows["start_ns"].to_numpy(), kind="stable")]
    steps = np.sort(windows["step"].to_numpy())
    op = operations["op"].to_numpy()
    kinds, kind_of = described.kinds(operations)
    are_computing = is_compute(as_integers(operations["class"]))
    taken = cut_operations(operations, windows, are_computing)
    numbered, on_threads = number_slices(slices, steps, kind_of, int(op[0]), described)
    keys, key_of = _keys(
        np.concatenate([kinds, on_threads]),
        np.concatenate([kind_of[taken.row], numbered.kind]),
        np.concatenate([taken.work_ns, numbered.ns]),
        max(_MOST_ROWS // max(len(windows), 1), _FEWEST_KEYS),
        described.texts,
    )
    return ProfileTables(
        steps=_steps_table(windows, sums),
        keys=key_table(keys, described.texts),
        work=_work_table(taken, key_of[kind_of], are_computing, _bytes(operations, described.counted), steps),
        owned=_tabulate_attributed_time(numbered, key_of[numbered.kind], steps),
        causes=_causes_table(sums, steps),
        communicators=_list_communicators(op, described),
        collectives=rank_collectives(
            operations, key_of[kind_of], windows, slices, described.axes, described.counted
        ),
    )


def _keys(
    kinds: Rows, present: Rows, present_ns: Times, most: int, texts: OperationTexts
) -> tuple[Rows, Rows]:
    """Return at most so many kinds that are in a step, smaller ones as one, and the key of each kind.

    Args:
        kinds: all kinds; of one that is in no step the key is -1.
        present: the kinds of what is in steps.
        present_ns: how long that is.
        most: how many keys there may be.
        texts: of operations.
    """
    rows, key_of = select_distinct_rows(kinds)
    is_present = mark_numbers(key_of[present], len(rows))
    if is_present.sum() > most:
        sizes_ns = sum_by_group(key_of[present], present_ns, len(rows))
        rows, row = select_distinct_rows(_join_small_kinds(rows, is_present, sizes_ns, most, texts))
        key_of = row[key_of]
        is_present = mark_numbers(key_of[present], len(rows))
    number = np.where(is_present, np.cumsum(is_present) - 1, -1)
    return rows[is_present], number[key_of]


def _join_small_kinds(
    rows: Rows, is_present: Flags, sizes_ns: Times, most: int, texts: OperationTexts
) -> Rows:
    """Return the kinds with all but the largest under one name a category, in no range."""
    nothing_first = np.where(rows == texts.ends(), -1, rows)
    order = np.lexsort((*nothing_first.T[::-1], -sizes_ns))
    rest = np.ones(len(rows), np.bool_)
    rest[order[is_present[order]][:most]] = False
    found = rows.copy()
    found[rest, PATH_COLUMN], found[rest, NAME_COLUMN] = texts.fixed[""], texts.fixed[OTHERS]
    return found


def _bytes(operations: pl.DataFrame, counted: pl.DataFrame) -> tuple[Times, Flags]:
    """Return the bytes of each operation, of its record or of a call, and whether they are known."""
    nbytes, of_call = as_integers(operations["bytes"], _UNKNOWN), as_integers(counted["bytes"], _UNKNOWN)
    row, held = match_rows(operations["op"].to_numpy(), counted["op"].to_numpy())
    nbytes = nbytes.copy()
    nbytes[row] = np.where(nbytes[row] == _UNKNOWN, of_call[held], nbytes[row])
    known = nbytes != _UNKNOWN
    nbytes[~known] = 0
    return nbytes, known


def _work_table(
    cut_operations: CutOperations,
    keys: Rows,
    are_computing: Flags,
    recorded: tuple[Times, Flags],
    steps: Rows,
) -> pl.DataFrame:
    """Return what ran in each step, of operations with a key each."""
    nbytes, is_known = recorded
    many = int(keys.max(initial=0)) + 1
    (step, key), group = combine_codes((steps.size, many), cut_operations.step, keys[cut_operations.row])
    beginning = group[cut_operations.begins]
    begun = cut_operations.row[cut_operations.begins]
    is_computing = mark_numbers(group[are_computing[cut_operations.row]], step.size)
    is_open = mark_numbers(beginning[~is_known[begun]], step.size)
    return _make_table(
        STEP_WORK,
        step=steps[step],
        key=key,
        count=np.bincount(beginning, minlength=step.size),
        work_ns=sum_by_group(group, cut_operations.work_ns, step.size),
        exposed_ns=_mask_unknown(is_computing, sum_by_group(group, cut_operations.exposed_ns, step.size)),
        bytes=_mask_unknown(is_open, sum_by_group(beginning, nbytes[begun], step.size)),
    )


def _tabulate_attributed_time(number_slices: NumberedSlices, keys: Rows, steps: Rows) -> pl.DataFrame:
    """Return what each step is attributed to (`STEP_OWNED`); each slice has a key."""
    many = int(keys.max(initial=0)) + 1
    sizes = (steps.size, many, len(number_slices.causes))
    (step, key, cause), group = combine_codes(sizes, number_slices.step, keys, number_slices.cause)
    return _make_table(
        STEP_OWNED,
        step=steps[step],
        key=key,
        cause=number_slices.causes[cause],
        owned_ns=sum_by_group(group, number_slices.ns, step.size),
        blocking_ns=sum_by_group(group, number_slices.blocking_ns, step.size),
    )


def _causes_table(sums: pl.DataFrame, steps: Rows) -> pl.DataFrame:
    """Return the causes of each step by what the device did."""
    step, (cause, _) = sums["step"].to_numpy(), encode_column(sums["cause"])
    absent, state = as_integers(sums["absent"], len(Absent)), as_integers(sums["state"])
    order = np.lexsort((absent, state, cause, step))
    in_order = sums["step", "cause", "state", "absent", "ns"][order[find_places(step[order], steps) >= 0]]
    return _make_table(STEP_CAUSES, **in_order.to_dict())


def _steps_table(windows: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """Return the steps with the time of each wall."""
    in_order = windows[np.argsort(windows["step"].to_numpy(), kind="stable")]
    row, held = match_rows(in_order["step"].to_numpy(), sums["step"].to_numpy())
    place = row * len(Wall) + as_integers(sums["wall"])[held]
    walls = sum_by_group(place, sums["ns"].to_numpy()[held], len(windows) * len(Wall))
    return _make_table(
        PROFILE_STEPS,
        **{
            name: in_order[name] for name in ("step", "start_ns", "end_ns", "steady", "reason", *BUDGET_PARTS)
        },
        **{f"{wall}_wall_ns": walls[column :: len(Wall)] for column, wall in enumerate(Wall)},
    )


def _list_communicators(op: Rows, described: OperationDescriptions) -> tuple[Communicators, ...]:
    _, held = match_rows(op, described.sized["op"].to_numpy())
    own = described.sized[held]
    sizes = defaultdict(set)
    for axis, participants in zip(own["axis"], own["participants"], strict=True):
        sizes[axis].add(participants)
    return tuple(Communicators(Axis(axis), tuple(sorted(sizes[axis]))) for axis in sorted(sizes))


def _mask_unknown(is_unknown: Flags, values: Times) -> pl.Series:
    return pl.Series(values).set(pl.Series(is_unknown), None)


def _make_table(schema: pl.Schema, **columns: pl.Series | Times) -> pl.DataFrame:
    """Return a table of one capture, which has place 0."""
    rows = len(columns["step"])
    return pl.DataFrame({"input": np.zeros(rows, np.uint32), **columns}, schema=schema)


_NOTHING_DECLARED = RunConfiguration()
_OF_ONE_RANK = frozenset({"RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"})


def build_profiles(  # noqa: PLR0913, PLR0917  # all that a profile says of its capture
    ranks: tuple[Rank, ...],
    tables: tuple[ProfileTables, ...],
    anchor: Anchor,
    facts: StepFacts,
    capture: Capture,
    configuration: RunConfiguration = _NOTHING_DECLARED,
) -> tuple[Profile, ...]:
    """Return the profile of each rank of a capture, without findings; `tables` are theirs, in order."""
    if not tables:
        return ()
    settings = tuple(sorted((key, str(known.value)) for key, known in configuration.settings.items()))
    inputs = (_describe_input(capture),)
    return tuple(
        own.profile(_header(rank, own, anchor, facts, capture, settings, inputs), _tabulate_recoverable(rank))
        for rank, own in zip(ranks, tables, strict=True)
    )


def _describe_input(capture: Capture) -> ProfiledInput:
    """Return the identity of a capture and under which conditions it was taken."""
    export = capture.export
    launches = capture.calls["start_ns", "end_ns"].filter(capture.calls["role"] == CallRole.LAUNCH)
    launch_call_ns = (launches["end_ns"] - launches["start_ns"]).quantile(0.25, "lower")
    return ProfiledInput(
        fingerprint=export.fingerprint,
        name=export.name,
        nsys_version=export.nsys_version,
        hostname=export.hostname,
        session_start_utc_ns=export.session_start_utc_ns,
        findings=(),
        profiler=export.profiler,
        environment=tuple(
            (name, value) for name, value in export.environment.items() if name not in _OF_ONE_RANK
        ),
        conditions=capture.conditions,
        device_count=capture.ranks["device"].n_unique(),
        launch_call_ns=None if launch_call_ns is None else int(launch_call_ns),
    )


def pack_profiles(
    ranks: tuple[Rank, ...],
    profiles: tuple[Profile, ...],
    representative: int,
    encoded: tuple[EncodedTables, ...] = (),
    findings: tuple[Finding, ...] | None = None,
) -> tuple[Rank, ...]:
    """Return the ranks, of one capture each, with their profiles; `encoded` is what is known of each.

    `representative` is the place of the rank that the analysis is about. `findings` are those of the capture,
    if profiles are without.
    """
    texts = encoded or (EncodedTables(),) * len(profiles)
    codes = None if findings is None else tuple(sorted({finding.code for finding in findings}))

    def pack(place: int) -> Rank:
        rank, header = ranks[place], profiles[place].header
        inputs = header.inputs
        if codes is not None:
            inputs = tuple(replace(one, findings=codes) for one in inputs)
        header = replace(header, inputs=inputs, is_representative=place == representative)
        profile = replace(profiles[place], header=header, recoverable=_tabulate_recoverable(rank))
        return replace(rank, profile=pack_profile(profile, texts[place]))

    return run_side_by_side(pack, range(len(profiles)))


def _header(  # noqa: PLR0913, PLR0917  # as above
    rank: Rank,
    tables: ProfileTables,
    anchor: Anchor,
    facts: StepFacts,
    capture: Capture,
    settings: tuple[tuple[str, str], ...],
    inputs: tuple[ProfiledInput, ...],
) -> Header:
    gpu = capture.export.gpu(rank.gpu)
    return Header(
        rank=rank.rank,
        device=rank.device,
        work=Work(
            kind=anchor.kind,
            unit=anchor.unit,
            name=anchor.name,
            tokens_per_step=facts.tokens,
            gpu=None if gpu is None else gpu.name,
            sm_count=None if gpu is None else gpu.sm_count,
            world_size=capture.world_size,
            graphs=capture.graphs,
            communicators=tables.communicators,
            settings=settings,
        ),
        inputs=inputs,
        matrices=() if rank.speed_of_light is None else rank.speed_of_light.matrices,
    )


def _tabulate_recoverable(rank: Rank) -> pl.DataFrame:
    known = sorted(
        (0, cause.cause, cause.recoverable_ns) for cause in rank.causes if cause.recoverable_ns is not None
    )
    return pl.DataFrame(known, schema=RECOVERABLE, orient="row")

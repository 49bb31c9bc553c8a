"""The rank in the job and the GPU of each (process, device) pair, and their source.

Both stay unknown without a source: neither the order of devices nor that of processes is a rank.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import polars as pl

from wallscope.model.capture import Export, Finding, Severity
from wallscope.model.finding_codes import FindingCode
from wallscope.model.schemas import RANKS
from wallscope.nsys.identity import RANK_VARIABLES
from wallscope.nsys.tables import Database
from wallscope.records import dataclass

_PROCESS_BITS = ~0xFFFFFF
_COUNTS = range(1 << 31)
_NCCL, _FILE_NAME = "nccl", "file name"

_THREAD_NAME = re.compile(r"MPI Rank ([0-9]{1,9})")
_ENDING = re.compile(
    r"(?:\.(?:sqlite3?|db|nsys-rep|qdrep|parquetdir|arrowdir|json|gz|pt|trace)|_(?:pqtdir|arwdir))$"
)
_RANK = re.compile(r"(?<![a-z0-9])rank[._-]?([0-9]{1,6})(?![a-z0-9]|-[0-9])")
_SHORT_RANK = re.compile(
    r"(?:(?:nsys|nsight|profile|prof|trace|report)[._-](?:.+[._-])?)?r([0-9]{1,6})(?:\.[0-9]+)?"
)
_WORD_BEFORE = re.compile(r"([a-z]+)[._-]?$")
_RANKS_INSIDE = {
    *("local", "node", "group", "tp", "pp", "dp", "ep", "cp", "sp", "mp", "etp", "edp", "vpp"),
    *("tensor", "pipeline", "data", "expert", "context", "sequence", "model", "parallel", "stage"),
    "low",
}
"""Words before "rank" that make it a rank inside a node or a group, or (`low`) one of a matrix."""
_RANK_WORD = re.compile(rf"(?<![a-z])(?:{'|'.join(sorted(_RANKS_INSIDE))})?ranks?(?![a-z])")
_MATRIX_RANK_WORD = re.compile(r"(?<![a-z])q?lora(?![a-z])")
"""A name with this word anywhere has ranks of matrices. `exploration` is another word."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Frame `RANKS`, the number of ranks of the job (`None`: unknown), and contradictions of sources."""

    ranks: pl.DataFrame
    world_size: int | None
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class _Pair:
    process: int
    global_pid: int | None
    device: int | None

    @property
    def pid(self) -> int | None:
        return None if self.global_pid is None else self.global_pid >> 24 & 0xFFFFFF


_Sources = Mapping[str, int]  # the rank by each source, the most trusted first


def identify_ranks(source: Database, export: Export, raw: pl.DataFrame, communicators: pl.DataFrame) -> Ranks:
    """Return one row per (process, device) pair among raw device rows, sorted by process and device.

    The most trusted source of a rank counts: MPI, then NCCL (`COMMUNICATORS`). For an export of one pair, the
    launcher's variables and then the name of the file follow.
    """
    found = raw.select("process", "globalPid", "deviceId").unique().sort("process", "deviceId")
    pairs = [_Pair(*row) for row in found.iter_rows()]
    world_size, sources = _collect_sources(source, export, pairs, communicators)
    best = [next(((rank, by) for tier in sources[pair] for by, rank in tier.items()), None) for pair in pairs]
    rows = [
        (number, *(of_job or (None, None)), pair.process, pair.pid, pair.device, gpu)
        for number, (pair, of_job, gpu) in enumerate(
            zip(pairs, best, _assign_gpus(source, export, pairs), strict=True)
        )
    ]
    return Ranks(
        ranks=pl.DataFrame(rows, schema=RANKS, orient="row"),
        world_size=world_size,
        findings=_check_contradictions(sources),
    )


def _collect_sources(
    source: Database, export: Export, pairs: Sequence[_Pair], communicators: pl.DataFrame
) -> tuple[int | None, Mapping[_Pair, tuple[_Sources, ...]]]:
    """Return the number of ranks of the job, and the rank of each pair by each source, the best first."""
    in_mpi = _read_mpi_ranks(source, pairs)
    largest, in_nccl = _read_communicator_ranks(pairs, communicators)
    world_size = _read_mpi_size(source) if in_mpi else None
    launch: tuple[_Sources, ...] = ()
    if len(pairs) == 1:
        world_size = world_size or int(export.environment.get("WORLD_SIZE", "0")) or None
        launch = _read_launcher_ranks(export, world_size)
        if world_size not in {None, largest} or any(
            max(tier.values(), default=0) >= largest for tier in launch
        ):
            in_nccl = {}  # a group of the job, such as data-parallel peers
    elif in_nccl and max(Counter(pair.process for pair in pairs).values()) > 1:
        in_mpi, world_size = {}, None  # MPI numbers processes, NCCL also their devices
    sources = {
        pair: (in_mpi.get(pair, {}), {_NCCL: in_nccl[pair]} if pair in in_nccl else {}, *launch)
        for pair in pairs
    }
    return world_size or (largest if in_nccl else None), sources


def _read_launcher_ranks(export: Export, world_size: int | None) -> tuple[_Sources, _Sources]:
    """Return ranks by the launcher's variables, and by the name of the file, which refer to one process."""
    variables = {name: int(export.environment[name]) for name in RANK_VARIABLES if name in export.environment}
    rank = find_rank_in_name(export.name)
    if rank is None or (world_size is not None and rank >= world_size):
        return variables, {}
    return variables, {_FILE_NAME: rank}


def _read_mpi_ranks(source: Database, pairs: Sequence[_Pair]) -> dict[_Pair, _Sources]:
    """Return ranks from MPI itself, as Nsight recorded them: in its table, since 2023, or as thread names."""
    sources: dict[_Pair, dict[str, int]] = defaultdict(dict)
    tables: dict[str, Iterable[tuple[object, object]]] = {}
    if source.has("MPI_RANKS", "globalTid", "rank"):
        tables["MPI_RANKS"] = [(tid, rank) for tid, rank in source.rows("mpi_ranks")]
    if source.has("ThreadNames", "globalTid", "nameId") and source.has("StringIds", "id", "value"):
        names = ((tid, _THREAD_NAME.fullmatch(str(name))) for tid, name in source.rows("thread_names"))
        tables["MPI thread name"] = [(tid, int(name[1])) for tid, name in names if name]
    for table, rows in tables.items():
        of_process = _select_unshared(
            (tid & _PROCESS_BITS, rank)
            for tid, rank in rows
            if isinstance(tid, int) and isinstance(rank, int) and rank in _COUNTS
        )
        for pair in pairs:
            if pair.global_pid in of_process:
                sources[pair][table] = of_process[pair.global_pid]
    return dict(sources)


def _select_unshared(claims: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Return the rank of each process that has one and shares it with no other."""
    ranks_of: dict[int, set[int]] = defaultdict(set)
    for process, rank in claims:
        ranks_of[process].add(rank)
    sole = {process: next(iter(ranks)) for process, ranks in ranks_of.items() if len(ranks) == 1}
    process_counts = Counter(sole.values())
    return {process: rank for process, rank in sole.items() if process_counts[rank] == 1}


def _read_mpi_size(source: Database) -> int | None:
    if not source.has("MPI_COMMUNICATORS", "size"):
        return None
    ((size,),) = source.rows("mpi_size")
    return size if isinstance(size, int) and size in _COUNTS and size > 0 else None


def _read_communicator_ranks(
    pairs: Sequence[_Pair], communicators: pl.DataFrame
) -> tuple[int, dict[_Pair, int]]:
    """Return the size of the largest communicator, and the rank in it of each pair.

    It is the whole job only if all pairs in one of its size share it. Otherwise the communicators are groups,
    such as data-parallel peers, and give no rank of the job.
    """
    members = list(_list_members(pairs, communicators))
    largest = max((participants for *_, participants in members), default=0)
    shared: dict[_Pair, set[int]] = defaultdict(set)
    ranks_of: dict[_Pair, set[int]] = defaultdict(set)
    for pair, communicator, rank, participants in members:
        if participants == largest:
            shared[pair].add(communicator)
            ranks_of[pair].add(rank)
    if not shared or not set.intersection(*shared.values()):
        return largest, {}
    sole = {pair: next(iter(ranks)) for pair, ranks in ranks_of.items() if len(ranks) == 1}
    process_counts = Counter(sole.values())
    return largest, {pair: rank for pair, rank in sole.items() if process_counts[rank] == 1}


def _list_members(
    pairs: Sequence[_Pair], communicators: pl.DataFrame
) -> Iterator[tuple[_Pair, int, int, int]]:
    """Return pair, communicator, rank in it and its size; a communicator without peers gives nothing."""
    pairs_of: dict[int, list[_Pair]] = defaultdict(list)
    for pair in pairs:
        pairs_of[pair.process].append(pair)
    wanted = communicators.select("process", "device", "communicator", "rank", "participants")
    for process, device, communicator, rank, participants in wanted.iter_rows():
        candidates = pairs_of.get(process, [])
        for pair in candidates:
            is_meant = len(candidates) == 1 if device is None else device == pair.device
            if is_meant and participants > 1 and rank < participants:
                yield pair, communicator, rank, participants


def find_rank_in_name(name: str) -> int | None:
    """Return the rank in the name of a file, if the name calls it a rank.

    No other number counts: nsys itself numbers reports, `report1`, and capture ranges, `report.1`.

    >>> find_rank_in_name("profile_rank0.nsys-rep"), find_rank_in_name("nsys_llama_7b_r12.sqlite")
    (0, 12)
    >>> find_rank_in_name("report.7.sqlite"), find_rank_in_name("tp_rank1.sqlite")
    (None, None)
    >>> find_rank_in_name("lora_r16.sqlite"), find_rank_in_name("rank-3.pt.trace.json.gz")
    (None, 3)
    """
    stem = name.lower()
    while ending := _ENDING.search(stem):
        stem = stem[: ending.start()]
    found = {int(match[1]) for match in _RANK.finditer(stem) if _is_of_job(stem[: match.start()])}
    if not found and not _RANK_WORD.search(stem) and (short := _SHORT_RANK.fullmatch(stem)):
        found = {int(short[1])}
    return found.pop() if len(found) == 1 and not _MATRIX_RANK_WORD.search(stem) else None


def _is_of_job(before: str) -> bool:
    word = _WORD_BEFORE.search(before)
    return word is None or not (word[1] in _RANKS_INSIDE or word[1].endswith("group"))


def _check_contradictions(sources: Mapping[_Pair, tuple[_Sources, ...]]) -> tuple[Finding, ...]:
    """Return one finding if a source gives another rank than the best one."""
    found: list[tuple[_Pair, str, int, str, int]] = []
    for pair, tiers in sources.items():
        best, *others = [tier for tier in tiers if tier] or [{}]
        for other in others:
            if set(best.values()).isdisjoint(other.values()):
                (by, rank), (other_by, other_rank) = next(iter(best.items())), next(iter(other.items()))
                found.append((pair, by, rank, other_by, other_rank))
    if not found:
        return ()
    pair, by, rank, other_by, other_rank = found[0]
    of = "" if len(sources) == 1 else f" of process {pair.pid}, device {pair.device},"
    more = f" ({len(found) - 1} more such)" if len(found) > 1 else ""
    message = f"The rank{of} is {rank} by {by} but {other_rank} by {other_by}{more}: {by} is used."
    cure = "Name each report after its rank: nsys profile -o profile_rank%q{RANK}."
    return (
        Finding(
            FindingCode.RANK_CONTRADICTION,
            Severity.WARNING,
            message,
            cure if other_by == _FILE_NAME else None,
        ),
    )


def _assign_gpus(source: Database, export: Export, pairs: Sequence[_Pair]) -> list[int | None]:
    """Return Nsight's id of the GPU of each pair; `None` if unknown.

    A process may see the GPUs in its own order, or only some of them, and number its first one 0. Only newer
    exports contain the assignment. Otherwise the profiler's own order is assumed, unless two processes would
    then share a GPU out of several.
    """
    certain = _read_certain_gpus(source)
    known = [certain.get((pair.pid, pair.device)) for pair in pairs]
    taken = [
        _gpu_by_order(source, export, pair.device) if gpu is None else gpu
        for pair, gpu in zip(pairs, known, strict=True)
    ]
    if len(export.gpus) == 1:
        return taken
    users: dict[int | None, set[int]] = defaultdict(set)
    for pair, gpu in zip(pairs, taken, strict=True):
        users[gpu].add(pair.process)
    doubtful = {
        pair.process
        for pair, sure, gpu in zip(pairs, known, taken, strict=True)
        if sure is None and gpu is not None and len(users[gpu]) > 1
    }
    return [
        sure if pair.process in doubtful else gpu for pair, sure, gpu in zip(pairs, known, taken, strict=True)
    ]


def _read_certain_gpus(source: Database) -> dict[tuple[object, object], int]:
    """Return the GPU by process id and CUDA ordinal, from newer exports: by its id, or by its UUID."""
    rows: list[tuple[object, object, object]] = []
    if source.has("TARGET_INFO_CUDA_DEVICE", "pid", "cudaId", "gpuId"):
        rows += [(pid, device, gpu) for pid, device, gpu in source.rows("cuda_devices")]
        if source.has("TARGET_INFO_CUDA_DEVICE", "uuid") and source.has("TARGET_INFO_GPU", "id", "uuid"):
            rows += [(pid, device, gpu) for pid, device, gpu in source.rows("cuda_devices_by_uuid")]
    found: dict[tuple[object, object], set[int]] = defaultdict(set)
    for pid, device, gpu in rows:
        if isinstance(gpu, int) and gpu in _COUNTS:
            found[pid, device].add(gpu)
    return {key: next(iter(gpus)) for key, gpus in found.items() if len(gpus) == 1}


def _gpu_by_order(source: Database, export: Export, device: int | None) -> int | None:
    if device is None:
        return None
    if source.has("TARGET_INFO_GPU", "id", "cuDevice", "smCount"):
        matches = {gpu for (gpu,) in source.rows("gpus_by_ordinal", device)}
        if len(matches) == 1:
            return int(matches.pop())
    return device if device in {gpu.id for gpu in export.gpus} else None

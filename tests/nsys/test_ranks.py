import polars as pl
import pytest

from fixtures.export import SCHEMAS, ExportWriter, global_pid
from wallscope.model.capture import Severity
from wallscope.model.schemas import COMMUNICATORS, RANKS
from wallscope.nsys import read_capture
from wallscope.nsys.identity import identify_export, number_processes, read_export_facts
from wallscope.nsys.operations import read_operations
from wallscope.nsys.ranks import _Pair, _read_mpi_ranks, find_rank_in_name, identify_ranks
from wallscope.nsys.sources import open_tables
from wallscope.nsys.tables import make_database

FIRST, SECOND, THIRD = 101, 102, 103  # process ids, of dense numbers 0, 1, 2
WORLD, OTHER = 0xF123_4567_89AB_CDEF, 7  # hashes of communicators
WITH_RANKS = tuple(schema for schema in SCHEMAS if schema not in {"2.7.1", "3.0.0"})


def quiet(_):
    pass


def found(path, members=()):
    """What is told of an export; members of communicators as process, hash, rank, participants, device."""
    communicators = pl.DataFrame(list(members), schema=COMMUNICATORS, orient="row")
    with open_tables(path) as tables:
        source = make_database(path, tables)
        origins = read_operations(source, quiet).origins
        keyed = origins.join(number_processes(origins["globalPid"]), on="globalPid", nulls_equal=True)
        made = identify_ranks(
            source, identify_export(source, read_export_facts(source)), keyed, communicators
        )
    assert made.ranks.schema == RANKS
    return made


def identity(made):
    return made.ranks.select("rank", "rank_source").rows()


def messages(made):
    return [finding.message for finding in made.findings]


def write(path, *pairs, schema="3.25.0", gpus=0, environment=None):
    """A writer of an export with a kernel on each (process id, device) pair."""
    writer = ExportWriter(path, schema)
    for pid, device in pairs or [(FIRST, 0)]:
        writer.kernel("gemm", 100, 200, pid=pid, device=device)
    for number in range(gpus):
        writer.gpu(number)
    writer.environment(**(environment or {}))
    return writer


def mpi_rank(writer, pid, rank, thread=0):
    writer.row("MPI_RANKS", globalTid=global_pid(pid) + pid + thread, rank=rank)


def thread_name(writer, pid, name):
    writer.row("ThreadNames", nameId=writer.string(name), priority=0, globalTid=global_pid(pid) + pid)


@pytest.mark.parametrize("schema", WITH_RANKS)
def test_mpi_tells_the_rank_of_each_process(schema, tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 1), schema=schema) as writer:
        mpi_rank(writer, FIRST, 6)
        mpi_rank(writer, SECOND, 5)
        writer.row("MPI_COMMUNICATORS", rank=6, size=8)

    made = found(tmp_path / "run.sqlite")
    assert identity(made) == [(6, "MPI_RANKS"), (5, "MPI_RANKS")]
    assert made.world_size == 8


@pytest.mark.parametrize("schema", SCHEMAS)
def test_names_that_nsight_gives_to_mpi_threads_tell_the_rank_in_every_generation(schema, tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 1), schema=schema) as writer:
        thread_name(writer, FIRST, "MPI Rank 1")
        thread_name(writer, SECOND, "MPI Rank 0")
        thread_name(writer, SECOND, "MPI Rank 0 of 2")

    assert identity(found(tmp_path / "run.sqlite")) == [(1, "MPI thread name"), (0, "MPI thread name")]


@pytest.mark.parametrize("host", [0, 200], ids=["positive ids", "negative ids"])
def test_threads_of_a_process_that_share_its_rank_tell_it_once(host, tmp_path):
    with write(tmp_path / "run.sqlite") as writer:
        for thread in range(3):
            writer.row("MPI_RANKS", globalTid=global_pid(FIRST, host=host) + thread, rank=4)

    pair = _Pair(0, global_pid(FIRST, host=host), 0)
    with open_tables(tmp_path / "run.sqlite") as tables:
        told = _read_mpi_ranks(make_database(tmp_path / "run.sqlite", tables), [pair])
    assert told == {pair: {"MPI_RANKS": 4}}


def test_a_process_with_two_ranks_and_a_rank_with_two_processes_have_none(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 1), (THIRD, 2)) as writer:
        mpi_rank(writer, FIRST, 0)
        mpi_rank(writer, FIRST, 1, thread=1)
        mpi_rank(writer, SECOND, 2)
        mpi_rank(writer, THIRD, 2)

    assert identity(found(tmp_path / "run.sqlite")) == [(None, None)] * 3


@pytest.mark.parametrize("rank", [-1, 1 << 31, "3", None], ids=["negative", "huge", "text", "null"])
def test_what_is_no_rank_is_not_taken_for_one(rank, tmp_path):
    with write(tmp_path / "run.sqlite") as writer:
        writer.connection.execute("CREATE TABLE MPI_RANKS (globalTid, rank)")
        writer.connection.execute("INSERT INTO MPI_RANKS VALUES (?, ?)", (global_pid(FIRST), rank))

    assert identity(found(tmp_path / "run.sqlite")) == [(None, None)]


def test_the_devices_of_one_process_share_its_mpi_rank_and_have_nccl_ranks_of_their_own(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (FIRST, 1)) as writer:
        mpi_rank(writer, FIRST, 3)

    made = found(tmp_path / "run.sqlite", [(0, WORLD, 6, 8, 0), (0, WORLD, 7, 8, 1)])
    assert identity(found(tmp_path / "run.sqlite")) == [(3, "MPI_RANKS")] * 2
    assert (identity(made), made.world_size, made.findings) == ([(6, "nccl"), (7, "nccl")], 8, ())


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param([(0, WORLD, 2, 4, 0), (1, WORLD, 3, 4, 1)], [2, 3], id="one communicator"),
        pytest.param([(0, WORLD, 2, 4, None), (1, WORLD, 3, 4, 1)], [2, 3], id="a device not told"),
        pytest.param([(0, WORLD, 2, 4, 0), (0, OTHER, 1, 2, 0)], [2, None], id="the largest counts"),
        pytest.param([(0, WORLD, 2, 4, 0), (1, OTHER, 1, 2, 1)], [2, None], id="one in a group alone"),
        pytest.param([(0, WORLD, 0, 4, 0), (1, OTHER, 1, 4, 1)], [None, None], id="two groups of one size"),
        pytest.param(
            [(0, WORLD, 0, 2, 0), (1, WORLD, 1, 2, 1), (0, OTHER, 1, 2, 0), (1, OTHER, 1, 2, 1)],
            [None, 1],
            id="two ranks of one process",
        ),
        pytest.param(
            [(0, WORLD, 1, 2, 0), (1, WORLD, 1, 2, 1)], [None, None], id="one rank of two processes"
        ),
        pytest.param([(0, WORLD, 0, 2, 5)], [None, None], id="a device without work"),
        pytest.param([(0, WORLD, 0, 1, 0)], [None, None], id="no peers"),
        pytest.param([(0, WORLD, 4, 4, 0)], [None, None], id="a rank beyond its communicator"),
        pytest.param([(9, WORLD, 0, 4, 0)], [None, None], id="a process without work"),
    ],
)
def test_nccl_tells_the_rank_in_the_communicator_that_all_share(members, expected, tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 1)):
        pass

    told = [(rank, None if rank is None else "nccl") for rank in expected]
    assert identity(found(tmp_path / "run.sqlite", members)) == told


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, [(1, "nccl")], id="nothing else told"),
        pytest.param({"WORLD_SIZE": "4"}, [(1, "nccl")], id="the whole job"),
        pytest.param({"RANK": "1", "WORLD_SIZE": "4"}, [(1, "nccl")], id="both agree"),
        pytest.param({"RANK": "5", "WORLD_SIZE": "8"}, [(5, "RANK")], id="half the job"),
        pytest.param({"SLURM_PROCID": "5"}, [(5, "SLURM_PROCID")], id="a rank beyond the communicator"),
    ],
)
def test_a_communicator_of_a_part_of_the_job_tells_no_rank_of_it(environment, expected, tmp_path):
    with write(tmp_path / "run.sqlite", environment=environment, schema="3.7.2"):
        pass

    made = found(tmp_path / "run.sqlite", [(0, WORLD, 1, 4, 0)])
    assert (identity(made), made.findings) == (expected, ())


def test_variables_and_file_name_speak_of_an_export_of_one_rank_alone(tmp_path):
    environment = {"RANK": "3", "WORLD_SIZE": "16"}
    with write(tmp_path / "rank3.sqlite", environment=environment):
        pass
    with write(tmp_path / "rank_3.sqlite", (FIRST, 0), (SECOND, 1), environment=environment):
        pass

    one, two = found(tmp_path / "rank3.sqlite"), found(tmp_path / "rank_3.sqlite")
    assert (identity(one), one.world_size, one.findings) == ([(3, "RANK")], 16, ())
    assert (identity(two), two.world_size, two.findings) == ([(None, None)] * 2, None, ())


@pytest.mark.parametrize("schema", SCHEMAS)
def test_the_file_name_tells_the_rank_where_nothing_else_does(schema, tmp_path):
    with write(tmp_path / "profile_rank0.sqlite", schema=schema):
        pass

    assert identity(found(tmp_path / "profile_rank0.sqlite")) == [(0, "file name")]


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("profile_rank0.sqlite", 0),
        ("rank_3.nsys-rep", 3),
        ("rank3", 3),
        ("Rank-3.qdrep.sqlite", 3),
        ("mpi_rank03.sqlite", 3),
        ("nsys_llama_7b_r12.sqlite", 12),
        ("r12.sqlite", 12),
        ("profile_4711_815_node2_rank17.sqlite", 17),
        ("node_rank1_rank12.sqlite", 12),
        ("rank12_20240131_pqtdir", 12),
        ("profile_rank3.2.nsys-rep", 3),  # the second capture range of rank 3
        ("rank0_rank1.sqlite", None),
        ("result_2_7B.sqlite", None),
        ("report1.sqlite", None),
        ("report.7.sqlite", None),
        ("h100_2gpu_1s.sqlite", None),
        ("mpi_v100_4rank.sqlite", None),
        ("mpi_4rank_2.sqlite", None),
        ("local_rank3.sqlite", None),
        ("localrank3.sqlite", None),
        ("tp_rank1.sqlite", None),
        ("ActorGroup_rank0_pid7.1.sqlite", None),
        ("lora_rank16.sqlite", None),
        ("nsys_lora_r16.sqlite", None),
        ("nsys_qlora8_r16.sqlite", None),
        ("low_rank_64.sqlite", None),
        ("slow_rank3.sqlite", 3),
        ("exploration_rank3.sqlite", 3),
        ("nsys_floral_r12.sqlite", 12),
        ("nsys_franklin_r12.sqlite", 12),
        ("nsys_tprank1_r12.sqlite", None),
        ("rank0-7.sqlite", None),
        ("ranks8.sqlite", None),
        ("rank_20240131.sqlite", None),
        ("gemm_r12.sqlite", None),
        ("rankless_r2.sqlite", None),
        ("rank٣.sqlite", None),
        ("rank.sqlite", None),
    ],
)
def test_a_file_name_tells_the_rank_only_where_it_calls_it_one(name, rank):
    assert find_rank_in_name(name) == rank


def test_a_number_in_the_file_name_beyond_the_job_is_no_rank(tmp_path):
    with write(tmp_path / "nsys_resnet_r50.sqlite", environment={"WORLD_SIZE": "8"}):
        pass

    assert identity(found(tmp_path / "nsys_resnet_r50.sqlite")) == [(None, None)]


def test_the_better_source_is_believed_and_a_finding_says_so(tmp_path):
    with write(tmp_path / "rank_5.sqlite", environment={"RANK": "3"}):
        pass

    made = found(tmp_path / "rank_5.sqlite")
    assert identity(made) == [(3, "RANK")]
    assert [(finding.code, finding.severity) for finding in made.findings] == [
        ("rank-contradiction", Severity.WARNING)
    ]
    assert messages(made) == ["The rank is 3 by RANK but 5 by file name: RANK is used."]
    assert read_capture(tmp_path / "rank_5.sqlite", quiet).findings[-1:] == made.findings


def test_a_file_named_after_another_variable_of_the_launcher_contradicts_nothing(tmp_path):
    with write(tmp_path / "rank_1.sqlite", environment={"RANK": "12", "SLURM_PROCID": "1"}):
        pass

    made = found(tmp_path / "rank_1.sqlite")
    assert (identity(made), made.findings) == ([(12, "RANK")], ())


def test_contradictions_of_many_ranks_are_one_finding(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 1)) as writer:
        mpi_rank(writer, FIRST, 0)
        mpi_rank(writer, SECOND, 1)

    made = found(tmp_path / "run.sqlite", [(0, WORLD, 1, 2, 0), (1, WORLD, 0, 2, 1)])
    assert identity(made) == [(0, "MPI_RANKS"), (1, "MPI_RANKS")]
    (message,) = messages(made)
    assert message == (
        "The rank of process 101, device 0, is 0 by MPI_RANKS but 1 by nccl (1 more such): MPI_RANKS is used."
    )


def gpus(path):
    return found(path).ranks.select("pid", "device", "gpu").rows()


@pytest.mark.parametrize("schema", ["3.24.0", "3.25.0", "3.28.1"])
def test_newer_exports_tell_which_gpu_a_process_calls_by_which_number(schema, tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 0), schema=schema, gpus=3) as writer:
        writer.row("TARGET_INFO_CUDA_DEVICE", pid=FIRST, cudaId=0, gpuId=2)
        writer.row("TARGET_INFO_CUDA_DEVICE", pid=SECOND, cudaId=0, gpuId=1)

    assert gpus(tmp_path / "run.sqlite") == [(FIRST, 0, 2), (SECOND, 0, 1)]


@pytest.mark.parametrize("schema", ["3.25.0", "3.28.1"])
def test_the_uuid_tells_the_gpu_where_its_id_is_missing(schema, tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), schema=schema) as writer:
        writer.gpu(0, uuid="e6cbab79-5e1b-db3e-3426-5871956e9bc2")
        writer.gpu(1, uuid="1825e7cc-6d1b-a3ac-d9bf-66534f906620")
        writer.row(
            "TARGET_INFO_CUDA_DEVICE",
            pid=FIRST,
            cudaId=0,
            gpuId=None,
            uuid="1825e7cc-6d1b-a3ac-d9bf-66534f906620",
        )

    assert gpus(tmp_path / "run.sqlite") == [(FIRST, 0, 1)]


def test_processes_that_share_a_gpu_do_so_where_the_export_tells_it(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 0), gpus=2) as writer:
        for pid in (FIRST, SECOND):
            writer.row("TARGET_INFO_CUDA_DEVICE", pid=pid, cudaId=0, gpuId=1)

    assert gpus(tmp_path / "run.sqlite") == [(FIRST, 0, 1), (SECOND, 0, 1)]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        pytest.param([(FIRST, 0), (SECOND, 1)], [0, 1], id="different numbers"),
        pytest.param([(FIRST, 0), (FIRST, 1)], [0, 1], id="two devices of one process"),
        pytest.param([(FIRST, 0), (SECOND, 0)], [None, None], id="the same number"),
        pytest.param([(FIRST, 0), (FIRST, 1), (SECOND, 0)], [None, None, None], id="one number the same"),
        pytest.param([(FIRST, 0), (SECOND, 0), (THIRD, 1)], [None, None, 1], id="a third one apart"),
        pytest.param([(FIRST, 9)], [None], id="a device that no GPU is"),
    ],
)
def test_the_order_of_the_profiler_counts_unless_two_processes_would_share_a_gpu(
    pairs, expected, schema, tmp_path
):
    with write(tmp_path / "run.sqlite", *pairs, schema=schema, gpus=4):
        pass

    assert [gpu for *_, gpu in gpus(tmp_path / "run.sqlite")] == expected


def test_a_gpu_that_another_process_has_for_certain_is_not_guessed(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 0), gpus=2) as writer:
        writer.row("TARGET_INFO_CUDA_DEVICE", pid=FIRST, cudaId=0, gpuId=0)

    assert gpus(tmp_path / "run.sqlite") == [(FIRST, 0, 0), (SECOND, 0, None)]


def test_on_a_machine_of_one_gpu_all_processes_use_it(tmp_path):
    with write(tmp_path / "run.sqlite", (FIRST, 0), (SECOND, 0), schema="3.7.2", gpus=1):
        pass

    assert gpus(tmp_path / "run.sqlite") == [(FIRST, 0, 0), (SECOND, 0, 0)]


@pytest.mark.parametrize(
    ("stem", "expected"),
    [
        pytest.param(
            "mpi_v100_4rank",
            [(number, "MPI thread name", number, number) for number in range(4)],
            id="four MPI processes",
        ),
        pytest.param("pipit_saxpy_mpi", [(0, "MPI thread name", 0, 0)], id="one MPI process of 2022"),
        pytest.param("nsysai_h100_2gpu_1s", [(None, None, 0, None), (None, None, 1, None)], id="torchrun"),
        pytest.param(
            "nsysai_mfu_before", [(None, None, 0, None), (None, None, 1, None)], id="in a container"
        ),
        pytest.param("fuser_h200", [(None, None, 0, 0)], id="one process of two with work"),
        pytest.param("jax_alpa_mem", [(None, None, 0, 2)], id="GPUs in another order"),
    ],
)
def test_ranks_and_gpus_of_real_exports(stem, expected, traces):
    path = traces / f"{stem}.sqlite"
    if not path.exists():
        pytest.skip(f"no such real export here: {path.name}")
    capture = read_capture(path, quiet)

    assert capture.ranks.select("rank", "rank_source", "device", "gpu").rows() == expected
    assert "rank-contradiction" not in [finding.code for finding in capture.findings]


def test_the_table_of_mpi_and_its_thread_names_agree_in_a_real_export(traces):
    path = traces / "mpi_test_nocuda.sqlite"
    if not path.exists():
        pytest.skip(f"no such real export here: {path.name}")
    pairs = [_Pair(0, 294_425_108_414_464, 0), _Pair(1, 294_425_125_191_680, 0)]
    with open_tables(path) as tables:
        told = _read_mpi_ranks(make_database(path, tables), pairs)

    assert told == {pair: {"MPI_RANKS": rank, "MPI thread name": rank} for rank, pair in enumerate(pairs)}

"""Exports of one job, each analysed by itself: what belongs together, what is left out, and what is said."""

import json
import os
import shutil
import sqlite3
from contextlib import closing

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from fixtures.simulation.program import Program
from fixtures.simulation.run import run
from fixtures.simulation.story import STEPS
from fixtures.simulation.writing import write_run
from tests.doc_blocks import ROOT, find_blocks
from tests.jobs.dying import dies_always, dies_once
from tests.jobs.simulated import LATE, RANKS, thread, write_job
from wallscope.cache_folder import Cache
from wallscope.errors import InputError, InternalError
from wallscope.jobs import run as running
from wallscope.jobs.inputs import find_captures, find_exports, is_many, load_or_analyze_source
from wallscope.jobs.merge import job_report, rematch_ranks, run_job
from wallscope.jobs.run import analyze_in_processes
from wallscope.model.capture import Options, Selection
from wallscope.pipeline import analyze_capture
from wallscope.profile.codec import unpack_profile
from wallscope.ranks.tables import collective_lanes, earliest_ns, job_table, job_tracks
from wallscope.render.data import write_json
from wallscope.summary.diagnosis import find_scope
from wallscope.views.headline import write_headline

DAY_NS = 86_400 * 10**9


@pytest.fixture(scope="module")
def answer(job_folder):
    return analyze(find_exports([job_folder]))


def analyze(paths, **told):
    return run_job(paths, Options(), lambda _: None, **told).analysis


def codes(analysis):
    return {finding.code: finding.message for finding in analysis.capture.findings}


def test_the_late_rank_and_its_cause_are_named(answer):
    (late,) = answer.job.stragglers

    assert (late.rank, late.reason) == (LATE, "slower-kernels")
    assert late.ratio == pytest.approx(1.2, abs=0.001)
    assert late.saved_ns == pytest.approx(100_000, abs=2_000)
    assert answer.job.critical_rank == LATE
    assert answer.ranks[answer.diagnosis.rank_index].rank == LATE
    assert [export.name for export in answer.inputs] == [f"run_rank{rank}.sqlite" for rank in range(RANKS)]
    assert [rank.input for rank in answer.ranks] == list(range(RANKS))
    assert answer.job.clock.method == "session-start"
    assert "one-rank" not in codes(answer)


def test_a_late_rank_of_one_export_is_the_same(answer, whole):
    found = analyze([whole])

    assert found.job.stragglers[0].place == LATE
    assert [one.peer_wait_ns for one in found.job.members] == [one.peer_wait_ns for one in answer.job.members]


def test_a_missing_rank_limits_the_verdict(job_folder):
    found = analyze([path for path in find_exports([job_folder]) if "rank1" not in path.name])

    assert found.job.missing == (1,)
    assert "3 of 4 ranks supplied: 1 missing" in codes(found)["ranks-missing"]
    assert "1 rank of 4 not supplied (1)" in found.job.verdict


def test_an_export_given_twice_or_a_rank_told_twice_is_left_out(job_folder, tmp_path):
    shutil.copy(job_folder / "run_rank1.sqlite", tmp_path / "copy.sqlite")
    exports = find_exports([job_folder, tmp_path / "copy.sqlite", job_folder / "run_rank0.sqlite"])
    found = analyze(exports)

    assert len(exports) == RANKS + 1
    assert found.job.ranks == RANKS
    assert codes(found)["export-left-out"].startswith(
        "copy.sqlite is left out: it has the content of run_rank1"
    )
    assert "copy.sqlite is left out: it has the content of run_rank1" in found.job.verdict
    assert "left out" not in " ".join(found.diagnosis.confidence.reasons)  # a copy says nothing new


def test_another_capture_of_a_rank_limits_the_confidence(job_folder, tmp_path):
    other = tmp_path / "again.sqlite"
    shutil.copy(job_folder / "run_rank1.sqlite", other)
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute('UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + 1')
    found = analyze([job_folder / "run_rank1.sqlite", other])

    assert codes(found)["export-left-out"] == (
        "again.sqlite is left out: rank 1 is already covered by run_rank1.sqlite."
    )
    assert found.diagnosis.confidence.level != "high"
    assert found.diagnosis.confidence.reasons[-1] == "1 of 2 exports was left out"


def test_exports_of_another_job_are_left_out(job_folder, tmp_path):
    other = write_job(tmp_path / "b", ranks=2)
    found = analyze(find_exports([job_folder, other / "run_rank0.sqlite"]))

    assert found.job.ranks == RANKS
    assert "it belongs to a job of 2 ranks, not 4" in codes(found)["export-left-out"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """All ranks of the job in one export, which does not tell their numbers."""
    played = run(Program(tuple(thread(rank, RANKS, 1.2) for rank in range(RANKS))))
    path = tmp_path_factory.mktemp("whole") / "all.sqlite"
    write_run(played, path)
    return path


def test_an_export_of_many_ranks_is_kept_before_one_that_tells_one_of_them(job_folder, whole):
    found = analyze([job_folder / "run_rank1.sqlite", whole])

    assert found.job.ranks == RANKS
    assert codes(found)["export-left-out"] == (
        "run_rank1.sqlite is left out: all.sqlite has the same capture."
    )


def test_most_ranks_tell_which_job_it_is_not_most_exports(whole, tmp_path):
    other = write_job(tmp_path / "b", ranks=2)
    answer = json.loads(write_json(analyze([whole])))
    answer["capture"]["world_size"] = RANKS
    (tmp_path / "all.json").write_text(json.dumps(answer))
    found = analyze([*find_exports([other]), tmp_path / "all.json"])

    assert found.job.ranks == RANKS
    assert "it belongs to a job of 2 ranks, not 4" in codes(found)["export-left-out"]


FAILING = (OSError(5, "Input/output error"), FileNotFoundError(2, "gone", "x"), MemoryError())


@pytest.mark.parametrize("error", FAILING, ids=lambda error: type(error).__name__)
def test_a_fault_of_the_system_at_one_export_leaves_the_others(error, job_folder, monkeypatch):
    def fail(source, *_, **__):
        if source.name == "run_rank1.sqlite":
            raise error
        return load_or_analyze_source(source, Options(), lambda _: None, None)

    monkeypatch.setattr(running, "load_or_analyze_source", fail)
    found = analyze(find_exports([job_folder]), keep_going=True)
    assert codes(found)["export-left-out"].startswith("run_rank1.sqlite is left out: ")
    assert found.diagnosis.confidence.reasons[-1] == "1 of 4 exports was left out"
    with pytest.raises(InputError, match=r"run_rank1.sqlite — .*--keep-going analyzes the others"):
        analyze(find_exports([job_folder]))


def test_a_defect_of_wallscope_at_one_export_is_no_fault_of_the_export(job_folder, monkeypatch):
    def fail(*_, **__):
        raise InternalError("a law is broken")

    monkeypatch.setattr(running, "load_or_analyze_source", fail)
    with pytest.raises(InternalError):
        analyze(find_exports([job_folder]))


@pytest.mark.slow
def test_one_file_of_captures_days_apart_is_said_in_the_headline(job_folder, tmp_path):
    for days, path in enumerate(find_exports([job_folder])[:3]):
        answer = json.loads(write_json(analyze([path])))
        answer["inputs"][0]["session_start_utc_ns"] = DAY_NS * (1 + 100 * days)
        (tmp_path / f"rank{days}.json").write_text(json.dumps(answer))
    found = analyze(sorted(tmp_path.glob("*.json")))

    messages = [one.message for one in found.capture.findings if one.code == "export-left-out"]
    assert messages == [
        "rank1.json is left out: it was captured 100.0 d after the others.",
        "rank2.json is left out: it was captured 200.0 d after the others.",
    ]
    assert found.scope == find_scope(found)
    assert write_headline(found).endswith("in 1 of 3 files")


def test_an_error_that_names_no_file_is_told_with_it(job_folder):
    exports = find_exports([job_folder])
    late = Options(selection=Selection(steps=(400, 500)))

    with pytest.raises(InputError, match=r"run_rank0.sqlite — --steps 400-500 — are not in this export"):
        run_job(exports[:1], late, lambda _: None)


@pytest.fixture
def damaged(job_folder, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(job_folder, folder)
    cut = folder / "run_rank3.sqlite"
    os.truncate(cut, cut.stat().st_size // 2)
    return folder


def test_one_truncated_file_is_named_and_the_way_on(damaged):
    with pytest.raises(InputError, match=r"run_rank3.sqlite — .*--keep-going analyzes the others"):
        analyze(find_exports([damaged]))


def test_where_no_export_can_be_analyzed_there_are_no_others(damaged):
    for path in damaged.iterdir():
        os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(InputError, match="3 more exports of 4 too") as error:
        analyze(find_exports([damaged]))
    assert "--keep-going" not in str(error.value)


def test_keep_going_leaves_it_out_and_says_so(damaged):
    found = analyze(find_exports([damaged]), keep_going=True)

    assert codes(found)["export-left-out"].startswith("run_rank3.sqlite is left out: ")
    assert found.job.missing == (3,)
    assert found.job.stragglers[0].rank == LATE


@pytest.mark.slow
def test_processes_give_the_same_bytes(job_folder, answer):
    assert write_json(analyze(find_exports([job_folder]), jobs=2)) == write_json(answer)


@pytest.mark.parametrize(
    ("one", "said"),
    [(dies_once, "b"), (dies_always, "its worker was killed 2 times")],
    ids=["once", "always"],
)
def test_a_killed_worker_takes_nothing_with_it(tmp_path, one, said):
    paths = [tmp_path / name for name in "abcd"]
    found = [
        str(outcome) for _, outcome in sorted(analyze_in_processes(paths, Options(), 2, lambda _: None, one))
    ]

    assert [found[place] for place in (0, 2, 3)] == ["a", "c", "d"]
    assert said in found[1]


def test_what_is_done_is_in_the_cache(job_folder, answer, tmp_path, monkeypatch):
    cache = Cache(tmp_path / "kept")
    exports = find_exports([job_folder])
    analyze(exports[:3], cache=cache)
    worked_out = []

    def noted(path, *rest, **chosen):
        worked_out.append(path.name)
        return analyze_capture(path, *rest, **chosen)

    monkeypatch.setattr("wallscope.pipeline.analyze_capture", noted)
    found = analyze(exports, cache=cache)

    assert worked_out == ["run_rank3.sqlite"]
    assert write_json(found) == write_json(answer)


def test_the_command_line_tells_the_job(job_folder, called, tmp_path):
    ran = called("analyze", job_folder / "run_rank*.sqlite", "--no-cache", "--json", tmp_path / "job.json")

    assert ran.code == 0
    assert ran.out.startswith("4 exports of 1 host · ")
    assert "Rank 2 is late in every step" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines())
    written = json.loads((tmp_path / "job.json").read_text())
    assert written["job"]["stragglers"][0]["cause_wall"] == "compute"
    assert written["job"]["critical_rank"] == LATE


def test_the_page_of_a_job_shows_its_ranks_and_their_timeline(job_folder, called, tmp_path):
    page = tmp_path / "job.html"
    ran = called("analyze", job_folder, "--no-cache", "--html", page, "--markdown", tmp_path / "job.md")
    written = page.read_text(encoding="utf-8")

    assert ran.code == 0
    assert "Rank 2 is late in every step" in written
    for asked in ("Ranks and waits", "Similar ranks", "Collectives and clocks"):
        assert asked in written
    assert "4 ranks of the job, all steps at low detail" in written
    assert "Rank 2 is late in every step" in (tmp_path / "job.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_tables_and_trace_of_a_job(job_folder, called, tmp_path):
    places = {
        "--csv": tmp_path / "csv",
        "--parquet": tmp_path / "parquet",
        "--perfetto": tmp_path / "t.pftrace",
    }
    named = [str(part) for pair in places.items() for part in pair]
    for _ in range(2):  # the second time over what is there
        assert called("analyze", job_folder, "--no-cache", *named).code == 0
    manifest = json.loads((tmp_path / "csv" / "manifest.json").read_text())
    assert manifest["source"] == f"{RANKS} exports"
    for told in manifest["tables"]:
        frame = pl.read_parquet(tmp_path / "parquet" / f"{told['name']}.parquet")
        assert (len(frame), frame.columns) == (told["rows"], [column["name"] for column in told["columns"]])
    meetings = pl.read_parquet(tmp_path / "parquet" / "meetings.parquet")
    assert (meetings["residence_ns"] == meetings["wait_ns"] + meetings["transfer_ns"]).all()
    assert set(meetings.filter("is_last", pl.col("step") > 0)["rank"]) == {LATE}
    late = pl.read_csv(tmp_path / "csv" / "late_units.csv")
    assert late.select("rank", "cause_wall", "reason").rows() == [(LATE, "compute", "slower-kernels")]
    assert (tmp_path / "t.pftrace").stat().st_size > 1_000


def test_one_query_reads_the_tables_of_many_jobs(job_folder, called, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "month").mkdir()
    for name in ("job-1", "job-2"):
        assert called("analyze", job_folder, "--parquet", f"month/{name}").code == 0
    page = (ROOT / "docs" / "many-ranks.md").read_text(encoding="utf-8")
    query, cluster = (block.body for block in find_blocks(page) if block.kind == "python")
    compile(cluster, "cluster.py", "exec")  # it needs Slurm
    names = {}
    exec(query, names)

    (row,) = names["lost"].rows(named=True)
    late = pl.read_parquet("month/job-1/late_units.parquet")
    assert (row["unit"], row["reason"], row["jobs"]) == ("rank", "slower-kernels", 2)
    assert row["saved_ms"] == pytest.approx(2 * late["saved_ns"].sum() / 1e6)


def test_missing_ranks_and_exports_left_out_are_on_the_first_screen(job_folder, called, tmp_path):
    for number in (0, 1, 3):
        shutil.copy(job_folder / f"run_rank{number}.sqlite", tmp_path)
    (tmp_path / "run_rank3.sqlite").write_bytes((tmp_path / "run_rank3.sqlite").read_bytes()[:9_000])
    ran = called("analyze", tmp_path, "--no-cache", "--keep-going", "--brief")
    shown = called("analyze", tmp_path, "--no-cache", "--keep-going").out

    assert ran.code == 0
    assert "run_rank3.sqlite is left out: " in " ".join(shown.split())
    assert "2 ranks of 4 not supplied (2, 3)" in " ".join(shown.split())


def test_the_tracks_of_ranks_are_on_one_clock(answer):
    drawn = job_tracks(rematch_ranks(answer))

    assert [track.name for track in drawn if track.parent is None] == [
        f"rank {rank}" for rank in range(RANKS)
    ]
    waits = [
        (track.slices["end_ns"] - track.slices["start_ns"]).filter(
            track.slices["name"] == f"waits for rank {LATE}"
        )
        for track in drawn
        if track.name == "collectives"
    ]
    assert [len(own) for own in waits] == [0 if rank == LATE else STEPS - 1 for rank in range(RANKS)]
    assert set(waits[0]) == {100_000}
    steps = [track.slices for track in drawn if track.name == "steps"]
    assert all((own["start_ns"][1:] == own["end_ns"][:-1]).all() for own in steps)
    assert earliest_ns(drawn) <= min(own["start_ns"][0] for own in steps)


def test_what_ranks_tell_together_is_told_again_by_the_answer_alone(job_folder):
    job = run_job(find_exports([job_folder]), Options(), lambda _: None)
    again = rematch_ranks(job.analysis)

    assert again.job == job.known.job
    assert_frame_equal(collective_lanes(again), collective_lanes(job.known))
    for name in ("meetings", "late_units"):
        assert_frame_equal(job_table(again, name), job_table(job.known, name))


def test_lanes_show_who_came_last(answer):
    drawn = job_report(answer, rematch_ranks(answer)).lanes

    assert drawn["member"].unique().sort().to_list() == list(range(RANKS))
    assert set(drawn["last"]) == {LATE}
    assert dict(drawn.select("member", "wait_ns").iter_rows())[LATE] == 0
    assert drawn.filter(pl.col("member") != LATE)["wait_ns"].to_list() == pytest.approx([100_000] * 3, abs=10)
    assert (drawn["end_ns"] - drawn["start_ns"] == drawn["wait_ns"] + drawn["transfer_ns"]).all()


def test_ranks_that_wait_say_so_and_the_late_one_moves(answer):
    owned = [{one.cause: one.typical_ns for one in rank.causes} for rank in answer.ranks]

    assert [one.get("communication/ep/peer-wait", 0) for one in owned] == pytest.approx(
        [100_000 * (rank != LATE) for rank in range(RANKS)], abs=10
    )
    assert [one["communication/ep/transfer"] for one in owned] == pytest.approx([100_000] * RANKS, abs=10)
    for rank in answer.ranks:
        assert sum(one.typical_ns for one in rank.causes) == rank.typical.step_ns
        profile = unpack_profile(rank.profile, "run")
        sums = profile.owned.group_by("step").agg(pl.col("owned_ns").sum()).sort("step")
        assert sums["owned_ns"].to_list() == [step.end_ns - step.start_ns for step in rank.steps]
    assert "transfer in " in answer.diagnosis.verdict
    assert "communication/ep/transfer" in {entry.cause for entry in answer.opportunities}
    assert not any(cause.endswith("unsplit") for fix in answer.fixes for cause in fix.causes)


def test_the_command_line_says_what_cannot_be_read(damaged, called):
    ran = called("analyze", damaged, "--no-cache")

    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "run_rank3.sqlite — " in ran.err
    assert "--keep-going" in ran.err


def test_folders_and_patterns_stand_for_their_exports(tmp_path):
    for name in ("r10.sqlite", "r9.sqlite", "notes.txt"):
        (tmp_path / name).touch()
    named = ["r9.sqlite", "r10.sqlite"]

    assert [path.name for path in find_exports([tmp_path])] == named
    assert [path.name for path in find_exports([tmp_path / "r*.sqlite"])] == named
    assert is_many([tmp_path])
    assert not is_many([tmp_path / "r9.sqlite"])
    assert is_many([tmp_path / "r*.sqlite"])
    for wrong, said in ((tmp_path / "x*", "matches no file"), (tmp_path / "empty", "holds no export")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=said):
            find_exports([wrong])


def test_a_record_of_a_captured_program_is_no_answer(tmp_path):
    record = tmp_path / "hook-node-rank-0-17.json"
    record.write_text("{}")

    assert is_many([tmp_path])
    with pytest.raises(
        InputError, match="holds the record of a capture, and neither its report nor its trace"
    ):
        find_exports([tmp_path])
    for name in ("run.json", "report-node.sqlite"):
        (tmp_path / name).touch()
        assert [path.name for path in find_exports([tmp_path])] == [name]
    assert record not in find_captures(str(tmp_path))

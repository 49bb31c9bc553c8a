"""Brief answers: few tokens, and no number that the full answer does not have."""

import json
import re
from dataclasses import replace

import polars as pl
import pytest

from tests.answered_once import write_json_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from tests.test_traces import EXPORTS, WITHOUT_DEVICE_OPERATIONS
from tests.tokens import MOST_TOKENS, count_tokens
from wallscope.compare.change_points import Bisection
from wallscope.jobs.answers import decode_analysis
from wallscope.model.advice import Precondition, Setting
from wallscope.model.capture import Finding, Severity
from wallscope.render.data import pack_brief, write_brief, write_brief_json, write_named_number
from wallscope.units import percent, write_gains
from wallscope.views.brief import brief_analysis, brief_breakdown, cut_sentences
from wallscope.views.brief_listings import brief_bisection, brief_history
from wallscope.views.history import HISTORY
from wallscope.views.statement import state_analysis

ANSWERED = [path for path in EXPORTS if path.stem not in WITHOUT_DEVICE_OPERATIONS]


def at(document, pointer):
    """The value at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        document = document[int(part) if isinstance(document, list) else part]
    return document


def as_brief(value):
    """A number of a full answer as brief ones round it."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


def assert_numbers_are_those_of(brief, full):
    """Each number of a brief answer is that of the full one at its place."""
    for pointer, value in brief.get("numbers", {}).items():
        assert value == as_brief(at(full, pointer)), pointer
    for row in brief.get("recommendations", ()):
        fix = at(full, row["evidence"])
        assert row["id"] == fix["id"]
        assert row.get("speedup_ceiling") == as_brief(fix["speedup_ceiling"])
        assert row.get("recoverable_ns", fix["recoverable_ns"]) == fix["recoverable_ns"]
        if "replay_step_ns" in row:
            assert row["replay_step_ns"] == fix["replay"]["step_ns"]
        needed = {one["system"] for one in fix["settings"][:1]} | {"environment", "launcher", "nsys"}
        count = sum(one["system"] in needed for one in fix["settings"])
        assert len(row.get("settings", ())) + row.get("more_settings", 0) == count
        statuses = [entry["status"] for entry in fix["preconditions"]]
        for part in filter(None, row.get("preconditions", "").split(", ")):
            count, _, status = part.partition(" ")
            assert int(count) == statuses.count("unknown" if status == "to check" else status)
    for name in ("causes", "answers", "changes"):
        for row in brief.get(name, ()):
            whole = at(full, row["evidence"])
            for key in row.keys() & whole.keys():
                assert row[key] == as_brief(whole[key]), (row["evidence"], key)


def assert_brief(text, name):
    full, analysis = json.loads(text), decode_analysis(text)
    brief = brief_analysis(analysis, (name,), 3)
    packed, written, shown = pack_brief(brief), write_brief_json(brief), write_brief(brief)

    assert count_tokens(written) < MOST_TOKENS
    assert count_tokens(shown) < MOST_TOKENS
    assert "\n" not in written.rstrip("\n")
    assert json.loads(written) == {**packed, "next": {"command": brief.next.command}}
    assert_numbers_are_those_of(packed, full)
    assert len(packed["numbers"]) == 5
    assert len(packed.get("recommendations", ())) == min(3, len(full["fixes"] or ()))
    told = state_analysis(analysis)
    of_job = "" if full["job"] is None else full["job"]["verdict"]
    assert packed["verdict"].startswith(told.opening)
    said = " ".join(" ".join((told.opening, *told.sentences, of_job)).split())
    assert said.startswith(packed["verdict"].rstrip("…"))
    numbers = "; ".join(write_named_number(place, at(full, place)) for place in packed["numbers"])
    assert f"numbers: {numbers}\n" in shown
    for row in packed.get("recommendations", ()):
        fix = at(full, row["evidence"])
        assert (write_gains(fix["speedup_ceiling"], fix["most_speedup"]) or "no bound known") in shown


def test_of_the_example_each_number_is_that_of_the_full_answer():
    assert_brief(write_json_once(EXAMPLE), EXAMPLE.name)


@pytest.mark.skipif(not EXPORTS, reason="no real exports here: ../shared/traces is absent")
@pytest.mark.parametrize("path", run_part(ANSWERED, of=9))
def test_of_real_exports_each_number_is_that_of_the_full_answer(path):
    assert_brief(write_json_once(path), path.name)


def test_a_wrong_number_is_noticed():
    text = write_json_once(EXAMPLE)
    packed = pack_brief(brief_analysis(decode_analysis(text), ("x.sqlite",), 3))
    planted = {**packed, "numbers": {**packed["numbers"], "/ranks/0/typical/step_ns": 51_084_443}}

    with pytest.raises(AssertionError, match="step_ns"):
        assert_numbers_are_those_of(planted, json.loads(text))


def test_details_and_rows_are_those_of_the_full_answer():
    text = write_json_once(EXAMPLE)
    full, analysis = json.loads(text), decode_analysis(text)
    packed = pack_brief(brief_analysis(analysis, ("x.sqlite",), 50, has_details=True))

    assert_numbers_are_those_of(packed, full)
    assert {row["id"] for row in packed["recommendations"]} == {fix["id"] for fix in full["fixes"]}
    assert "omitted" not in packed


def test_the_breakdown_sums_to_the_step():
    text = write_json_once(EXAMPLE)
    packed = pack_brief(brief_breakdown(decode_analysis(text), ("x.sqlite",), 50))
    step_ns, *walls = packed["numbers"].values()

    assert_numbers_are_those_of(packed, json.loads(text))
    assert sum(walls) == step_ns == sum(row["typical_ns"] for row in packed["causes"])
    assert packed["causes"] == sorted(packed["causes"], key=lambda row: -row["typical_ns"])


@pytest.mark.parametrize(
    ("command", "rows"),
    [
        ("kernels", "rows"),
        *(
            pytest.param(*one, marks=pytest.mark.slow)
            for one in (("steps", "rows"), ("ranges", "rows"), ("gaps", "rows"), ("whatif", "answers"))
        ),
    ],
)
def test_tables_and_questions_in_brief_are_those_in_full(command, rows, wallscope):
    full = json.loads(wallscope(command, EXAMPLE, "--json", "-").out)
    said = wallscope(command, EXAMPLE, "--brief", "--json", "-")
    packed = json.loads(said.out)

    assert said.code == 0
    assert count_tokens(said.out) < MOST_TOKENS
    assert count_tokens(wallscope(command, EXAMPLE, "--brief").out) < MOST_TOKENS
    assert_numbers_are_those_of(packed, full)
    every = full[rows] if isinstance(full, dict) else full
    assert len(packed[rows]) == 3
    assert packed["omitted"] == len(every) - 3
    if isinstance(full, list):
        for row, whole in zip(packed[rows], full, strict=False):
            numbers = {key: value for key, value in row.items() if not isinstance(value, str)}
            assert numbers == {key: as_brief(whole[key]) for key in numbers}
            assert {"duration_ns", "work_ns"} & row.keys()


def test_a_comparison_in_brief_is_that_in_full(wallscope, traces):
    sides = [traces / f"nsysai_mfu_{side}.sqlite" for side in ("before", "after")]
    full = json.loads(wallscope("diff", *sides, "--json", "-").out)
    said = wallscope("diff", *sides, "--brief", "--json", "-").out
    packed = json.loads(said)

    assert_numbers_are_those_of(packed, full)
    assert packed["verdict"].startswith(full["opening"])
    assert len(packed["changes"]) == 3
    assert count_tokens(said) < MOST_TOKENS


def test_what_cannot_be_compared_has_no_ratio_in_brief(wallscope, traces):
    sides = (traces / "cs336_zx_result.sqlite", traces / "llama3_real.sqlite")
    packed = json.loads(wallscope("diff", *sides, "--brief", "--json", "-").out)

    assert packed["verdict"].startswith("NOT COMPARABLE: ")
    assert packed["numbers"].keys() == {"/step/base_typical_ns", "/step/head_typical_ns"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "ep-overlap"),
        ("explain", "host/framework"),
        ("explain", "parallelism"),
        ("capture-help",),
        ("capture-help", "--profiler", "torch"),
        ("capture-help", EXAMPLE),
        ("advise", "--model", "deepseek-v3", "--gpus", "256", "--hardware", "h100"),
    ],
)
def test_texts_are_brief(arguments, wallscope):
    for more in ((), ("--json", "-")):
        said = wallscope(*arguments, "--brief", *more)

        assert said.code == 0
        assert count_tokens(said.out) < MOST_TOKENS
        assert "wallscope " in said.out


def test_contents_in_brief_are_those_in_full(wallscope):
    full, brief = wallscope("info", EXAMPLE, columns=200), wallscope("info", EXAMPLE, "--brief")

    assert brief.code == 0
    assert count_tokens(brief.out) < MOST_TOKENS
    for name in ("CUDA API calls", "kernels"):
        count = re.search(rf"  {name}: ([\d,]+)\n", brief.out)[1]
        assert re.search(rf"{count} +{name}\b", full.out)


def test_a_moment_in_brief_is_that_in_full(wallscope):
    full, brief = wallscope("at", EXAMPLE, "475ms"), wallscope("at", EXAMPLE, "475ms", "--brief")

    assert brief.code == 0
    assert "verdict: At 0.475000000 s: memory/allocator in step 5.\n" in brief.out
    lasts, start = re.search(r"memory/allocator: (\S+ \S+) from (\S+) s \(cudaFree\)", brief.out).groups()
    assert re.search(rf"{start} +{lasts} +memory/allocator +◀ cudaFree", full.out)
    assert count_tokens(brief.out) < MOST_TOKENS
    outside = wallscope("at", EXAMPLE, "1ms", "--brief")
    assert "outside the steps" in outside.out


def test_a_history_in_brief_has_the_last_commits():
    row = {**dict.fromkeys(HISTORY.names()), "testbed": "h100"}
    frame = pl.DataFrame(
        [
            {**row, "commit": "a" * 40, "median_ns": 50},
            {**row, "commit": "b" * 40, "median_ns": 60, "changed_ns": 10, "changed_grade": "likely"},
        ],
        schema=HISTORY,
    )
    told = {"h100": ["Likely: step rose by 20.0 % (10 ns) at bbbbbbbbbbbb."]}
    packed = pack_brief(brief_history(frame, "step", 1, told))
    of_two = pack_brief(brief_history(frame, "step", 1, {**told, "b200": ["No change among 9 commits."]}))

    assert packed["omitted"] == 1
    assert packed["rows"][0]["commit"] == "b" * 40
    assert packed["rows"][0]["median_ns"] == 60
    assert packed["verdict"] == f"2 rows of step, last first. {told['h100'][0]}"
    assert of_two["verdict"] == (
        f"2 rows of step, last first. On h100: {told['h100'][0]} On b200: No change among 9 commits."
    )


def test_a_bisection_in_brief_names_the_likeliest_commit_and_the_next_one():
    frame = pl.DataFrame(
        {
            "commit": ["a" * 40, "b" * 40, "c" * 40],
            "runs": [2, 0, 1],
            "mean_ns": [5.0e7, None, 6.0e7],
            "share": [0.0, 0.7, 0.3],
        }
    )
    found = Bisection(frame["share"].to_numpy(), 1, 2, 1, 10.0, 2.0)
    brief = brief_bisection(frame, found, "step", 1)

    assert brief.verdict == f"The change of +10 ns is in {'a' * 12}..{'c' * 12} (95 % certain)."
    assert brief.next.command == f"wallscope record RUN --commit {'b' * 12}"
    assert pack_brief(brief)["rows"] == [{"commit": "b" * 40, "runs": 0, "share": 0.7}]
    assert "runs 1; mean 60.0 ms; share 0.3\n" in write_brief(brief_bisection(frame, found, "step", 2))


@pytest.mark.parametrize(("runs", "least"), [([2, 0, 1], "c"), ([1, 0, 2], "a")])
def test_a_bisection_of_ends_that_may_be_alike_asks_for_more_runs_of_an_end(runs, least):
    frame = pl.DataFrame(
        {
            "commit": ["a" * 40, "b" * 40, "c" * 40],
            "runs": runs,
            "mean_ns": [5.0e7, None, 6.0e7],
            "share": [0.0, 0.7, 0.3],
        }
    )
    brief = brief_bisection(frame, Bisection(frame["share"].to_numpy(), 1, 2, 1, 10.0, 11.0), "step", 1)

    assert brief.verdict.startswith("Both ends may be alike")
    assert brief.next.command == f"wallscope record RUN --commit {least * 12}"


def test_the_cure_of_an_unknown_wall_is_that_of_the_gravest_finding():
    analysis = decode_analysis(write_json_once(EXAMPLE))
    findings = (
        Finding("no-steps", Severity.WARNING, "No step was found.", "Mark steps."),
        Finding("no-kernels", Severity.ERROR, "Almost no kernel ran.", "Capture while the GPU trains."),
    )
    unknown = replace(
        analysis,
        capture=replace(analysis.capture, findings=findings),
        diagnosis=replace(analysis.diagnosis, dominant_wall="unknown"),
    )
    first = brief_analysis(unknown, ("run.sqlite",), 3).unknown[0]

    assert (first.what, first.cure) == ("the dominant wall", "Capture while the GPU trains.")


def test_the_time_of_a_record_is_a_date_in_a_brief_history():
    row = {**dict.fromkeys(HISTORY.names()), "recorded_utc_ns": 1_795_219_236_607_348_906, "testbed": "bed"}
    shown = write_brief(brief_history(pl.DataFrame([row], schema=HISTORY), "step", 1, {"bed": []}))

    assert "testbed bed; recorded 2026-11-21 00:00:36 UTC\n" in shown


def test_every_command_that_answers_can_be_brief(wallscope):
    """What writes, serves or lists its own files answers nothing about a run."""
    without = {"capture", "demo", "record", "ledger", "convert", "cache", "install-recipe", "mcp"}
    top = wallscope("--help", columns=140).out
    commands = set(re.findall(r"^  ([a-z][a-z-]*)  +\S", top, re.MULTILINE))

    assert {"analyze", "diff", "history", "capture-help"} <= commands
    for command in commands:
        options = wallscope(command, "--help", columns=140).out
        assert ("--brief" in options and "--max-rows" in options) is (command not in without), command


def test_long_texts_of_an_export_leave_an_answer_brief():
    """Names and messages are as long as whoever wrote the program or the configuration likes."""
    words = "transformer layer number seventeen waits for the all-gather of parameters; " * 40
    analysis = decode_analysis(write_json_once(EXAMPLE))
    finding = Finding("records-lost", Severity.ERROR, words, words)
    blocked = Precondition("X-1", words, "unmet", words)
    fixes = tuple(
        replace(
            fix,
            title=words,
            settings=(Setting("pytorch", words, words), *fix.settings),
            preconditions=(blocked,),
        )
        for fix in analysis.fixes
    )
    long = replace(
        analysis,
        inputs=(replace(analysis.inputs[0], name=words),),
        capture=replace(analysis.capture, findings=(finding,) * 20),
        fixes=fixes,
        diagnosis=replace(
            analysis.diagnosis,
            verdict=words,
            confidence=replace(analysis.diagnosis.confidence, reasons=(words,) * 9),
        ),
    )
    brief = brief_analysis(long, ("x.sqlite",), 3)

    assert count_tokens(write_brief(brief)) < MOST_TOKENS
    assert count_tokens(write_brief_json(brief)) < MOST_TOKENS


def test_a_check_in_brief_fails_as_the_full_one(wallscope, tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("model:\n  tensor_model_parallel_size: 3\n  num_attention_heads: 8\n", encoding="utf-8")
    full, brief = wallscope("check-config", file), wallscope("check-config", file, "--brief")

    assert brief.code == full.code
    assert brief.out.startswith("run.yaml\nverdict: ")


def test_more_rows_are_listed_where_asked_for(wallscope):
    packed = json.loads(wallscope("analyze", EXAMPLE, "--brief", "--max-rows", "7", "--json", "-").out)

    assert len(packed["recommendations"]) == 7


@pytest.mark.parametrize("count", ["0", "51"])
def test_rows_have_limits(count, wallscope):
    assert wallscope("analyze", EXAMPLE, "--brief", "--max-rows", count).code == 2


def test_rows_without_brief_are_refused(wallscope):
    said = wallscope("gaps", EXAMPLE, "--max-rows", "7")

    assert said.code == 2
    assert said.err == "wallscope: --max-rows 7 — only limits brief answers — add --brief\n"


def test_a_brief_answer_leaves_other_outputs_as_they_are(wallscope, tmp_path):
    full = wallscope("analyze", EXAMPLE, "--markdown", tmp_path / "full.md")
    brief = wallscope("analyze", EXAMPLE, "--brief", "--markdown", tmp_path / "brief.md")

    assert full.code == brief.code == 0
    assert (tmp_path / "brief.md").read_bytes() == (tmp_path / "full.md").read_bytes()
    assert percent(0.2607667379533415) in brief.out


def test_sentences_are_cut_at_their_ends():
    assert cut_sentences("A. B. C.", 5) == "A. B."
    assert cut_sentences("no end", 4) == "no …"

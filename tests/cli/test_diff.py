import json
from dataclasses import asdict, replace

import jsonschema
import pytest

from fixtures.scenario import scenarios
from tests.compare.test_compare import assert_adds_up, steps
from tests.profile.random_profiles import profile_of, work
from wallscope.compare.compare import CompareOptions, Side, compare_sides
from wallscope.errors import ComparisonError, ProfileError
from wallscope.files import read_report
from wallscope.jobs.inputs import find_captures, resolve_runs
from wallscope.model.capture import Options
from wallscope.profile.codec import pack_profile


def test_diff_prints_the_verdict_and_writes_what_it_is_asked_for(wallscope, answers, tmp_path):
    outputs = ("--json", "diff.json", "--markdown", "diff.md", "--html", "diff.html", "--junit", "diff.xml")
    ran = wallscope("diff", answers / "base.json", answers / "head.json", *outputs)

    assert (ran.code, ran.err) == (0, "".join(f"Wrote {name}\n" for name in outputs[1::2]))
    assert ran.out.startswith(
        "base.json → head.json\nNVIDIA H100 · rank 3\n\n"
        "SLOWER: the typical step rose from 100.2 to 109.8 ms (+9.5 %); cause: "
    )
    found = json.loads((tmp_path / "diff.json").read_text())
    assert " ".join(ran.out.split()).partition("rank 3 ")[2].startswith(found["opening"])
    jsonschema.validate(found, json.loads(read_report("comparison.schema.json")))
    assert (found["schema"], found["verdict"]) == ("wallscope.comparison/1", "regression")
    assert (tmp_path / "diff.md").read_text().startswith("### wallscope: slower\n")
    assert (tmp_path / "diff.xml").read_text().startswith("<?xml")
    assert '<h1><span class="said-verdict regression">SLOWER</span>' in (tmp_path / "diff.html").read_text(
        encoding="utf-8"
    )


def test_a_failed_gate_exits_1_with_its_evidence_in_a_line(wallscope, answers, tmp_path):
    (tmp_path / "gates.txt").write_text("# limits of the team\ncommunication>50%  # of the step\n")
    gates = ("--fail-on", "step>3%", "--gates", "gates.txt")
    ran = wallscope("diff", answers / "base.json", answers / "head.json", *gates)

    assert ran.code == 1
    assert ran.err == (
        "wallscope: gate step>3% failed: step 100.2 ms → 109.8 ms, +9.5 % (95 % interval +5.1 % … +14.2 %)\n"
    )


def test_a_wrong_gate_of_a_file_is_named_with_its_line(wallscope, answers, tmp_path):
    (tmp_path / "gates.txt").write_text("step>3%\n\ncomunication\n")
    ran = wallscope("diff", answers / "base.json", answers / "head.json", "--gates", "gates.txt")

    assert ran.code == 2
    assert ran.err.startswith("wallscope: --gates gates.txt, line 3 — is not a gate — write step>3%, mean>3%")
    assert "comunication" not in ran.err


def test_analyze_has_gates_on_shares_of_the_step(called, tmp_path):
    path = tmp_path / "run.sqlite"
    next(scenario for scenario in scenarios() if scenario.name == "communication-partly-hidden").write(path)

    ran = called("analyze", path, "--fail-on", "communication>50%", "--fail-on", "unattributed>5%")
    assert ran.code == 1
    assert ran.err == (
        "wallscope: gate communication>50% failed: communication 5.0 µs, 55.6 % of the typical step\n"
    )
    refused = called("analyze", path, "--fail-on", "regression")
    assert refused.code == 2
    assert "needs two sides" in refused.err


@pytest.mark.parametrize(
    ("head", "options", "said"),
    [
        pytest.param("none.json", (), "none.json — cannot be read: ", id="no such file"),
        pytest.param("wrong.json", (), "is not an answer with profiles", id="no JSON"),
        pytest.param("other.json", (), "names no schema, so it is not wallscope.analysis/1", id="other JSON"),
        pytest.param("*.nothing", (), "no file fits it", id="pattern of nothing"),
        pytest.param("head.json", ("--margin", "x"), "is not a share", id="margin"),
        pytest.param("head.json", ("--fail-on", "x"), "is not a gate", id="gate"),
        pytest.param("head.json", ("--gates", "none"), "cannot be read", id="gates"),
        pytest.param("head.json", ("--json", "head.json"), "is an input", id="output is an input"),
        pytest.param("head.json", ("--rank", "9"), "is not in every run", id="rank"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_bad_usage_is_one_line_and_exit_2(head, options, said, called):
    ran = called("diff", "base.json", head, *options)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1
    assert said in ran.err


@pytest.fixture
def folder(answers, tmp_path, monkeypatch):
    """A folder to work in, with both answers and files that are none."""
    for name in ("base", "head"):
        (tmp_path / f"{name}.json").write_text((answers / f"{name}.json").read_text())
    (tmp_path / "wrong.json").write_text("{")
    (tmp_path / "other.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_of_captures_is_runs(answers, tmp_path):
    text = (answers / "base.json").read_text()
    for number in range(3):
        (tmp_path / f"run{number}.json").write_text(text)
        (tmp_path / f"run{number}.sqlite").write_text("the export of the same capture")

    paths = find_captures(str(tmp_path))
    assert [path.name for path in paths] == ["run0.json", "run1.json", "run2.json"]
    assert find_captures(str(tmp_path / "run*.json")) == paths
    assert [len(run) for run in resolve_runs(paths, Options(), lambda _: None)] == [1, 1, 1]


def test_ranks_with_different_numbers_of_runs_are_refused(answers, tmp_path):
    answer = json.loads((answers / "base.json").read_text())
    (tmp_path / "a.json").write_text(json.dumps(answer))
    other = profile_of("other", steps(9))
    stored = pack_profile(replace(other, header=replace(other.header, rank=5)))
    answer["ranks"][0]["profile"] = {"schema": stored.schema, "data": stored.data}
    for name in ("b.json", "c.json"):
        (tmp_path / name).write_text(json.dumps(answer))

    with pytest.raises(ComparisonError, match="different numbers of captures"):
        resolve_runs(find_captures(str(tmp_path)), Options(), lambda _: None)


def test_an_answer_of_another_version_is_one_line(answers, tmp_path):
    answer = json.loads((answers / "base.json").read_text())
    answer["ranks"][0]["profile"] = {"schema": "wallscope.profile/7", "data": ""}
    (tmp_path / "new.json").write_text(json.dumps(answer))

    with pytest.raises(
        ProfileError, match=r"is wallscope.profile/7, this wallscope reads wallscope.profile/2"
    ):
        resolve_runs((tmp_path / "new.json",), Options(), lambda _: None)


@pytest.mark.slow
def test_the_real_pair_got_slower_on_the_host(traces, called):
    ends = ("nsysai_mfu_before.sqlite", "nsysai_mfu_after.sqlite")
    sides = [Side(name, resolve_runs((traces / name,), Options(), lambda _: None)) for name in ends]
    found = compare_sides(sides[0], sides[1], CompareOptions())

    assert_adds_up(found)
    assert 1.13 < found.step.head_median_ns / found.step.base_median_ns < 1.16
    assert found.verdict in {"regression", "inconclusive"}
    assert max(found.deltas.walls, key=lambda row: row.delta_ns).wall == "host"
    ran = called("diff", *(traces / name for name in ends))
    said = ran.out.replace("\n", " ")
    assert (
        "INCONCLUSIVE: the typical repetition of the kernel sequence rose from 16.9 to 19.2 ms (+13.6 %)"
        in said
    )
    assert "Cause:" not in said  # the interval of each wall contains no change
    assert "faster" not in ran.out.lower()


@pytest.fixture(scope="module")
def in_turn(answers, tmp_path_factory):
    """Answers of four pairs on a machine that drifts by 3 % a pair; the second of each is 3 % slower."""
    folder = tmp_path_factory.mktemp("in-turn")
    bare = json.loads((answers / "base.json").read_text(encoding="utf-8"))
    named = []
    for pair in range(4):
        for number, factor in enumerate((1.0, 1.03)):
            of = profile_of(
                f"{pair}{number}", steps(20, factor * 1.03**pair, 2 * pair + number + 1, 0.002), work()
            )
            bare["ranks"][0]["profile"] = json.loads(json.dumps(asdict(pack_profile(of))))
            path = folder / f"{pair}{number}.json"
            path.write_text(json.dumps(bare), encoding="utf-8")
            named.append(str(path))
    return named


def test_pairs_find_what_drift_hides(in_turn, called):
    paired = called("diff", "--paired", *in_turn, "--json", "-", "--fail-on", "step>2%")
    found = json.loads(paired.out)
    assert (paired.code, found["verdict"]) == (1, "regression")
    assert (found["step"]["paired"], found["step"]["base_runs"]) == (True, 4)
    assert found["step"]["ratio_low"] == pytest.approx(1.03, abs=0.006)

    two = json.loads(called("diff", "--paired", *in_turn[:4], "--json", "-").out)["step"]
    assert two["run_noise_source"] == "assumed"
    assert two["ratio_high"] - two["ratio_low"] > 2 * (
        found["step"]["ratio_high"] - found["step"]["ratio_low"]
    )
    assert "4 pairs of runs" in called("diff", "--paired", *in_turn).out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(("a", "b", "c"), "is a third side", id="a third side"),
        pytest.param(("--paired", "a", "b", "c"), "needs two or more pairs", id="half a pair"),
        pytest.param(("--paired", "a", "b"), "needs two or more pairs", id="one pair"),
        pytest.param(("--paired", "a", "b", "c", "d", "--store", "x"), "not commits", id="a store"),
    ],
)
def test_bad_pairs_are_refused(called, arguments, said):
    ran = called("diff", *arguments)

    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_a_capture_given_twice_is_no_pair(in_turn, called):
    ran = called("diff", "--paired", *in_turn[:2], in_turn[0], in_turn[3])

    assert ran.code == 2
    assert "one capture is given twice" in ran.err


def test_what_would_decide_is_told(in_turn, called):
    ran = called("diff", in_turn[0], in_turn[1], "--json", "-")
    step = json.loads(ran.out)["step"]

    assert step["runs_to_decide"] is not None
    more = step["runs_to_decide"] - 1
    assert f"Capture {more} more run" in called("diff", in_turn[0], in_turn[1]).out

"""Broken and hostile inputs: an answer that holds, or one clear line; the whole table is a benchmark."""

import json
import shutil
import sys
from dataclasses import asdict
from itertools import islice

import pytest

from benchmarks import faults, judging, published
from benchmarks.faults import Tried
from benchmarks.inputs import Input, good_inputs, inputs
from benchmarks.judging import Ending, Outcome, analyze_once, is_alone, judged, judged_both_ways
from fixtures.mutation import MUTATIONS
from fixtures.mutation.file_bytes import BYTE_MUTATIONS
from tests.conftest import run_part
from wallscope import pipeline
from wallscope.model.capture import Options
from wallscope.render.markdown import code, escape

QUICK = [
    *(
        (subject, kind)
        for subject in MUTATIONS
        if subject not in {"export", "job", "comparison"}
        for kind in MUTATIONS[subject]
    ),
    *(("export", kind) for kind in BYTE_MUTATIONS),
]

FOUND = [
    ("export", "bits flipped in a page's head", 3, Ending.REFUSED),
    ("export", "hostile names", 11, Ending.ANSWERED),
    ("job", "no plain file", 0, Ending.REFUSED),
    ("store", "object that is elsewhere", 2, Ending.REFUSED),
    ("store", "record: value replaced", 16, Ending.REFUSED),
    ("export", "blobs", 62, Ending.ANSWERED),
    ("export", "extreme times", 97, Ending.ANSWERED),
    ("export", "extreme values", 17, Ending.ANSWERED),
    ("job", "all changed alike", 34, Ending.REFUSED),
    ("job", "all changed alike", 102, Ending.ANSWERED),
    ("store", "no plain file", 33, Ending.REFUSED),
    ("store", "record: number replaced", 31, Ending.REFUSED),
    ("store", "record: value replaced", 121, Ending.REFUSED),
    ("answer", "profile: value replaced", 183, Ending.REFUSED),
    ("trace", "bits flipped", 6, Ending.ANSWERED),
    ("trace", "extreme numbers", 21, Ending.ANSWERED),
    ("comparison", "one side: all at one moment", 2, Ending.ANSWERED),
    ("export", "rows lost", 9, Ending.ANSWERED),
    ("trace", "letters changed", 9, Ending.ANSWERED),
]
"""Inputs that once broke something, by subject, kind and seed, and how they end now."""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return good_inputs(tmp_path_factory.mktemp("good"))


def contents(path):
    """The bytes of a file; of a folder what lies in it, by name."""
    if path.is_file():
        return path.read_bytes()
    return {
        str(one.relative_to(path)): one.read_bytes() if one.is_file() else None for one in path.rglob("*")
    }


def outcome(good, one):
    return judged(one.write(good, good["export"][0].parent), one.subject, one.seed)


@pytest.mark.parametrize("named", run_part(QUICK, name="-".join, of=4))
def test_a_broken_input_is_answered_or_refused_in_one_line(good, named):
    found = outcome(good, Input(*named, 7))

    assert found.ending in {Ending.ANSWERED, Ending.REFUSED}, found.text


@pytest.mark.parametrize("known", run_part(FOUND, name=lambda one: "-".join(map(str, one)), of=3))
def test_what_once_broke_something_ends_well(good, known):
    subject, kind, seed, ending = known
    found = outcome(good, Input(subject, kind, seed))

    assert found.ending is ending, found.text


@pytest.mark.parametrize(
    ("subject", "kind"),
    [("gates", "letters changed"), ("kernel rules", "no Unicode"), ("job", "file emptied")],
)
def test_a_process_of_its_own_ends_alike(good, subject, kind):
    one = Input(subject, kind, 7)
    here = outcome(good, one)
    both = judged_both_ways(one.write(good, good["export"][0].parent), subject, 7)

    assert both.ending is here.ending
    assert both.text.partition(" — ")[2] == here.text.partition(" — ")[2]


@pytest.mark.parametrize("apart", [(0, "", ""), (2, "", "wallscope: gates.txt — is too long — cut it")])
def test_a_process_of_its_own_that_ends_otherwise_is_a_fault(good, monkeypatch, apart):
    monkeypatch.setattr(judging, "_run_process", lambda _: apart)
    path = Input("gates", "no Unicode", 7).write(good, good["export"][0].parent)

    assert judged_both_ways(path, "gates", 7).ending is Ending.BROKEN


def test_one_of_eighty_inputs_has_a_process_of_its_own():
    alone = [is_alone(one.subject, one.kind, one.seed) for one in islice(inputs(), 20_000)]

    assert sum(alone) == pytest.approx(250, rel=0.2)


def test_what_no_mutation_changed_is_analyzed_once(good, monkeypatch, tmp_path):
    unchanged, other = good["comparison"][0] / "base.sqlite", tmp_path / "base.sqlite"
    shutil.copyfile(good["export"][1], other)
    analyzed = []
    monkeypatch.setattr(
        pipeline, "analyze_capture", lambda path, *_, **how: analyzed.append((path, how)) or path
    )
    analyze_once([unchanged])
    copy = tmp_path / "copy" / "base.sqlite"
    copy.parent.mkdir()
    shutil.copyfile(unchanged, copy)
    for path in (unchanged, copy, other, other):
        pipeline.analyze_capture(path, Options(), print, with_details=False)
    pipeline.analyze_capture(copy, Options(), print, with_details=True)

    assert [path for path, _ in analyzed] == [unchanged, other, copy]


def test_of_what_a_mutation_changed_the_last_two_are_kept(monkeypatch, tmp_path):
    changed = [tmp_path / f"rank{number}.sqlite" for number in range(3)]
    for number, path in enumerate(changed):
        path.write_bytes(bytes([number]))
    analyzed = []
    monkeypatch.setattr(pipeline, "analyze_capture", lambda path, *_, **__: analyzed.append(path) or path)
    analyze_once(())
    for path in (*changed[:2], *changed[:2], changed[2], changed[2], changed[0]):
        pipeline.analyze_capture(path, Options(), print)

    assert analyzed == [*changed, changed[0]]


@pytest.mark.slow
def test_three_hundred_broken_inputs_are_answered_or_refused_in_one_line(good):
    tried = [(one, outcome(good, one)) for one in islice(inputs(), 1_000, 1_300)]

    assert [(one, found.text) for one, found in tried if found.ending is Ending.BROKEN] == []
    assert {found.ending for _, found in tried} == {Ending.ANSWERED, Ending.REFUSED}


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal.jsonl"


def written(one, ending):
    return f"{json.dumps(asdict(one) | {'ending': ending, 'text': '', 'cpu_seconds': 0.1})}\n"


def test_a_run_that_was_stopped_goes_on_and_tries_again_what_was_broken(journal, monkeypatch, capsys):
    first, second, third = islice((one for one in inputs() if one.subject == "kernel rules"), 3)
    cut = written(third, "answered")[:20]
    journal.write_text(written(first, "answered") + written(second, "broken") + cut, encoding="utf-8")
    tried = []

    def trying(chosen, *_):
        tried.extend(chosen)
        return [Tried(one, Outcome(Ending.REFUSED), 0.1) for one in chosen]

    monkeypatch.setattr(faults, "try_all", trying)
    arguments = ["--subject", "kernel rules", "--inputs", "3", "--journal", str(journal)]
    monkeypatch.setattr(sys, "argv", ["faults", *arguments])
    assert faults.main() == 1
    assert tried == [third]

    tried.clear()
    monkeypatch.setattr(sys, "argv", ["faults", *arguments, "--again"])
    assert faults.main() == 0
    assert tried == [second, third]
    assert "| all | 3 | 1 | 2 | 0 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        pytest.param("a\x1b[2J", "holds", id="terminal"),
        pytest.param("a\u202eb", "holds", id="right to left"),
    ],
)
def test_letters_that_are_obeyed_are_found(text, fault):
    with pytest.raises(published.HarmfulError, match=fault):
        published.check_text(text, "standard output")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("page.html", "<img src=x>"),
        ("page.html", "<p onclick='x()'>"),
        ("page.html", "<a href='javascript:x()'>"),
        ("page.html", "<script>x()</script>"),
        ("page.md", "<script>x()</script>"),
        ("page.md", "a\u200bb"),
        ("page.md", "`x` <script>x()</script> `y`"),
        ("page.md", "\\\\<img src=x>"),
        ("tables", "name\n=1+1\n"),
        ("tables", "name,other\nx\n"),
    ],
)
def test_what_acts_is_found(name, text, tmp_path):
    checks = {"page.html": published.check_page, "page.md": published.check_markdown}
    path = tmp_path / name
    if name == "tables":
        path.mkdir()
        (path / "steps.csv").write_text(text, encoding="utf-8")
    else:
        path.write_text(text, encoding="utf-8")

    with pytest.raises(published.HarmfulError):
        checks.get(name, published.check_csv)(path)


def test_what_markdown_parts_from_its_sign_is_no_fault(tmp_path):
    path = tmp_path / "page.md"
    shown = escape("@all ::error:: $x https://x.invalid <script>"), code("`<img src=x>`")
    path.write_text("\n".join(shown), encoding="utf-8")

    published.check_markdown(path)

    assert "\u200b" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("subject", MUTATIONS)
def test_the_good_inputs_are_answered(good, subject):
    found = []
    for chosen in good[subject]:
        path = good["export"][0].parent / f"unchanged-{chosen.name}" / chosen.name
        path.parent.mkdir()
        (shutil.copytree if chosen.is_dir() else shutil.copyfile)(chosen, path)
        found.append(judged(path, subject, 0))

    if subject == "scheduler file":  # nobody listens
        assert "cannot be reached" in found.pop().text
    assert found == [Outcome(Ending.ANSWERED)] * len(found)


def test_an_input_of_each_kind_differs_from_the_good_one(good):
    same = [
        (subject, kind)
        for subject, kinds in MUTATIONS.items()
        for kind in kinds
        if all(
            contents(Input(subject, kind, seed).write(good, good["export"][0].parent))
            == contents(good[subject][seed % len(good[subject])])
            for seed in range(4)
        )
    ]

    assert same == []


def test_steps_that_take_no_time_when_replayed_have_no_replay(good):
    assert outcome(good, Input("export", "one id for all", 11)) == Outcome(Ending.ANSWERED)

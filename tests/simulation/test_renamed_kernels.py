"""Kernels under names that nobody knows: what could communicate is never taken for compute."""

import random
import shutil
import sqlite3
import string
from contextlib import closing
from functools import cache

import polars as pl
import pytest

from fixtures.simulation.less_rows import rename_kernels
from fixtures.simulation.program import NULL_STREAM, Collective, SyncDevice
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import all_to_all, alone, gemm
from fixtures.simulation.truth import truths
from fixtures.simulation.verdict import verdict
from fixtures.simulation.wait_story import change_rows
from fixtures.simulation.writing import write_run
from tests.answered_once import analyze_once
from tests.conftest import run_part
from tests.shipped_example import EXAMPLE
from wallscope.model.capture import Options
from wallscope.model.schemas import NAMES
from wallscope.pipeline import analyze
from wallscope.trace.kernel_classes import classify_kernels, load_shipped_kernel_rules

SEEDS = (0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2)))


def read(path):
    """The answer about an export."""
    return analyze(path, Options(), lambda _: None)


def walls(path):
    """The dominant wall, and what each wall owns of the typical step of the rank that is shown."""
    return walls_of(read(path))


def walls_of(found):
    """The same of an answer."""
    return found.diagnosis.dominant_wall, found.ranks[found.diagnosis.rank_index].typical.walls


def rename(path, to, new, of_class):
    """A copy of an export whose kernels of a class bear other names: `new` makes one of an old one."""
    shutil.copy(path, to)
    with closing(sqlite3.connect(to)) as export, export:
        names = export.execute(
            "SELECT DISTINCT id, value FROM StringIds WHERE id IN"
            " (SELECT demangledName FROM CUPTI_ACTIVITY_KIND_KERNEL)"
        ).fetchall()
        numbered = pl.DataFrame(
            [(row, name) for row, (_, name) in enumerate(names)], schema=NAMES, orient="row"
        )
        kinds = classify_kernels(numbered, load_shipped_kernel_rules())["class"].to_list()
        for (number, name), kind in zip(names, kinds, strict=True):
            if kind == of_class:
                export.execute("UPDATE StringIds SET value = ? WHERE id = ?", (new(name), number))
    return to


def drop_ranges(path):
    """Leave no range of NCCL in an export."""
    with closing(sqlite3.connect(path)) as export, export:
        texts = "COALESCE(text, (SELECT value FROM StringIds WHERE id = textId))"
        export.execute(f"DELETE FROM NVTX_EVENTS WHERE {texts} LIKE '%nccl%'")
    return path


def word(source):
    """A word that means nothing."""
    return "".join(source.choices("bcdfghjkmnpqrstvwxz" + string.digits, k=8))


def in_namespace(source):
    """Puts a kernel into a namespace that nobody knows."""

    def new(name):
        void = "void " if name.startswith("void ") else ""
        return f"{void}n{word(source)}::{name.removeprefix('void ')}"

    return new


def as_nonsense(source):
    """Gives a kernel a name that nobody knows."""
    return lambda _: f"k{word(source)}_{word(source)}(void *)"


@pytest.mark.parametrize("seed", SEEDS)
def test_the_verdict_on_the_example_does_not_depend_on_namespaces(tmp_path, seed):
    renamed = rename(EXAMPLE, tmp_path / "n.sqlite", in_namespace(random.Random(seed)), "communication")

    assert walls(renamed) == walls_of(analyze_once(EXAMPLE))


@pytest.mark.parametrize("seed", SEEDS)
def test_ranges_tell_what_names_do_not(tmp_path, seed):
    renamed = rename(EXAMPLE, tmp_path / "n.sqlite", as_nonsense(random.Random(seed)), "communication")

    found = read(renamed)
    assert walls_of(found) == walls_of(analyze_once(EXAMPLE))
    assert "communication-inferred" in {one.code for one in found.capture.findings}


@pytest.mark.parametrize("seed", SEEDS)
def test_without_them_the_wall_is_unknown_and_the_kernels_are_named(tmp_path, seed):
    renamed = rename(EXAMPLE, tmp_path / "n.sqlite", as_nonsense(random.Random(seed)), "communication")
    found = read(drop_ranges(renamed))
    shown = found.ranks[found.diagnosis.rank_index]

    assert found.diagnosis.dominant_wall == "unknown"
    assert shown.unmatched_kernels[0].name.split("(")[0] in found.diagnosis.verdict.split(". ")[0]
    assert "--kernels FILE" in found.diagnosis.verdict
    assert shown.causes[0].cause != "compute/unrecognized"
    assert {one.cause for one in shown.causes} >= {"unattributed/unrecognized-kernel"}
    assert "name-kernels" in {fix.id for fix in (*found.fixes, *found.capture_advice)}


@cache
def told():
    """Stories with their runs, by the wall that the true owners of their time lead to."""
    found = {}
    for story in stories():
        played = run(story.program)
        ranks = truths(played, is_split=False)
        if ranks[story.rank].steady:
            dominant = verdict(ranks[story.rank]).dominant
            found.setdefault(dominant, []).append((story, played))
    return found


COMMUNICATING = [story.name for story, _ in told()["communication"]]
COMPUTING = [
    story.name
    for story, played in told()["compute"]
    if len(played.ranks) == 1
    and not any(isinstance(one.action, Collective) for one in played.ranks[0].operations)
]


def written(name, folder):
    """The export of a story."""
    story, played = next(one for held in told().values() for one in held if one[0].name == name)
    write_run(played, folder / "story.sqlite", has_os_calls=story.has_os_calls)
    return folder / "story.sqlite"


@pytest.mark.parametrize("name", run_part(COMMUNICATING, name=str, of=9))
def test_the_wall_of_a_story_is_the_same_or_unknown(name, tmp_path):
    path, source = written(name, tmp_path), random.Random(name)
    before = walls(path)

    assert walls(rename(path, tmp_path / "n.sqlite", in_namespace(source), "communication")) == before
    nonsense = rename(path, tmp_path / "w.sqlite", as_nonsense(source), "communication")
    assert walls(nonsense)[0] in {before[0], "unknown"}


@pytest.mark.parametrize("name", run_part([*COMMUNICATING, *COMPUTING], name=str, of=9))
def test_no_wall_is_sure_where_no_name_is_known(name, tmp_path):
    path = drop_ranges(written(name, tmp_path))
    change_rows(path, rename_kernels()[1])

    assert read(path).diagnosis.confidence.level == "low"


ON_ANY_STREAM = {
    "the stream of compute": (all_to_all(200, stream=NULL_STREAM),),
    "another one, in the order of the host": (SyncDevice(), all_to_all(200), SyncDevice()),
}


@pytest.mark.parametrize(("world", "wall"), [("8", "unknown"), (None, "compute")])
@pytest.mark.parametrize("sends", ON_ANY_STREAM.values(), ids=ON_ANY_STREAM)
def test_without_any_name_the_stream_of_a_kernel_decides_nothing(tmp_path, sends, world, wall):
    """Of several ranks the wall is unknown, whatever stream they communicate on; else it is never sure."""
    path = tmp_path / "run.sqlite"
    write_run(run(alone(lambda _: (gemm(100), *sends, gemm(50), SyncDevice()))), path)
    known = f"UPDATE META_DATA_CAPTURE SET value = 'WORLD_SIZE=\"{world}\"'"
    gone = "DELETE FROM META_DATA_CAPTURE"
    change_rows(drop_ranges(path), [f"{known if world else gone} WHERE value LIKE 'WORLD_SIZE=%'"])
    change_rows(path, rename_kernels()[1])
    found = read(path).diagnosis

    assert (found.dominant_wall, found.confidence.level) == (wall, "low")


@pytest.mark.parametrize("name", run_part(COMPUTING, name=str))
def test_a_lone_device_computes_whatever_its_kernels_are_called(name, tmp_path):
    path = written(name, tmp_path)
    renamed = rename(path, tmp_path / "n.sqlite", as_nonsense(random.Random(name)), "compute")
    found = read(renamed)

    assert walls_of(found)[0] == walls(path)[0]
    assert "unattributed/unrecognized-kernel" not in {one.cause for one in found.ranks[0].causes}
    assert ". Kernels with unrecognized names take " in found.diagnosis.verdict

"""Broken and hostile inputs without end: good ones of each subject, each mutated in one way."""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from benchmarks.judging import BASE, HEAD
from fixtures.folders import folder_of
from fixtures.mutation import MUTATIONS, mutated
from fixtures.mutation.good import CONFIGURATIONS, GATES, RULES, SCHEDULER
from fixtures.scenario import scenarios
from fixtures.simulation.plans import random_plan
from fixtures.simulation.program import Program
from fixtures.simulation.random_programs import planned_program
from fixtures.simulation.run import run
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from wallscope.model.capture import Options
from wallscope.model.profile import RECORD_SCHEMA, Record, RecordedRank, Testbed
from wallscope.pipeline import analyze
from wallscope.render.data import write_json
from wallscope.store import Store, object_name

PROGRAMS = ((3, "3.25.0"), (5, "3.28.1"), (6, "3.24.0"))
"""Seeds of random programs, and the schema that their exports are written in."""
_STEPS = 4
_JOB_SEED = 5
_QUICK = {"table folder", "answer", "configuration", "kernel rules", "gates", "scheduler file"}
_RECORDED_UTC_NS = 1_790_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Input:
    """One mutated input: what it is, which good one it was, what was done to it."""

    subject: str
    kind: str
    seed: int

    def write(self, good: Mapping[str, Sequence[Path]], folder: Path) -> Path:
        """Make it, alone in a new folder."""
        chosen = good[self.subject][self.seed % len(good[self.subject])]
        path = Path(tempfile.mkdtemp(dir=folder)) / chosen.name
        mutated(chosen, path, self.subject, self.kind, self.seed)
        return path


def inputs() -> Iterator[Input]:
    """Endless inputs, each kind in turn; those that are judged in no time come twice as often."""
    for turn in count():
        for subject, kinds in MUTATIONS.items():
            seeds = (2 * turn, 2 * turn + 1) if subject in _QUICK else (turn,)
            for kind in kinds:
                for seed in seeds:
                    yield Input(subject, kind, seed)


def good_inputs(folder: Path) -> dict[str, list[Path]]:
    """The inputs that are mutated, by subject."""
    exports = [folder / f"run{number}.sqlite" for number in range(len(PROGRAMS))]
    for path, (seed, schema) in zip(exports, PROGRAMS, strict=True):
        write_run(run(_program(seed)), path, has_os_calls=True, schema=schema)
    small = folder / "small.sqlite"
    next(one for one in scenarios() if one.name == "dispatcher").write(small)
    answers = [folder / "run0.json", folder / "run1.json"]
    for export, answer in zip(exports, answers, strict=False):
        answer.write_text(write_json(analyze(export, Options(), lambda _: None)), encoding="utf-8")
    configurations = [folder / name for name in CONFIGURATIONS]
    for path in configurations:
        path.write_text(CONFIGURATIONS[path.name], encoding="utf-8")
    for name, text in (("rules.toml", RULES), ("gates.txt", GATES), ("scheduler.json", SCHEDULER)):
        (folder / name).write_text(text, encoding="utf-8")
    return {
        "export": exports,
        "table folder": [folder_of(small, ".parquet"), folder_of(small, ".arrow")],
        "job": [_job(folder / "job")],
        "job of traces": [_job_of_traces(folder / "traces")],
        "comparison": [_comparison(folder / "comparison", exports[0])],
        "store": [_store(folder / "store", exports[0])],
        "answer": answers,
        "configuration": configurations,
        "kernel rules": [folder / "rules.toml"],
        "gates": [folder / "gates.txt"],
        "scheduler file": [folder / "scheduler.json"],
        "trace": [write_torch_run(run(_program(seed)), folder / f"trace{seed}.json") for seed, _ in PROGRAMS],
    }


def _program(seed: int) -> Program:
    """A random program, shortened: time goes into what differs from input to input."""
    return planned_program(replace(random_plan(seed), steps=_STEPS, layers=1, microbatches=1))


def _job(folder: Path) -> Path:
    """Two ranks that exchange tokens, an export each."""
    played = run(_program(_JOB_SEED))
    folder.mkdir()
    for rank in range(len(played.ranks)):
        write_run(played, folder / f"rank{rank}.sqlite", ranks=[rank])
    return folder


def _job_of_traces(folder: Path) -> Path:
    """The same two ranks, a trace each."""
    played = run(_program(_JOB_SEED))
    folder.mkdir()
    for rank in range(len(played.ranks)):
        write_torch_run(played, folder / f"rank{rank}.json", rank=rank)
    return folder


def _comparison(folder: Path, export: Path) -> Path:
    """Two sides, which are alike."""
    folder.mkdir()
    for name in ("base", "head"):
        shutil.copyfile(export, folder / f"{name}.sqlite")
    return folder


def _store(folder: Path, export: Path) -> Path:
    """A run, recorded under two commits."""
    analysis = analyze(export, Options(), lambda _: None)
    rank = analysis.ranks[0]
    assert rank.profile is not None  # noqa: S101  # each analysed rank has one
    steps = [step.end_ns - step.start_ns for step in rank.steps]
    recorded = RecordedRank(0, 0, object_name(rank.profile), sorted(steps)[len(steps) // 2], len(steps), {})
    testbed = Testbed("NVIDIA H100 80GB HBM3", 1, 1, "step", "train_step", {"model": "moe"})
    for place, commit in enumerate((BASE, HEAD)):
        record = Record(RECORD_SCHEMA, commit, testbed, _RECORDED_UTC_NS + place, (recorded,), 0)
        Store(folder).add(record, {object_name(rank.profile): rank.profile})
    return folder

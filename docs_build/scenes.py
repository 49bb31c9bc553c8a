"""Files that pictures and the gallery of the documentation show, all generated: exports, a trace, a store.

The pages and the screens are made of them by the commands themselves.
"""

import contextlib
import io
import os
import random
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import wallscope.cli
from fixtures.simulation.program import Pop, Program, Push, Work
from fixtures.simulation.run import run
from fixtures.simulation.stories import stories
from fixtures.simulation.story import US, Story, alone, gemm
from fixtures.simulation.torch_writing import write_torch_run
from fixtures.simulation.writing import write_run
from wallscope.cli import FAILED
from wallscope.demo import example

STORIES = {
    "host-bound": "data loading",
    "memory-bound": "activations offloaded and reloaded",
    "communication-bound": "slow peer",
}
"""Exports of one wall each, and the simulated programs behind them."""
PAGES = {
    "example": "wallscope analyze run.sqlite --html example.html",
    "host-bound": "wallscope analyze host-bound.sqlite --html host-bound.html",
    "communication-bound": "wallscope analyze communication-bound.sqlite --html communication-bound.html",
    "memory-bound": "wallscope analyze memory-bound.sqlite --html memory-bound.html",
    "job": "wallscope analyze runs/ --html job.html",
    "comparison": 'wallscope diff base.sqlite head.sqlite --fail-on "step>3%" --html comparison.html',
    "whatif": "wallscope whatif run.sqlite --hide communication:ep --scale think=0.5"
    " --sweep communication=1,0.75,0.5,0.25,0 --html whatif.html",
    "trace": "wallscope analyze trace.json.gz --html trace.html",
}
"""The pages that pictures are taken of, and the commands that write them."""
_CONFIGURATION = """\
model:
  tensor_model_parallel_size: 2
  expert_model_parallel_size: 8
  moe_token_dispatcher_type: alltoall
"""
_KERNEL_TIMES_US = (300, 300, 300, 300, 300, 330, 330, 330, 330, 330)
_LOADING_US = (900, 20)
_NOISE = 0.003
_SLOW_STEP_MS = 49.5
_SEED = 20261130


def write_scenes(folder: Path) -> None:
    """Write all files into an empty folder."""
    example.write_example(folder / "run.sqlite")
    example.write_example(folder / "head.sqlite", example.SLOWER_COUNTS_READ_NS)
    (folder / "base.sqlite").symlink_to("run.sqlite")
    (folder / "runs").mkdir()
    example.write_ranks({folder / "runs" / f"rank-{setup.rank}.sqlite": setup for setup in example.JOB})
    known = {story.name: story for story in stories()}
    for name, story in STORIES.items():
        _write_story(known[story], folder / f"{name}.sqlite")
    write_torch_run(run(known["autograd thread"].program), folder / "trace.json.gz")
    (folder / "run.yaml").write_text(_CONFIGURATION, encoding="utf-8")
    (folder / "run.log").write_text("".join(_write_log()), encoding="utf-8")
    _write_stores(folder)


def _write_story(story: Story, path: Path) -> None:
    write_run(run(story.program), path, has_os_calls=story.has_os_calls)


def _write_log() -> Iterator[str]:
    """Yield lines as Megatron-LM writes them."""
    for step in range(1, 21):
        fields = (
            f" [2026-11-30 12:00:{step:02d}] iteration {step:8d}/     100",
            f"consumed samples: {step * 64:12d}",
            f"elapsed time per iteration (ms): {_SLOW_STEP_MS:.1f}",
            "learning rate: 1.000000E-04",
            "global batch size:    64",
            "lm loss: 2.500000E+00",
            "loss scale: 1.0",
            "number of skipped iterations:   0",
            "number of nan iterations:   0 |",
        )
        yield " | ".join(fields) + "\n"


def _write_stores(folder: Path) -> None:
    """Record ten commits, of which the sixth is slower, and two between which a fix was applied."""
    drawn = random.Random(_SEED)  # noqa: S311  # no secret
    for kernel_us in _KERNEL_TIMES_US:
        _record(folder, "perf", [_compute(kernel_us * drawn.gauss(1, _NOISE))], drawn)
    for loading_us in _LOADING_US:
        runs = [_load(loading_us, 300 * drawn.gauss(1, _NOISE)) for _ in range(3)]
        _record(folder, "fixed", runs, drawn)


def _record(folder: Path, store: str, programs: list[Program], drawn: random.Random) -> None:
    """Record runs of programs under a commit that is drawn."""
    names = [f"{store}-{number}.sqlite" for number in range(len(programs))]
    for name, program in zip(names, programs, strict=True):
        write_run(run(program), folder / name)
    commit = f"{drawn.getrandbits(160):040x}"
    call(
        f"wallscope record {' '.join(names)} --commit {commit} --store {store} --label model=moe-30b", folder
    )
    for name in names:
        (folder / name).unlink()


def _compute(kernel_us: float) -> Program:
    return alone(lambda _: (gemm(kernel_us), gemm(200), gemm(kernel_us)))


def _load(loading_us: float, kernel_us: float) -> Program:
    """A program that loads a batch on the host before it computes."""
    return alone(
        lambda _: (
            Push("DataLoader.__next__"),
            Work(round(loading_us * US)),
            Pop(),
            gemm(kernel_us),
            gemm(200),
        )
    )


class Terminal(io.StringIO):
    """A stream that says that a terminal shows it, so that commands use colors."""

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True


def call(command: str, folder: Path, columns: int = 80) -> tuple[str, str]:
    """Run a command of wallscope in this process, which is much faster than in one of its own.

    Args:
        command: as a user types it.
        folder: where it runs; its cache is next to that.
        columns: width of the terminal.

    Returns:
        What it prints to standard output, with escape sequences for colors, and to standard error.

    Raises:
        ChildProcessError: the exit code is neither 0 nor that of a gate that failed.
    """
    kept = dict(os.environ), sys.argv
    out, errors = Terminal(), io.StringIO()
    os.environ |= {
        "WALLSCOPE_CACHE_DIR": str(folder.parent / "cache"),
        "WALLSCOPE_NSYS": "",
        "COLUMNS": str(columns),
        "TERM": "xterm-256color",
    }
    os.environ.pop("NO_COLOR", None)
    sys.argv = shlex.split(command)
    code: object = 0
    try:
        with (
            contextlib.chdir(folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(errors),
        ):
            wallscope.cli.main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        os.environ.clear()
        os.environ.update(kept[0])
        sys.argv = kept[1]
    if code not in {0, FAILED}:
        raise ChildProcessError(f"{command}: exit code {code}: {errors.getvalue()}")
    return out.getvalue(), errors.getvalue()

"""Digests of what wallscope writes, compared with a stored baseline: a refactoring changes none of them.

    python -m tests.digests                               compare everything
    python -m tests.digests --only 'story*' --kinds json  compare some
    python -m tests.digests --keep DIR                    also write the outputs, to compare two trees
    python -m tests.digests --write                       store the baseline

Inputs are the real exports of ../shared/traces, the shipped example, the scenarios, the stories of the
simulator and small jobs. Each is given to the commands of the command line, which run in this process or in
those of a pool, without the cache. A digest is the SHA-256 of one kind of output of one input. What depends
on the machine is left out: folders, compressed bytes (their content counts), and the plotly library in pages.

Only the command line and `fixtures` are used, so the script is the same before and after modules move.
"""

import argparse
import contextlib
import fnmatch
import gc
import hashlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
import time
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT.parent / "shared" / "traces"
BASELINE = Path(__file__).with_suffix(".tsv")
REAL, FOUND = "real/", ("*.sqlite", "*.parquetdir", "*.arrowdir", "*.nsys-rep")
COLUMNS = 80
PAIRS = (
    ("cs336_zx_2.7B", "cs336_zx_2.7B_clean"),
    ("cs336_zx_2.7B_nvtx", "cs336_zx_2.7B_compile_graph"),
    ("cs336_zx_result", "cs336_athrun"),
    ("fuser_h200", "fuser_h200_b"),
    ("mobilenet_infer_single", "mobilenet_infer_overlap"),
    ("mpi_v100_4rank", "mpi_v100_4rank_managed"),
    ("nersc_sc21_baseline", "nersc_sc21_8workers"),
    ("nersc_sc21_dali", "nersc_sc21_dali_amp"),
    ("nersc_sc22_4gpu_base", "nersc_sc22_4gpu_nobcast"),
    ("nersc_sc23_dali_bf16", "nersc_sc23_dali_bf16_fused_jit"),
    ("nsysai_mfu_before", "nsysai_mfu_after"),
    ("nsysai_healthy_1pct_SYNTHETIC", "nsysai_healthy_judged_SYNTHETIC"),
    ("ompoffload_2021_report2", "ompoffload_2021_report2_exp"),
    ("t4_streams_old", "t4_streams"),
)
TOGETHER = (
    ("mpi_v100_4rank", "mpi_v100_4rank_managed"),
    ("nsysai_mfu_before", "nsysai_mfu_after"),
    ("cs336_zx_2.7B", "cs336_zx_2.7B_clean"),
)
"""Real exports that are compared, and that are given as one job."""
EMBEDDED = re.compile(r'"schema": "(wallscope\.profile[^"]*)",\s*"data": "([A-Za-z0-9+/=]+)"')
PLOTLY = re.compile(r'(<script[^>]* id="plotly">)[^<]*(</script>)')
TIMELINES = re.compile(r'(<script[^>]* id="timelines">)([^<]*)(</script>)')
SCRIPT_DIGEST = re.compile(r"'sha256-[A-Za-z0-9+/=]+'")
SQLITE_VERSION = slice(96, 100)
"""Where the header of a database tells which SQLite wrote it."""

Files = dict[str, bytes]


@dataclass
class Given:
    """An input: the folder in which commands run, what they are given there, a folder for results."""

    name: str
    folder: Path
    files: tuple[str, ...]
    results: Path
    count: int = 0
    known: dict[str, Files] = field(default_factory=dict)

    def run(self, *arguments: str, results: Iterable[str] = ()) -> Files:
        """Run one command; `OUT` in its arguments is an empty folder, `results` lie there or are absent.

        Returns:
            What the command printed, as `said`, and the results; of a folder, each file.
        """
        out = self.results / str(self.count)
        self.count += 1
        out.mkdir(parents=True)
        wanted = [argument.replace("OUT", str(out)) for argument in arguments]
        made = {"said": self._normal(ran(wanted, self.folder).encode(), out)}
        for result in results:
            place = out / result
            made |= {str(file.relative_to(out)): self._content(file, out) for file in files_of(place)}
        return made

    def answer(self) -> Files:
        """The outputs of the answer, without its tables."""
        if "answer" not in self.known:
            pages = ("--json", "OUT/answer.json", "--markdown", "OUT/answer.md", "--html", "OUT/answer.html")
            self.known["answer"] = self.run(
                "analyze", *self.files, "--no-cache", *pages,
                results=("answer.json", "answer.md", "answer.html"),
            )  # fmt: skip
        return self.known["answer"]

    @property
    def answer_file(self) -> Path:
        """The answer as JSON, as it was written; of the first command that ran."""
        assert self.answer()
        return self.results / "0" / "answer.json"

    def parts(self) -> Files:
        """The outputs that are made from more than the answer."""
        if "parts" not in self.known:
            self.known["parts"] = self.run(
                "analyze", *self.files, "--no-cache",
                "--json", "OUT/answer.json", "--csv", "OUT/csv", "--perfetto", "OUT/trace",
                results=("answer.json", "csv", "trace"),
            )  # fmt: skip
        return self.known["parts"]

    def _content(self, file: Path, out: Path) -> bytes:
        raw = file.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            return zlib.decompress(raw, wbits=31)
        return self._normal(raw, out)

    def _normal(self, raw: bytes, out: Path) -> bytes:
        text = raw.decode("utf-8", "surrogateescape")
        for folder, name in ((out, "OUT"), (self.results, "OUT"), (self.folder, "IN")):
            text = text.replace(str(folder), name)
        text = EMBEDDED.sub(lambda found: f'"schema": "{found[1]}", "data": {inflated(found[2])}', text)
        text = PLOTLY.sub(r"\1\2", text)
        text = TIMELINES.sub(lambda found: f"{found[1]}{inflated(found[2])}{found[3]}", text)
        return SCRIPT_DIGEST.sub("", text).encode("utf-8", "surrogateescape")


def inflated(base64: str) -> str:
    return zlib.decompress(b64decode(base64)).decode("utf-8", "backslashreplace")


def files_of(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(file for file in place.rglob("*") if file.is_file())
    return [place] if place.exists() else []


def ran(arguments: list[str], folder: Path) -> str:
    """Run the command line in this process; its exit code, standard output and standard error."""
    from wallscope.__main__ import main

    out, error, argv = io.StringIO(), io.StringIO(), sys.argv
    code: object = 0
    sys.argv = ["wallscope", *arguments]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            main()
    except SystemExit as left:
        code = left.code or 0
    finally:
        sys.argv = argv
        gc.unfreeze()
    return f"exit code {code}\n{out.getvalue()}--- standard error\n{error.getvalue()}"


# --- kinds of outputs -----------------------------------------------------------------------------


def chosen(made: Files, *names: str) -> Files:
    """Outputs by name; a name of a folder stands for all of its files."""
    return {file: content for file, content in made.items() if file.split("/")[0] in names}


def table(command: str, *options: str) -> Callable[[Given], Files]:
    return lambda given: given.run(
        command, *given.files, *options, "--json", "OUT/rows.json", "--csv", "OUT/rows.csv",
        results=("rows.json", "rows.csv"),
    )  # fmt: skip


def moments(given: Given) -> Files:
    """The state at moments of the session: a third into the first and the last step of the first rank."""
    rows = given.run("steps", *given.files, "--json", "OUT/steps.json", results=("steps.json",))
    steps = json.loads(rows.get("steps.json", b"[]")) or [{"start_ns": 0, "end_ns": 3}]
    made = {}
    for name, step in (("first", steps[0]), ("last", steps[-1])):
        at_ns = step["start_ns"] + (step["end_ns"] - step["start_ns"]) // 3
        made[name] = given.run("at", *given.files, f"{at_ns}ns")["said"]
    return made


def questions(given: Given) -> Files:
    """Steps played again: the usual questions, and some named ones with a sweep."""
    results = ("answers.json", "answers.html")
    outputs = ("--json", "OUT/answers.json", "--html", "OUT/answers.html", "--accept-error", "1000")
    usual = given.run("whatif", *given.files, *outputs, results=results)
    asked = ("--scale", "compute=0.5", "--without", "synchronisation", "--hide", "communication")
    sweep = ("--sweep", "launch=0,0.5,2", "--no-interference")
    named = given.run("whatif", *given.files, *asked, *sweep, *outputs, results=results)
    return {
        f"{way}-{name}": made[name] for way, made in (("usual", usual), ("named", named)) for name in made
    }


def compared(given: Given) -> Files:
    """The answer compared with itself, or the two sides of a comparison."""
    is_pair = len(given.files) == 2 and given.name.startswith("diff/")
    sides = given.files if is_pair else (str(given.answer_file), str(given.answer_file))
    results = ("diff.json", "diff.md", "diff.html")
    outputs = [part for name in results for part in (f"--{KIND_OF[name[5:]]}", f"OUT/{name}")]
    return given.run("diff", *sides, "--no-cache", "--override", *outputs, results=results)


KIND_OF = {"json": "json", "md": "markdown", "html": "html"}
KINDS: dict[str, Callable[[Given], Files]] = {
    "json": lambda given: chosen(given.answer(), "answer.json"),
    "text": lambda given: chosen(given.answer(), "said"),
    "markdown": lambda given: chosen(given.answer(), "answer.md"),
    "html": lambda given: chosen(given.answer(), "answer.html"),
    "csv": lambda given: chosen(given.parts(), "csv", "said", "answer.json"),
    "perfetto": lambda given: chosen(given.parts(), "trace"),
    "diff": compared,
    "info": lambda given: given.run("info", *given.files),
    "steps": table("steps"),
    "kernels": table("kernels"),
    "ranges": table("ranges"),
    "gaps": table("gaps", "--top", "50"),
    "at": moments,
    "whatif": questions,
}
OF_JOBS = ("json", "text", "markdown", "html", "csv", "perfetto", "diff")
OF_OPTIONS: dict[str, tuple[str, ...]] = {
    "selected-steps": ("--steps", "2-4"),
    "selected-rank": ("--rank", "3"),
    "selected-time": ("--time", "0.2-0.3"),
    "reader-sqlite": ("--reader", "sqlite"),
    "step-range": ("--step-range", "training_step"),
    "stream-axis": ("--stream", "23=ep"),
    "throughput": ("--tokens-per-step", "4096", "--flops-per-step", "1e12", "--unprofiled-step-ms", "20"),
    "gates": ("--fail-on", "step>3%", "--fail-on", "communication>5%", "--fail-on", "host/framework>2us"),
}


# --- inputs ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Input:
    """What is given to commands: files that are there, or made by a function; which kinds of outputs."""

    name: str
    kinds: tuple[str, ...]
    real: tuple[str, ...] = ()
    made: Callable[[Path], tuple[str, ...]] | None = None
    options: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """How large it is; of what is made, a guess."""
        return (
            sum((TRACES / file).stat().st_size for file in self.real if (TRACES / file).exists()) or 1 << 20
        )


@cache
def inputs() -> dict[str, Input]:
    """All inputs, by name."""
    found = [*real_inputs(), *made_inputs()]
    return {one.name: one for one in found}


def real_inputs() -> list[Input]:
    every = sorted(path.name for pattern in FOUND for path in TRACES.glob(pattern))
    alone = [Input(f"{REAL}{name}", tuple(KINDS), (name,)) for name in every]
    pairs = [
        Input(f"diff/{base}..{head}", ("diff",), (f"{base}.sqlite", f"{head}.sqlite"))
        for base, head in PAIRS
        if {f"{base}.sqlite", f"{head}.sqlite"} <= set(every)
    ]
    jobs = [
        Input(f"job/{left}+{right}", OF_JOBS, (f"{left}.sqlite", f"{right}.sqlite"))
        for left, right in TOGETHER
        if {f"{left}.sqlite", f"{right}.sqlite"} <= set(every)
    ]
    return [*alone, *pairs, *jobs]


def made_inputs() -> list[Input]:
    from fixtures.scenario import scenarios
    from fixtures.simulation.stories import stories

    found = [Input("example", tuple(KINDS), made=example)]
    found += [
        Input(f"example/{name}", ("json", "text", "markdown"), made=example, options=options)
        for name, options in OF_OPTIONS.items()
    ]
    found += [
        Input(f"scenario/{one.name}", tuple(KINDS), made=partial_of(scenario, one.name))
        for one in scenarios()
    ]
    found += [Input(f"story/{one.name}", tuple(KINDS), made=partial_of(story, one.name)) for one in stories()]
    found += [
        Input("ranks/bulk", tuple(KINDS), made=bulk),
        Input("job/bulk", OF_JOBS, made=bulk_job),
        Input("job/simulated", OF_JOBS, made=simulated_job),
        Input("diff/communication-halved", ("diff",), made=communication_halved),
    ]
    return found


def partial_of(made: Callable[[Path, str], tuple[str, ...]], name: str) -> Callable[[Path], tuple[str, ...]]:
    return lambda folder: made(folder, name)


def example(folder: Path) -> tuple[str, ...]:
    from fixtures.example import write_example

    write_example(folder / "moe_step.sqlite")
    return ("moe_step.sqlite",)


def scenario(folder: Path, name: str) -> tuple[str, ...]:
    from fixtures.scenario import scenarios

    (one,) = (one for one in scenarios() if one.name == name)
    one.write(folder / f"{name}.sqlite")
    return (f"{name}.sqlite",)


def story(folder: Path, name: str) -> tuple[str, ...]:
    from fixtures.simulation.run import run
    from fixtures.simulation.stories import stories
    from fixtures.simulation.writing import write_run

    (one,) = (one for one in stories() if one.name == name)
    write_run(run(one.program), folder / "story.sqlite", has_os_calls=one.has_os_calls)
    return ("story.sqlite",)


def bulk(folder: Path) -> tuple[str, ...]:
    from fixtures.bulk import write_bulk

    write_bulk(folder / "bulk.sqlite", kernels=4_000, ranks=4, steps=6)
    return ("bulk.sqlite",)


def bulk_job(folder: Path) -> tuple[str, ...]:
    from fixtures.bulk import write_bulk_job

    names = tuple(f"bulk_rank{rank}.sqlite" for rank in range(3))
    write_bulk_job([folder / name for name in names], kernels=1_500, steps=6)
    return names


def simulated_job(folder: Path) -> tuple[str, ...]:
    from tests.jobs.simulated import write_job

    write_job(folder / "job")
    return ("job",)


def communication_halved(folder: Path) -> tuple[str, ...]:
    from fixtures.simulation import changed
    from fixtures.simulation.run import run
    from fixtures.simulation.stories import stories
    from fixtures.simulation.writing import write_run

    (one,) = (one for one in stories() if one.name == "exposed all-to-all")
    write_run(run(one.program), folder / "base.sqlite")
    write_run(run(changed.communication(one.program, 0.5)), folder / "head.sqlite")
    return ("base.sqlite", "head.sqlite")


# --- digests --------------------------------------------------------------------------------------


def outputs_of(name: str, kinds: tuple[str, ...]) -> dict[str, Files]:
    """The outputs of one input, by kind."""
    one = inputs()[name]
    with tempfile.TemporaryDirectory() as temporary:
        folder = TRACES if one.real else Path(temporary, "in").resolve()
        if one.made is not None:
            folder.mkdir()
            made = one.made(folder)
            for file in files_of(folder):
                pin(file)
        files = one.real or made
        given = Given(name, folder, (*files, *one.options), Path(temporary, "out").resolve())
        return {kind: KINDS[kind](given) for kind in kinds}


def pin(database: Path) -> None:
    """Let a database say the same of its SQLite on every machine."""
    with database.open("r+b") as file:
        file.seek(SQLITE_VERSION.start)
        file.write(bytes(SQLITE_VERSION.stop - SQLITE_VERSION.start))


def digest(files: Files) -> str:
    whole = hashlib.sha256()
    for name, content in sorted(files.items()):
        whole.update(f"{name} {len(content)}\n".encode())
        whole.update(content)
    return whole.hexdigest()


def digested(name: str, kinds: tuple[str, ...], keep: Path | None) -> tuple[str, dict[str, str], float]:
    """Digests of one input by kind, and the CPU time that took; its outputs are kept where wanted."""
    begun_s = time.process_time()
    found = outputs_of(name, kinds)
    if keep is not None:
        for kind, files in found.items():
            place = keep / name / kind
            shutil.rmtree(place, ignore_errors=True)
            for file, content in files.items():
                (place / file).parent.mkdir(parents=True, exist_ok=True)
                (place / file).write_bytes(content)
    return name, {kind: digest(files) for kind, files in found.items()}, time.process_time() - begun_s


def prepare() -> None:
    """Let nothing of the user's surroundings count, nor what earlier runs kept."""
    for variable in [name for name in os.environ if name.startswith("WALLSCOPE_")]:
        del os.environ[variable]
    os.environ |= {
        "WALLSCOPE_CACHE_DIR": os.devnull,
        "COLUMNS": str(COLUMNS),
        "PATH": os.devnull,
        "TZ": "UTC",
    }
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    zlib.compress = partial(compressed_quickly, zlib.compress)


def compressed_quickly(compress: Callable[[bytes, int], bytes], raw: bytes, *_: int) -> bytes:
    """Compress with little effort, in place of `zlib.compress`: what counts is the content."""
    return compress(raw, 1)


def all_digests(
    wanted: dict[str, tuple[str, ...]], jobs: int, keep: Path | None
) -> dict[tuple[str, str], str]:
    """Digests of the wanted kinds of inputs; the largest inputs are begun first."""
    order = sorted(wanted, key=lambda name: (-inputs()[name].size_bytes, name))
    found: dict[tuple[str, str], str] = {}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        tasks = [pool.submit(digested, name, wanted[name], keep) for name in order]
        for count, task in enumerate(as_completed(tasks), 1):
            name, digests, took_s = task.result()
            found |= {(name, kind): value for kind, value in digests.items()}
            sys.stderr.write(f"{count}/{len(order)}  {took_s:5.1f} s  {name}\n")
    return found


def read_baseline() -> dict[tuple[str, str], str]:
    lines = BASELINE.read_text(encoding="utf-8").splitlines() if BASELINE.exists() else []
    return {(name, kind): value for name, kind, value in (line.split("\t") for line in lines)}


def write_baseline(digests: dict[tuple[str, str], str]) -> None:
    text = "".join(f"{name}\t{kind}\t{value}\n" for (name, kind), value in sorted(digests.items()))
    BASELINE.write_text(text, encoding="utf-8")


def main() -> None:
    """Compare digests with the baseline, or store them there."""
    parser = argparse.ArgumentParser("python -m tests.digests", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", metavar="PATTERN", action="append", help="inputs, as 'story/*'; repeatable")
    parser.add_argument("--kinds", metavar="KIND,…", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write the outputs there")
    parser.add_argument("--write", action="store_true", help="store the digests as the baseline")
    parser.add_argument("--list", action="store_true", help="list the inputs")
    options = parser.parse_args()
    patterns = options.only or ["*"]
    kinds = tuple(KINDS) if options.kinds is None else tuple(options.kinds.split(","))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f"--kinds: {', '.join(sorted(unknown))}: none of {', '.join(KINDS)}")

    def asked(name: str, kind: str) -> bool:
        return kind in kinds and any(fnmatch.fnmatchcase(name, f"*{pattern}*") for pattern in patterns)

    wanted = {
        name: own
        for name, one in inputs().items()
        if (own := tuple(kind for kind in one.kinds if asked(name, kind)))
    }
    if options.list:
        sys.stdout.write("".join(f"{name}\n" for name in sorted(wanted)))
        return
    keep = None if options.keep is None else options.keep.absolute()
    found = all_digests(wanted, options.jobs, keep)
    stored = read_baseline()
    if options.write:
        write_baseline(stored | found)
        sys.stdout.write(f"{len(found)} digests of {len(wanted)} inputs stored in {BASELINE.name}\n")
        return
    known = {key: value for key, value in stored.items() if asked(*key)}
    different = sorted(key for key in known.keys() & found.keys() if known[key] != found[key])
    for name, kind in different:
        sys.stdout.write(f"different: {name}: {kind}\n")
    for name, kind in sorted(found.keys() - known.keys()):
        sys.stdout.write(f"not in the baseline: {name}: {kind}\n")
    absent = sorted({name for name, _ in known.keys() - found.keys()})
    for name in absent:
        sys.stdout.write(f"not compared, absent here: {name}\n")
    same = len(known.keys() & found.keys()) - len(different)
    sys.stdout.write(
        f"{same} digests the same, {len(different)} different, {len(absent)} inputs not compared\n"
    )
    sys.exit(1 if different or found.keys() - known.keys() else 0)


if __name__ == "__main__":
    main()

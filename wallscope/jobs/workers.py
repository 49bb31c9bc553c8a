"""Exports analysed side by side in processes; a worker that dies takes nothing but its own export with it.

Each process holds one export at a time, so that memory is bounded by the largest one and their number.
What is done goes into the cache: a job that was interrupted goes on where it was.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context

from wallscope.cache import Cache
from wallscope.errors import InputError, OptionError, WallscopeError
from wallscope.jobs.remote import Source, answer_to, fetched
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Progress
from wallscope.model.options import Options
from wallscope.tuning import tune

Outcome = Analysis | WallscopeError
One = Callable[[Source, Options], Outcome]
_MOST_TRIES = 2
_THREADS = "POLARS_MAX_THREADS"


def analysed(source: Source, options: Options, cache: Cache | None = None) -> Outcome:
    """The answer about one export, out of the cache if it is there, or why there is none.

    An answer in JSON is itself.
    """
    from wallscope.answers.given import ANSWER, given_answer  # noqa: PLC0415  # workers load it, not who starts them

    try:
        if source.suffix != ANSWER:
            return answer_to(source, options, _silent, cache).analysis
        if options != Options(reader=options.reader):
            raise OptionError(
                f"{source} — is an answer: what selects or explains comes too late — analyse its export again"
            )
        with fetched(source) as path:
            return given_answer(path)
    except WallscopeError as error:
        return error


def outcomes(
    paths: Sequence[Source], options: Options, jobs: int, progress: Progress, one: One = analysed
) -> Iterator[tuple[int, Outcome]]:
    """What became of each export, as it comes; `jobs` processes work at once, none beside this one for 1."""
    if jobs == 1 or len(paths) == 1:
        for place, path in enumerate(paths):
            progress(f"export {place + 1} of {len(paths)}: {path.name}")
            yield place, one(path, options)
    else:
        with _threads(jobs):
            found = _side_by_side(paths, options, min(jobs, len(paths)), one)
            for count, (place, outcome) in enumerate(found, start=1):
                progress(f"{count} of {len(paths)} exports done")
                yield place, outcome


def _side_by_side(
    paths: Sequence[Source], options: Options, jobs: int, one: One
) -> Iterator[tuple[int, Outcome]]:
    """Outcomes as they come. Those whose pool broke are tried again, each alone: one of them broke it.

    Each process has its next export waiting, so that none is idle while an outcome is looked at.
    """
    pending = list(range(len(paths)))
    suspects: list[int] = []
    while pending:
        pool = _pool(jobs)
        running: dict[Future[Outcome], int] = {}
        try:
            while pending or running:
                while pending and len(running) < 2 * jobs:
                    place = pending[0]
                    running[pool.submit(one, paths[place], options)] = place
                    del pending[0]
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    place = running[future]
                    outcome = future.result()
                    del running[future]
                    yield place, outcome
        except BrokenProcessPool:
            suspects += sorted(running.values())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
    for place in suspects:
        yield place, _alone(paths[place], options, one)


def _pool(jobs: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=tune)


def _alone(path: Source, options: Options, one: One) -> Outcome:
    for _ in range(_MOST_TRIES):
        with _pool(1) as pool:
            try:
                return pool.submit(one, path, options).result()
            except BrokenProcessPool:
                continue
    return InputError(
        f"{path} — its worker was killed {_MOST_TRIES} times — give it more memory, or fewer --jobs"
    )


@contextmanager
def _threads(jobs: int) -> Iterator[None]:
    """Share the processors: the workers read the number of their threads when they start."""
    before = os.environ.get(_THREADS)
    os.environ[_THREADS] = before or str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_THREADS]


def _silent(_: str) -> None:
    """Nobody watches a worker."""

"""Exports analyzed side by side: in processes of this machine, or on a Dask cluster that is there already.

Each process handles one export at a time, so memory is bounded by the largest export and the number of
processes. If a worker dies, only its own export is lost. Results go into the cache, so an interrupted job
continues. The cluster is the engine of `nsys recipe`, on Slurm and others. Exports of a lost worker go to the
others. An export whose workers are killed repeatedly is tried once more after the others, and then named.
"""

import json
import logging
import os
import signal
import socket
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from pkgutil import resolve_name
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import urlsplit

from wallscope._version import __version__
from wallscope.cache_folder import Cache
from wallscope.errors import InputError, OptionError, WallscopeError, find_kinds
from wallscope.extras import name_install_command
from wallscope.files import is_of_package
from wallscope.jobs.inputs import Source, fetch_source, is_answer, load_or_analyze_source
from wallscope.model.analysis import Analysis
from wallscope.model.capture import Options, Progress
from wallscope.process_tuning import POLARS_THREADS, tune_process
from wallscope.records import dataclass
from wallscope.units import duration
from wallscope.user_files import MOST_LIST_BYTES, read_user_bytes


@dataclass(frozen=True, slots=True)
class DrawnAnalysis:
    """The answer about one export, with its part of the timeline of the job (`encode_overviews`)."""

    analysis: Analysis
    timeline: bytes | None


Outcome = Analysis | DrawnAnalysis | WallscopeError
One = Callable[[Source, Options], Outcome]
_MOST_TRIES = 2
_ENDING_S = 2.0
"""How long a worker may take to remove what it was writing."""


def analyze_export(
    source: Source, options: Options, cache: Cache | None = None, *, with_timeline: bool = False
) -> Outcome:
    """Return the answer about one export, out of the cache if it is there, or why there is none.

    An answer in JSON is itself; it has no timeline.
    """
    from wallscope.jobs.answers import read_answer  # noqa: PLC0415  # workers load it, not who starts them

    try:
        if not is_answer(source):
            made = load_or_analyze_source(
                source, options, _ignore_progress, cache, with_timeline=with_timeline
            )
            return DrawnAnalysis(made.analysis, made.timeline) if with_timeline else made.analysis
        if options != Options(reader=options.reader):
            raise OptionError(
                f"{source} — is a finished answer, which options cannot change — give its export, or leave"
                " these options out"
            )
        with fetch_source(source) as path:
            return read_answer(path)
    except WallscopeError as error:
        return error
    except OSError as error:
        if is_of_package(error.filename):
            raise
        return InputError(
            f"{source} — cannot be read: {error.strerror or 'unknown'} — check the path and its disk"
        )
    except MemoryError:
        return InputError(f"{source} — does not fit into memory — raise the limit, or capture fewer steps")


def analyze_in_processes(
    paths: Sequence[Source], options: Options, jobs: int, progress: Progress, one: One = analyze_export
) -> Iterator[tuple[int, Outcome]]:
    """Yield what became of each export, as it comes, by `jobs` processes at once; by this one alone for 1."""
    if jobs == 1 or len(paths) == 1:
        for place, path in enumerate(paths):
            progress(f"export {place + 1} of {len(paths)}: {path.name}")
            yield place, one(path, options)
    else:
        with _threads(jobs):
            found = _analyze_side_by_side(paths, options, min(jobs, len(paths)), one)
            for count, (place, outcome) in enumerate(found, start=1):
                progress(f"{count} of {len(paths)} exports done")
                yield place, outcome


@dataclass(slots=True)
class _Worker:
    """A process that analyzes one export after the other; it alone holds the other end of its pipe."""

    process: "SpawnProcess"
    pipe: "Connection[Any, Any]"
    place: int = -1

    def give(self, place: int, path: Source) -> None:
        """Let it analyze the export at a place."""
        self.place = place
        with suppress(OSError):  # it was killed: what waits for its reply sees that
            self.pipe.send(path)

    def take(self, path: Source) -> Outcome | None:
        """Return what it sent about its export, `None` if it was killed.

        Raises:
            RuntimeError: of what the analysis raised, with its traceback as note.
        """
        try:
            reply: Outcome | _Raised = self.pipe.recv()
        except (EOFError, OSError):
            return None
        if isinstance(reply, _Raised):
            error = RuntimeError(f"{path.name}: {reply.text}")
            error.add_note(reply.traceback)
            raise error
        return reply


@dataclass(frozen=True, slots=True)
class _Raised:
    """What the analysis of an export raised in its worker, a defect of this program."""

    text: str
    traceback: str


def _analyze_side_by_side(
    paths: Sequence[Source], options: Options, jobs: int, one: One
) -> Iterator[tuple[int, Outcome]]:
    """Yield outcomes as they come; an export whose worker was killed is tried once more after the others.

    If this ends early, as by a signal, the workers end too, whatever they send. No reply is waited for that
    cannot come.
    """
    pending = deque(range(len(paths)))
    tries = Counter[int]()
    workers: list[_Worker] = []
    try:
        while pending or workers:
            while pending and len(workers) < jobs:
                workers.append(_start_worker(one, options))
                workers[-1].give(place := pending.popleft(), paths[place])
            for pipe in wait([worker.pipe for worker in workers]):
                worker = next(worker for worker in workers if worker.pipe is pipe)
                place = worker.place
                outcome = worker.take(paths[place])
                if outcome is None or not pending:
                    workers.remove(worker)
                    _end_workers([worker])
                else:
                    worker.give(following := pending.popleft(), paths[following])
                if outcome is None:
                    tries[place] += 1
                    if tries[place] < _MOST_TRIES:
                        pending.append(place)
                        continue
                    outcome = InputError(
                        f"{paths[place]} — its worker was killed {_MOST_TRIES} times — give it more memory,"
                        " or fewer --jobs"
                    )
                yield place, outcome
    finally:
        _end_workers(workers)


def _start_worker(one: One, options: Options) -> _Worker:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, one, options), daemon=True)
    process.start()
    theirs.close()  # a worker that dies while it sends is seen only if no other process could send
    return _Worker(process, ours)


def _end_workers(workers: Sequence[_Worker]) -> None:
    """End workers: asked by the end of their pipe and a signal, and soon without being asked."""
    for worker in workers:
        worker.pipe.close()
        worker.process.terminate()
    until_s = time.monotonic() + _ENDING_S
    for worker in workers:
        worker.process.join(max(until_s - time.monotonic(), 0))
        if worker.process.is_alive():
            worker.process.kill()
            worker.process.join()


def _serve(pipe: "Connection[Any, Any]", one: One, options: Options) -> None:
    """Analyze what comes through the pipe until it is closed, also by the end of the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the main process gets it too
    signal.signal(signal.SIGTERM, _leave)  # what it was writing is removed
    tune_process()
    while True:
        try:
            path = pipe.recv()
        except (EOFError, OSError):
            return
        reply: Outcome | _Raised
        try:
            reply = one(path, options)
        except SystemExit:
            return
        except BaseException as error:  # noqa: BLE001  # the main process raises it; panics of polars are no `Exception`
            reply = _Raised(f"{type(error).__name__}: {error}", traceback.format_exc())
        try:
            pipe.send(reply)
        except OSError:
            return


def _leave(number: int, _frame: object) -> NoReturn:
    """End this process in silence: where Python cannot raise, as in some callbacks, it would print."""
    signal.signal(number, signal.SIG_IGN)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    sys.exit(128 + number)


@contextmanager
def _threads(jobs: int) -> Iterator[None]:
    """Share the processors: the workers read the number of their threads when they start."""
    before = os.environ.get(POLARS_THREADS)
    os.environ[POLARS_THREADS] = before or str(max(1, (os.cpu_count() or 1) // jobs))
    try:
        yield
    finally:
        if before is None:
            del os.environ[POLARS_THREADS]


def _ignore_progress(_: str) -> None:
    """Report no progress in a worker."""


if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess

    from distributed import Client, as_completed
    from distributed import Future as DaskFuture

_PATIENCE_S = 10
_CONNECTING_S = 3 * _PATIENCE_S
_WORKERLESS_S = 600
"""How long a cluster may be without workers: they queue, and are started anew."""
_POLL_S, _ASK_S = 0.1, 1.0
_VERSION = "wallscope:__version__"
_ONE_AT_A_TIME = Lock()
_ANSWERED = "answer"
_KINDS = {kind.__name__: kind for kind in find_kinds()}
_OF_WORKER = "see the log of the workers, and that they have this wallscope"
_LONGEST_ERROR = 2_000


def analyze_on_cluster(
    address: str, paths: Sequence[Source], options: Options, progress: Progress, one: One
) -> Iterator[tuple[int, Outcome]]:
    """Yield what became of each export, as it comes; workers see the exports by the same absolute paths.

    Raises:
        OptionError: no cluster can be reached, it lacks this wallscope, or it went away.
    """
    with _client(address) as client:
        from distributed import as_completed  # noqa: PLC0415  # an extra

        def submit(place: int) -> "DaskFuture":
            return client.submit(_alone_in_process, one, paths[place].absolute(), options, pure=False)

        progress("waiting for a worker")
        _await_worker(client, address)
        _check_versions(client, address)
        places = {submit(place): place for place in range(len(paths))}
        killed = []
        for count, future in enumerate(
            _iterate_done(as_completed(places, loop=client.loop), client, address), start=1
        ):
            place = places[future]
            outcome = _outcome(future, paths[place], address)
            future.release()
            progress(f"{count} of {len(paths)} exports done")
            if outcome is None:
                killed.append(place)
            else:
                yield place, _name_as_given(outcome, paths[place])
        for place in sorted(killed):
            again = as_completed([submit(place)], loop=client.loop)
            for future in _iterate_done(again, client, address):
                path = paths[place]
                yield place, _name_as_given(_outcome(future, path, address) or _describe_kill(path), path)


def _await_worker(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKERLESS_S)
    except TimeoutError as error:
        raise _workerless(address) from error


def _iterate_done(ready: "as_completed", client: "Client", address: str) -> "Iterator[DaskFuture]":
    """Yield futures as they are done, for as long as there is a worker, or one may come."""
    seen_s = polled_s = time.monotonic()
    while not ready.is_empty():
        if ready.has_ready():
            yield next(ready)
            seen_s = time.monotonic()
            continue
        time.sleep(_POLL_S)
        if time.monotonic() - polled_s > _ASK_S:
            polled_s = time.monotonic()
            seen_s = polled_s if client.scheduler_info()["workers"] else seen_s
            if polled_s - seen_s > _WORKERLESS_S:
                raise _workerless(address)


def _workerless(address: str) -> OptionError:
    return OptionError(
        f"--dask {address} — has had no worker for {duration(_WORKERLESS_S * 10**9)} — start some, and run it"
        " again: what is done is in the cache"
    )


def _alone_in_process(one: One, path: Source, options: Options) -> tuple[str, str]:
    """Return the answer as JSON, or an error: its kind and its text."""
    from wallscope.render.data import write_json  # noqa: PLC0415  # workers load it, not who starts them

    with _ONE_AT_A_TIME:
        outcome = one(path, options)
    if isinstance(outcome, WallscopeError):
        return type(outcome).__name__, str(outcome)
    return _ANSWERED, write_json(outcome.analysis if isinstance(outcome, DrawnAnalysis) else outcome)


def _read_reply(reply: object, path: Source) -> Outcome:
    """Return the answer or the error that a worker sent; what is neither is an error about the worker."""
    from wallscope.jobs.answers import parse_answer  # noqa: PLC0415  # an extra is needed before

    match reply:
        case (str(kind), str(text)) if kind == _ANSWERED:
            try:
                return parse_answer(text.encode("utf-8", "replace"), str(path), _OF_WORKER)
            except WallscopeError as error:
                return error
        case (str(kind), str(text)) if kind in _KINDS:
            return _KINDS[kind](" ".join(text.split())[:_LONGEST_ERROR])
    return InputError(f"{path} — a worker returned neither an answer nor an error — {_OF_WORKER}")


def _check_versions(client: "Client", address: str) -> None:
    """Refuse a cluster of another wallscope: its answers would be others.

    They are asked by what every Python has: a worker that lacks the code of its task would shut down.
    """
    try:
        replies = [client.run_on_scheduler(resolve_name, _VERSION)]
    except (ImportError, AttributeError):
        replies = [None]
    except OSError as error:
        raise _unreachable(address, str(error)) from error
    replies += client.run(resolve_name, _VERSION, on_error="return").values()
    versions = {version if isinstance(version, str) else None for version in replies}
    for other in sorted(versions - {__version__}, key=str):
        has = "no wallscope" if other is None else f"wallscope {other[:60]}"
        raise OptionError(
            f"--dask {address} — its scheduler or a worker has {has} — install wallscope {__version__} there"
        )


def _outcome(future: "DaskFuture", path: Source, address: str) -> Outcome | None:
    """Return what became of an export; `None` where its workers were killed.

    An exception of a worker is not raised here: one of them would end this process with its own exit code.
    """
    from distributed import KilledWorker  # noqa: PLC0415  # an extra

    if future.cancelled():
        raise OptionError(
            f"--dask {address} — the cluster went away — run it again: what is done is in the cache"
        )
    error = future.exception()
    if isinstance(error, KilledWorker):
        return None
    if error is not None:
        kind, text = type(error).__name__, " ".join(str(error).split())[:_LONGEST_ERROR]
        return InputError(f"{path} — a worker failed: {kind}: {text} — {_OF_WORKER}")
    return _read_reply(future.result(), path)


def _name_as_given(outcome: Outcome, path: Source) -> Outcome:
    """Return the outcome with the export named in errors as the user named it."""
    if not isinstance(outcome, WallscopeError):
        return outcome
    return type(outcome)(str(outcome).replace(str(path.absolute()), str(path)))


def _describe_kill(path: Source) -> InputError:
    return InputError(f"{path} — its workers were killed, time and again — give workers more memory")


@contextmanager
def _client(address: str) -> "Iterator[Client]":
    try:
        from distributed import Client  # noqa: PLC0415  # an extra
    except ImportError as error:
        command = name_install_command("dask", "distributed")
        raise OptionError(f"--dask {address} — a cluster needs distributed — {command}") from error
    scheduler = _scheduler(address)
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # errors are reported in our words
    try:
        with _connect(scheduler, address, Client) as client:
            yield client
    finally:
        logger.setLevel(level)


def _connect(scheduler: str, address: str, kind: "type[Client]") -> "Client":
    """Connect in a thread that can be left behind: one that talks to something else may wait forever.

    Raises:
        OptionError: no scheduler answers.
    """
    made: SimpleQueue[Client | Exception] = SimpleQueue()

    def connect() -> None:
        try:
            made.put(kind(scheduler, timeout=_PATIENCE_S, set_as_default=False))
        except Exception as error:  # noqa: BLE001  # whatever the other side sent: the main thread says it
            made.put(error)

    Thread(target=connect, daemon=True).start()
    try:
        found = made.get(timeout=_CONNECTING_S)
    except Empty:
        raise _unreachable(address, "no scheduler answers there") from None
    if isinstance(found, OSError):
        raise _unreachable(address, str(found)) from found
    if isinstance(found, Exception):
        raise _unreachable(address, f"what answers is not a scheduler ({type(found).__name__})") from found
    return found


def _scheduler(address: str) -> str:
    """Return the address that is meant, `tcp://` without a scheme, or that a scheduler's file holds.

    A client that cannot connect leaves threads and complaints: whether somebody listens is asked before.

    Raises:
        OptionError: it is not an address, or there is no scheduler.
    """
    try:
        path = Path(address)
        found = address
        if path.is_file():
            held = read_user_bytes(
                path, MOST_LIST_BYTES, "name the file of a scheduler with --dask", OptionError
            )
            found = str(json.loads(held)["address"])
        versions = urlsplit(found if "://" in found else f"tcp://{found}")
        host, port = versions.hostname, versions.port
    except OSError as error:
        raise OptionError(
            f"--dask {address} — cannot be read: {error.strerror} — name another file"
        ) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _no_address(address) from error
    if versions.scheme not in {"tcp", "tls"} or host is None or port is None:
        raise _no_address(address)
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    return versions.geturl()


def _no_address(address: str) -> OptionError:
    return OptionError(
        f"--dask {address} — is not an address of a scheduler — write tcp://HOST:PORT, or name its file"
    )


def _unreachable(address: str, why: str) -> OptionError:
    reason = " ".join(why.split())[:200]
    return OptionError(
        f"--dask {address} — cannot be reached: {reason} — start the scheduler, or correct the address"
    )

"""Exports analysed on a Dask cluster that is there already: the engine of `nsys recipe`, on Slurm and others.

Exports of a lost worker go to the others; one whose workers are killed time and again is tried once more, the
others done, and then named. Workers hold one export at a time, whatever their number of threads.
"""

import json
import logging
import socket
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from pathlib import Path
from pkgutil import resolve_name
from threading import Lock
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from wallscope._version import __version__
from wallscope.errors import InputError, OptionError, WallscopeError
from wallscope.jobs.remote import Source
from wallscope.jobs.workers import One, Outcome
from wallscope.model.capture import Progress
from wallscope.model.options import Options
from wallscope.units import duration

if TYPE_CHECKING:
    from distributed import Client, Future, as_completed

_PATIENCE_S = 10
_WORKERLESS_S = 600
"""How long a cluster may be without workers: they queue, and are started anew."""
_POLL_S, _ASK_S = 0.1, 1.0
_VERSION = "wallscope:__version__"
_ONE_AT_A_TIME = Lock()


def outcomes_on(
    address: str, paths: Sequence[Source], options: Options, progress: Progress, one: One
) -> Iterator[tuple[int, Outcome]]:
    """What became of each export, as it comes; workers see the exports by the same absolute paths.

    Raises:
        OptionError: no cluster can be reached, it lacks this wallscope, or it went away.
    """
    with _client(address) as client:
        from distributed import as_completed  # noqa: PLC0415  # an extra

        def submitted(place: int) -> "Future":
            return client.submit(_alone_in_process, one, paths[place].absolute(), options, pure=False)

        progress("waiting for a worker")
        _await_worker(client, address)
        _check_versions(client, address)
        places = {submitted(place): place for place in range(len(paths))}
        killed = []
        for count, future in enumerate(
            _as_they_come(as_completed(places, loop=client.loop), client, address), start=1
        ):
            place, outcome = places[future], _outcome(future, address)
            future.release()
            progress(f"{count} of {len(paths)} exports done")
            if outcome is None:
                killed.append(place)
            else:
                yield place, _as_named(outcome, paths[place])
        for place in sorted(killed):
            again = as_completed([submitted(place)], loop=client.loop)
            for future in _as_they_come(again, client, address):
                path = paths[place]
                yield place, _as_named(_outcome(future, address) or _killed(path), path)


def _await_worker(client: "Client", address: str) -> None:
    try:
        client.wait_for_workers(1, timeout=_WORKERLESS_S)
    except TimeoutError as error:
        raise _workerless(address) from error


def _as_they_come(ready: "as_completed", client: "Client", address: str) -> "Iterator[Future]":
    """Futures as they are done, for as long as there is a worker, or one may come."""
    seen_s = asked_s = time.monotonic()
    while not ready.is_empty():
        if ready.has_ready():
            yield next(ready)
            seen_s = time.monotonic()
            continue
        time.sleep(_POLL_S)
        if time.monotonic() - asked_s > _ASK_S:
            asked_s = time.monotonic()
            seen_s = asked_s if client.scheduler_info()["workers"] else seen_s
            if asked_s - seen_s > _WORKERLESS_S:
                raise _workerless(address)


def _workerless(address: str) -> OptionError:
    return OptionError(
        f"--dask {address} — has had no worker for {duration(_WORKERLESS_S * 10**9)} — start some, and run it"
        " again: what is done is in the cache"
    )


def _alone_in_process(one: One, path: Source, options: Options) -> Outcome:
    with _ONE_AT_A_TIME:
        return one(path, options)


def _check_versions(client: "Client", address: str) -> None:
    """Refuse a cluster of another wallscope: its answers would be others.

    They are asked by what every Python has: a worker that lacks the code of its task would shut down.
    """
    try:
        told = {client.run_on_scheduler(resolve_name, _VERSION)}
    except (ImportError, AttributeError):
        told = {None}
    except OSError as error:
        raise _unreachable(address, str(error)) from error
    found = client.run(resolve_name, _VERSION, on_error="return").values()
    told |= {version if isinstance(version, str) else None for version in found}
    for other in sorted(told - {__version__}, key=str):
        held = "no wallscope" if other is None else f"wallscope {other}"
        raise OptionError(
            f"--dask {address} — its scheduler or a worker has {held} — install wallscope {__version__} there"
        )


def _outcome(future: "Future", address: str) -> Outcome | None:
    """What became of an export; `None` where its workers were killed."""
    from distributed import KilledWorker  # noqa: PLC0415  # an extra

    try:
        outcome: Outcome = future.result()
    except KilledWorker:
        return None
    except CancelledError as error:
        raise OptionError(
            f"--dask {address} — the cluster went away — run it again: what is done is in the cache"
        ) from error
    return outcome


def _as_named(outcome: Outcome, path: Source) -> Outcome:
    """An error speaks of the export as the user named it."""
    if not isinstance(outcome, WallscopeError):
        return outcome
    return type(outcome)(str(outcome).replace(str(path.absolute()), str(path)))


def _killed(path: Source) -> InputError:
    return InputError(f"{path} — its workers were killed, time and again — give workers more memory")


@contextmanager
def _client(address: str) -> "Iterator[Client]":
    try:
        from distributed import Client  # noqa: PLC0415  # an extra
    except ImportError as error:
        raise OptionError(
            f"--dask {address} — a cluster needs distributed — pip install 'wallscope[dask]'"
        ) from error
    scheduler = _scheduler(address)
    logger = logging.getLogger("distributed.client")
    level = logger.level
    logger.setLevel(logging.CRITICAL)  # what goes wrong is told in our words
    try:
        try:
            client = Client(scheduler, timeout=_PATIENCE_S, set_as_default=False)
        except OSError as error:
            raise _unreachable(address, str(error)) from error
        with client:
            yield client
    finally:
        logger.setLevel(level)


def _scheduler(address: str) -> str:
    """The address that is meant, `tcp://` where no scheme is told, or that a scheduler's file holds.

    A client that cannot connect leaves threads and complaints: whether somebody listens is asked before.

    Raises:
        OptionError: it is no address, or nobody listens there.
    """
    try:
        path = Path(address)
        found = str(json.loads(path.read_bytes())["address"]) if path.is_file() else address
        told = urlsplit(found if "://" in found else f"tcp://{found}")
        host, port = told.hostname, told.port
    except OSError as error:
        raise OptionError(
            f"--dask {address} — cannot be read: {error.strerror} — name another file"
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise _no_address(address) from error
    if told.scheme not in {"tcp", "tls"} or host is None or port is None:
        raise _no_address(address)
    try:
        socket.create_connection((host, port), _PATIENCE_S).close()
    except OSError as error:
        raise _unreachable(address, error.strerror or str(error)) from error
    return told.geturl()


def _no_address(address: str) -> OptionError:
    return OptionError(
        f"--dask {address} — is no address of a scheduler — write tcp://HOST:PORT, or name its file"
    )


def _unreachable(address: str, why: str) -> OptionError:
    said = " ".join(why.split())[:200]
    return OptionError(
        f"--dask {address} — cannot be reached: {said} — start the scheduler, or mend the address"
    )

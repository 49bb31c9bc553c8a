"""Stand-ins for an analysis that are interrupted at a moment of sending; each says its process first."""

import os
import signal
import time

from wallscope.errors import InputError


def works_on(path, _options):
    """Works when the signal comes."""
    _say(path)
    time.sleep(60)


def stops_before_sending(path, _options):
    """Its process stands still, as one that is swapped out."""
    _say(path)
    os.kill(os.getpid(), signal.SIGSTOP)
    return InputError(path.name)


def stops_while_sending(path, _options):
    """More than a pipe holds, and its process stands still soon after it began to send."""
    _say(path)
    if os.fork() == 0:
        time.sleep(0.1)
        os.kill(os.getppid(), signal.SIGSTOP)
        os._exit(0)
    return InputError(path.name + "x" * 400_000_000)


def sends_forever(path, _options):
    """Sends so much that the signal comes meanwhile."""
    _say(path)
    return InputError(path.name + "x" * 600_000_000)


def _say(path):
    made = path.with_suffix(".tmp")
    made.write_text(str(os.getpid()))
    made.rename(path.with_suffix(".pid"))

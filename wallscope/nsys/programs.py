"""Libraries of known frameworks that a profiled program loaded, and its interpreter.

Strings of an export contain environments and output. Only names of a list are searched, and only their
presence leaves the export.
"""

import json
import re
from dataclasses import dataclass

from wallscope.nsys.tables import STRINGS, Database

_LIBRARIES = (
    "libtorch_cuda.so",
    "libtorch_cuda_cu.so",
    "libtorch_python.so",
    "libdali.so",
    "libtensorflow_cc.so.2",
    "libtensorflow_framework.so.2",
    "_pywrap_tensorflow_internal.so",
    "xla_extension.so",
    "xla_cuda_plugin.so",
    "libjax_common.so",
    "libnvinfer.so.8",
    "libnvinfer.so.10",
    "libtensorrt_llm.so",
    "libjulia.so.1",
    "libtransformer_engine.so",
)
"""Base names of shared libraries, each of one framework."""
_INTERPRETERS = ((re.compile(r"(pytest|python[0-9.]*)(\.exe)?"), "python"), (re.compile(r"julia"), "julia"))
_LAUNCHERS = re.compile(r"nsys.*|ProcessLauncher|readlink|gcc|cc1|git|nvidia-smi|sh|bash|mpirun|srun|orted")


@dataclass(frozen=True, slots=True)
class ProgramHints:
    """Libraries of the program, and its interpreter (`python`, `julia`, `native`; `None`: unknown)."""

    libraries: tuple[str, ...]
    interpreter: str | None


def read_program_hints(source: Database, global_pids: list[int]) -> ProgramHints:
    """Return the known libraries in an export, and the interpreter of the processes that issued work.

    Args:
        source: the export.
        global_pids: those processes.
    """
    libraries: tuple[str, ...] = ()
    if source.has(STRINGS, "id", "value"):
        found = source.rows("loaded_libraries", json.dumps(list(_LIBRARIES)))
        libraries = tuple(sorted(str(name) for (name,) in found))
    names: list[str] = []
    if source.has("PROCESSES", "globalPid", "name"):
        names = [str(name) for (name,) in source.rows("process_names", json.dumps(global_pids)) if name]
    return ProgramHints(libraries, _find_interpreter(names))


_LOADERS = {
    "pt_data_worker": r"pt_data_worker.*",
    "pt_data_pin": r"pt_data_pin",
    "DALI executor": r"\[DALI\]\[TP\d+\].*",
    "DALI reader": r"PrefetchWorker readers.*",
    "tf_data": r"tf_data.*",
}
"""Names that data loaders give to their threads and worker processes, by what they are called here."""


def count_loader_threads(source: Database) -> dict[str, int]:
    """Return how many threads in an export have the name of a data loader's, by kind.

    A worker process is counted by its main thread, which has the name too.
    """
    rows = source.rows("thread_names") if source.has("ThreadNames", "globalTid", "nameId") else []
    threads = {kind: set[object]() for kind in _LOADERS}
    for tid, name in rows:
        for kind, pattern in _LOADERS.items():
            if isinstance(name, str) and re.fullmatch(pattern, name):
                threads[kind].add(tid)
    return {kind: len(own) for kind, own in threads.items() if own}


def _find_interpreter(names: list[str]) -> str | None:
    """Return the interpreter of processes with these names.

    >>> [_find_interpreter([name]) for name in ("/usr/bin/python3", "./a.out", "nsys-launcher")]
    ['python', 'native', None]
    """
    own = [re.split(r"[/\\]", name)[-1] for name in names]
    for pattern, interpreter in _INTERPRETERS:
        if any(pattern.fullmatch(name) for name in own):
            return interpreter
    return "native" if any(not _LAUNCHERS.fullmatch(name) for name in own) else None

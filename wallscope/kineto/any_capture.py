"""A capture of any profiler, known by content: an export of Nsight Systems, or a trace of PyTorch's."""

from pathlib import Path

from wallscope.kineto.trace_bytes import is_torch_trace, refuse_other_gzip
from wallscope.model.capture import Capture, Contents, Progress
from wallscope.model.enums import Reader
from wallscope.nsys import read_capture, read_contents


def read_any_capture(
    path: Path, progress: Progress, reader: Reader = Reader.PAGES, *, with_python: bool = False
) -> Capture:
    """Return the device operations of an export or a trace, and what limits the claims made from them.

    The reader is for exports alone, functions of Python are in traces alone.

    Raises:
        InputError: the file is neither, or cannot be read.
        NothingToAnalyzeError: it holds no device operation.
    """
    if is_torch_trace(path):
        from wallscope.kineto.load_trace import read_trace_capture  # noqa: PLC0415  # most captures are exports

        return read_trace_capture(path, progress, with_python=with_python)
    refuse_other_gzip(path)
    return read_capture(path, progress, reader)


def read_any_contents(path: Path, progress: Progress) -> Contents:
    """Return versions, machine, tables or events with their numbers, and limits of an export or a trace.

    Raises:
        InputError: the file is neither, or cannot be read.
    """
    if is_torch_trace(path):
        from wallscope.kineto.load_trace import read_trace_contents  # noqa: PLC0415  # most captures are exports

        return read_trace_contents(path, progress)
    refuse_other_gzip(path)
    return read_contents(path, progress)

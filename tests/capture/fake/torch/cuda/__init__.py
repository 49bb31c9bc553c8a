"""A GPU, if the environment has one: every wait for it is printed into a file."""

import os

_calls = os.environ.get("FAKE_CUDA_CALLS")
capturing = False


def is_available():
    return _calls is not None


def is_initialized():
    return _calls is not None


def is_current_stream_capturing():
    return capturing


def _note(what):
    with open(_calls, "a") as file:
        file.write(what + "\n")


def synchronize():
    _note("synchronize")


class _Runtime:
    def cudaProfilerStart(self):  # noqa: N802  # CUDA's
        _note("start")
        return int(os.environ.get("FAKE_CUDA_CODE", "0"))

    def cudaProfilerStop(self):  # noqa: N802  # CUDA's
        _note("stop")
        return 0


def cudart():
    return _Runtime()


class nvtx:  # noqa: N801  # PyTorch's
    @staticmethod
    def range_push(text):
        if _calls is None:
            raise RuntimeError("NVTX functions not installed.")
        _note("push " + text)

    @staticmethod
    def range_pop():
        _note("pop")


if _calls is not None:
    import torch

    torch.version.cuda = "12.9"

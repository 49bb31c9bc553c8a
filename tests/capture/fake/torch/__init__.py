"""As much of PyTorch as the hook meets: optimizers, a scaler, a profiler that writes traces of a GPU."""

import sys

__version__ = "2.9.0+fake"


class _Compiler:
    def __init__(self):
        self.compiles = False

    def is_compiling(self):
        return self.compiles


class _Version:
    cuda = None


compiler = _Compiler()
version = _Version()
sys.modules["torch.compiler"] = compiler

from torch import amp, cuda, optim  # noqa: E402, F401  # in the order of PyTorch

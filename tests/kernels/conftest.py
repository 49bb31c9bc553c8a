"""Both forms of a kernel: compiled with bounds checks where `make` built that, and interpreted."""

import importlib.util
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import wallscope.kernels

FOLDER = Path(wallscope.kernels.__file__).parent


def interpreted(name: str) -> ModuleType:
    """Load the source of a kernel as plain Python, whether it is compiled or not."""
    full_name = f"interpreted_kernels.{name}"
    spec = importlib.util.spec_from_loader(full_name, SourceFileLoader(full_name, str(FOLDER / f"{name}.py")))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Kernel:
    """A kernel in one form; a function of it takes numpy arrays in either."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function = getattr(self.module, name)
        if not self.module.__file__.endswith(".py"):
            return function
        return lambda *arguments: function(
            *(memoryview(each) if isinstance(each, np.ndarray) else each for each in arguments)
        )


@pytest.fixture(scope="session", params=["compiled", "interpreted"])
def kernel_of(request: pytest.FixtureRequest) -> Callable[[str], Kernel]:
    """Return a function that loads a kernel by name, in the form under test."""
    if request.param == "interpreted":
        return lambda name: Kernel(interpreted(name))
    if not wallscope.kernels.is_compiled():
        pytest.skip("the kernels are not compiled: no C compiler was found when wallscope was installed")
    return lambda name: Kernel(importlib.import_module(f"wallscope.kernels.{name}"))

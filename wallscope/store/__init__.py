"""Profiles kept by commit and testbed in a folder that several CI jobs may write at once."""

from wallscope.store.folder import Store
from wallscope.store.noise import run_noise

__all__ = ["Store", "run_noise"]

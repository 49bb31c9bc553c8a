"""Profiles kept by commit and testbed, in a folder or behind a URL that several CI jobs may write at once."""

from wallscope.store.noise import drop_repetitions, run_noise
from wallscope.store.records import Store, object_name

__all__ = ["Store", "drop_repetitions", "object_name", "run_noise"]

"""Profiles kept by commit and testbed, in a folder or behind a URL that several CI jobs may write at once."""

from wallscope.store.records import Store, drop_repetitions, object_name, run_noise

__all__ = ["Store", "drop_repetitions", "object_name", "run_noise"]

"""Logs of training runs: the time of a step without the profiler, and what a log states besides."""

"""STAGE: the only place that knows traces of PyTorch's profiler (Kineto). Traces in, `Capture` out.

Nothing is imported here: what a file is can be told without polars.
"""

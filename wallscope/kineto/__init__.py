"""Reader of PyTorch profiler traces (Kineto), the only package that knows them. Returns a `Capture`.

It imports nothing, so that a file can be identified without polars.
"""

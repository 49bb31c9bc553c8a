"""STAGE: the only place that knows SQLite and Nsight Systems' tables. Exports in, `Capture` out."""

from wallscope.nsys.load import read_capture, read_contents

__all__ = ["read_capture", "read_contents"]

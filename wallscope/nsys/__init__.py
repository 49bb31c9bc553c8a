"""Reader of Nsight Systems exports, the only package with SQLite and Nsight's tables. Returns a `Capture`."""

from wallscope.nsys.load import read_capture, read_contents

__all__ = ["read_capture", "read_contents"]

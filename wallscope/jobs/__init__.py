"""Many exports, one answer: each is analysed by itself, side by side; then the ranks are one job."""

from wallscope.jobs.inputs import exports_of, is_many
from wallscope.jobs.joining import analyzed_job

__all__ = ["analyzed_job", "exports_of", "is_many"]

"""Many ranks become one job: collectives matched, clocks aligned, waiting split, late ranks explained."""

from wallscope.ranks.exported import earliest_ns, job_frame, tracks
from wallscope.ranks.job import Judge, Together, job_of, together
from wallscope.ranks.lanes import lanes

__all__ = ["Judge", "Together", "earliest_ns", "job_frame", "job_of", "lanes", "together", "tracks"]

"""Many ranks become one job: collectives matched, clocks aligned, waiting split, late ranks explained."""

from wallscope.ranks.job import Judge, Together, job_of, together
from wallscope.ranks.lanes import lanes

__all__ = ["Judge", "Together", "job_of", "lanes", "together"]

"""Many ranks become one job: collectives matched, clocks aligned, waiting split, late ranks explained."""

from wallscope.ranks.job import Judge, Together, job_of, together

__all__ = ["Judge", "Together", "job_of", "together"]

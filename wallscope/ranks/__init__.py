"""Many ranks become one job: collectives matched, clocks aligned, waiting split, late ranks explained."""

from wallscope.ranks.job import Judge, job_of

__all__ = ["Judge", "job_of"]

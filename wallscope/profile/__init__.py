"""The one compact artifact of a rank: made from its account, merged, packed and read."""

from wallscope.profile.container import packed, unpacked
from wallscope.profile.embedding import profiled
from wallscope.profile.making import Described, Tables, described, tables
from wallscope.profile.merging import merged

__all__ = ["Described", "Tables", "described", "merged", "packed", "profiled", "tables", "unpacked"]

"""The one compact artifact of a rank: made from its account, merged, packed and read."""

from wallscope.profile.container import Written, packed, unpacked, written
from wallscope.profile.describing import Described, described
from wallscope.profile.embedding import profiled, profiles
from wallscope.profile.making import Tables, tables
from wallscope.profile.merging import merged
from wallscope.profile.reading import profiles_of

__all__ = [
    "Described",
    "Tables",
    "Written",
    "described",
    "merged",
    "packed",
    "profiled",
    "profiles",
    "profiles_of",
    "tables",
    "unpacked",
    "written",
]

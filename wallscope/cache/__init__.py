"""What was worked out before, kept in the user's cache folder under one size limit.

    answers/<name>          a sealed answer
    pages/<name>            a sealed page
    exports/<name>.sqlite   the export that nsys made of a report

A name says all that decides the content, so an entry is right or it is not there.
"""

from wallscope.cache.fingerprint import file_fingerprint
from wallscope.cache.folder import Cache, Kind, users_cache
from wallscope.cache.listing import ASIDE, Entry

__all__ = ["ASIDE", "Cache", "Entry", "Kind", "file_fingerprint", "users_cache"]

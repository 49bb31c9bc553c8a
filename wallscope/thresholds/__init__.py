"""Every limit that decides a claim; names end with the unit. "Chosen": no measurement stands behind a value.

`_SHARE` is 0 to 1, `_RATIO` one value by the other.
"""

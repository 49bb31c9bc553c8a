"""What is worth a line on a screen or page."""

from typing import Final

SHOWN_LOSS_SHARE: Final = 0.001
"""Share of the typical step that a loss must take, for the list of causes. Chosen."""
SHOWN_HOST_SHARE: Final = 0.001
"""The same for calls that drain the queue and work that was held. Chosen."""
SHOWN_CHANGE_SHARE: Final = 0.001
"""Of base's step that a cause must change, for the first screen of a comparison. Chosen."""
SHOWN_COMPUTE_SHARE: Final = 0.05
"""Share of compute work that a property of kernels must have, to be reported. Chosen."""
SHOWN_OVERLAP_TAX_SHARE: Final = 0.01
"""Slowdown of kernels that overlap communication, to be reported. Chosen."""
SHOWN_COPY_BYTES: Final = 1 << 16
"""Mean size of a copy from which its bandwidth is reported. The same as `BULK_COPY_BYTES`."""

"""What a step would take if something were otherwise: its stretch played again with that changed."""

from wallscope.whatif.answering import answered

__all__ = ["answered"]

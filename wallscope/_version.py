"""The version of wallscope."""

__version__ = "0.1.0"

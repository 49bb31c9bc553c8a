"""wallscope: why a GPU training step takes as long as it does, from an Nsight Systems export."""

__version__ = "0.1.0"

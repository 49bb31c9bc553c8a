"""Sums, verdict and findings of each rank, computed from its slices."""

"""Comparison of two sides: whether they can be compared, how they differ, how sure that is, and in what."""

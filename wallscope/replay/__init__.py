"""Simulate the replay window of a step with changes."""

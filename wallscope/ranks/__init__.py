"""Combine many ranks into one job: match collectives, align clocks, split waits, explain late ranks."""

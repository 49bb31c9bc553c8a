"""What the slices of each rank add up to: sums, verdict and findings."""

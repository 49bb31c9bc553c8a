"""The compact artifact of one rank: built from its slices, merged, encoded as text and read."""

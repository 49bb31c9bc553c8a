"""STAGE: where the time of a step went. Classified operations in, shares that sum out."""

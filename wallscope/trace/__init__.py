"""What ran, and who waited for whom: classes, ranges, streams, dependencies, steps. No file, no text."""

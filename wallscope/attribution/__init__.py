"""Time breakdown: each nanosecond of each step in one slice, with its wall and cause."""

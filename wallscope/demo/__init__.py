"""The generated example of `wallscope demo`: a simulated training run, written as an export of nsys."""

"""STAGE: answers to text: terminal and JSON. Dumb, and the only place that lays out for people."""

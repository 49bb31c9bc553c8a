"""From a program to its capture: starts the program under a profiler, and records what its hook counts.

`nsys_program` knows the installed nsys.
"""

"""How fast things are: measured by hand with `make bench`, never a test."""

"""Sections, a file a question."""

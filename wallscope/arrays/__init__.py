"""Columns as arrays: what is asked of a hundred thousand rows, or of very few, without a query of polars."""

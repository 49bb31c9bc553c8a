"""Answers kept under keys that hold all that decides them."""

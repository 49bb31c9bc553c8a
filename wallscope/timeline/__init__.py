"""Arithmetic on time, and the naming of what ran: no file, no text for people."""

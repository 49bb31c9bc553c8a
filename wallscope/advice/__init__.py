"""Advice: fixes for an analysis, checks of a configuration, a plan for a run, explanations."""

"""Analyze many exports in parallel and combine their ranks into one job."""

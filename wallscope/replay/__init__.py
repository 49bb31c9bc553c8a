"""What a step would take if something were different: its replay window simulated with that changed."""

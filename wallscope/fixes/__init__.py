"""From a diagnosis and a run's configuration to what could be done, and what is in its way."""

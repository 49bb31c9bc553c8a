"""Many ranks become one job: collectives matched, clocks aligned, waits split, late ranks explained."""

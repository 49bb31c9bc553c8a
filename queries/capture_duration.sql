-- Length of the longest trace of the capture, in ns. Its start and stop stand on another clock.
SELECT MAX(details.duration) AS duration_ns
FROM ANALYSIS_DETAILS AS details

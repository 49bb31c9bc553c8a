"""The sections of the page, in the order of the questions that people ask."""

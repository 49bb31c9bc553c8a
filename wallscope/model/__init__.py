"""Data models: frame schemas, frozen dataclasses, enumerations. No input, no output, no arithmetic."""

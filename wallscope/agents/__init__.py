"""The server that coding agents ask: read-only tools over the Model Context Protocol."""

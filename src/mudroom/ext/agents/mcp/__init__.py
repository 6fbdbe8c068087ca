"""``mudroom mcp``: one fork's tools for clients of the Model Context Protocol. ``server.py`` has the rules."""

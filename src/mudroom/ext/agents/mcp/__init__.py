"""``mudroom mcp``: the tools of one fork for clients of the Model Context Protocol. ``server.py`` has the rules."""

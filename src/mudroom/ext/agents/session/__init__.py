"""Agents: their runs from start to end, and the settings that these have changed."""

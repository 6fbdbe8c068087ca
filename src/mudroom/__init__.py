"""mudroom: the room between coding agents (or any command) and your project."""

__version__ = "0.1.0"

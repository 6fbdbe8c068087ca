"""git's formats, as values."""

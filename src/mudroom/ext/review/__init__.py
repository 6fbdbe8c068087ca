"""A fork as the page and the terminal show it: rows of changes with their contents, and its history."""

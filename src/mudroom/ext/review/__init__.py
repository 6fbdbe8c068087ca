"""A fork for display on the page and in the terminal: its change rows with contents, and its history."""

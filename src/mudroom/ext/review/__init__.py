"""What the page and the terminal show of a fork: the rows of its changes with their contents, and its history."""

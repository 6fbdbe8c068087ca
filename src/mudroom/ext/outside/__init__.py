"""Files that a command wrote outside the project, which end with it: kept for a day (``store.py``), and copied out."""

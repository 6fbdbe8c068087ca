"""Conflicts that are settled by rule (``rule.py``), and lock files that are made again (``lock_file.py``)."""

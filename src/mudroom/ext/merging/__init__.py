"""Conflicts that are settled by rule (``rule.py``)."""

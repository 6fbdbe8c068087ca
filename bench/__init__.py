"""Measurements, as ratios against real alternatives in the same run: ``python -m bench``."""

"""Several attempts at one task, side by side: run, judge, rank, combine."""

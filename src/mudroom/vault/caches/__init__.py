"""Caches of package managers: the shared pools, and the part of each fork."""

"""Package managers' caches: the shared pools, and each fork's part."""

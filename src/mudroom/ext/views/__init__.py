"""A changed file by its parts: packages, cells, keys, tables, members, where lines say little."""

"""Several nodes' numbers as numbers on one link."""

from __future__ import annotations

from mudroom.ext.fleet.engine.cluster_node import ClusterNode


class NumberMap:
    """The caller holds the coordinator's lock during each call."""

    def __init__(self, most: int) -> None:
        """``most``: numbers at one time."""
        self._most = most
        self._outer: dict[tuple[str, int], int] = {}
        self._inner: dict[int, tuple[ClusterNode, int]] = {}
        self._last = 0

    def add(self, node: ClusterNode, number: int) -> int | None:
        """Return the link's number for a node's number; None: there are too many, or the node has it in use."""
        if len(self._inner) >= self._most or (node.name, number) in self._outer:
            return None
        self._last += 1
        self._outer[node.name, number] = self._last
        self._inner[self._last] = node, number
        return self._last

    def outer(self, node: ClusterNode, number: int) -> int | None:
        return self._outer.get((node.name, number))

    def inner(self, outer: int) -> tuple[ClusterNode, int] | None:
        return self._inner.get(outer)

    def remove(self, outer: int) -> None:
        found = self._inner.pop(outer, None)
        if found is not None:
            del self._outer[found[0].name, found[1]]

    def drop(self, node: ClusterNode) -> list[int]:
        """Remove a node's numbers. Return the link's."""
        dropped = [outer for outer, found in self._inner.items() if found[0] is node]
        for outer in dropped:
            self.remove(outer)
        return dropped

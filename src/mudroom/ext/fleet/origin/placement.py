"""Placement of errands on workers, by what they need and what is free. Pure.

Rules:
1. No worker gets more than it has: a declared need is taken from its capacity until the errand has ended.
2. Errands are placed in order. One that no worker has room for now keeps a worker, which gets no later errand until the
   kept one is placed there: small errands do not starve a large one. Later errands go to the other workers meanwhile.
3. An errand that needs more than any worker has in all is not waited for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mudroom.core.confinement.limit import OFF, Limits
from mudroom.core.text.plural import amount, counted
from mudroom.typing import NamedTuple

Key = tuple[str, int]


class Needs(NamedTuple):
    memory: int = 0
    """Bytes; 0: not declared, as the next two."""
    cpus: float = 0.0
    gpus: int = 0


class Capacity(NamedTuple):
    slots: int
    """Errands at one time."""
    memory: int
    cpus: float
    gpus: int

    def holds(self, needs: Needs) -> bool:
        has = (self.memory, self.cpus, self.gpus)
        return self.slots > 0 and all(not need or need <= amount for need, amount in zip(needs, has, strict=True))

    def without(self, needs: Needs) -> Capacity:
        return Capacity(self.slots - 1, self.memory - needs.memory, self.cpus - needs.cpus, self.gpus - needs.gpus)


class WorkerRoom(NamedTuple):
    name: str
    total: Capacity
    free: Capacity
    is_ready: bool
    """Whether it can be sent an errand now."""


def needs_of(limits: Limits, gpus: int) -> Needs:
    """Return the needs of a command with these limits: what it may use is kept for it."""
    memory = limits.memory if limits.memory is not None and limits.memory != OFF else 0
    return Needs(int(memory), limits.cpus or 0.0, gpus)


def place(
    waiting: Iterable[tuple[Key, Needs]], workers: Sequence[WorkerRoom], kept: dict[Key, str]
) -> Iterator[tuple[Key, str]]:
    """Yield errands with their workers, the one with the most free slots of its own first. ``kept``: workers by the
    errand for which they are kept; it is changed."""
    free = {worker.name: worker.free for worker in workers if worker.is_ready}
    slots = {worker.name: max(worker.total.slots, 1) for worker in workers}
    closed: set[str] = set()
    for key, needs in waiting:
        if not any(room.slots > 0 for name, room in free.items() if name not in closed):
            return
        fitting = [name for name, room in free.items() if name not in closed and room.holds(needs)]
        if fitting:
            name = max(fitting, key=lambda name: free[name].slots / slots[name])
            free[name] = free[name].without(needs)
            kept.pop(key, None)
            yield key, name
            continue
        able = [worker.name for worker in workers if worker.name not in closed and worker.total.holds(needs)]
        if able:
            if kept.get(key) not in able:
                kept[key] = max(able, key=lambda name: free[name].slots if name in free else -1)
            closed.add(kept[key])


def lack(needs: Needs, workers: Sequence[WorkerRoom]) -> str:
    """Return why no worker can ever have an errand; empty if one can."""
    if not workers or any(worker.total.holds(needs) for worker in workers):
        return ""
    rows = (
        ("gpus", counted(needs.gpus, "GPU")),
        ("memory", f"{amount(needs.memory)} of memory"),
        ("cpus", f"{needs.cpus:g} processors"),
    )
    for field, text in rows:
        has = [(worker.name, getattr(worker.total, field)) for worker in workers]
        if all(some < getattr(needs, field) for _name, some in has):
            shown = (f"{name} has {amount(some) if field == 'memory' else some}" for name, some in has)
            return f"no worker has {text}: {_listed(shown)}"
    wanted = " and ".join(text for field, text in rows if getattr(needs, field))
    return f"no worker has {wanted} together: {_listed(each.name for each in workers)}"


def _listed(texts: Iterable[str]) -> str:
    texts = list(texts)
    return ", ".join(texts[:3]) + (" …" if len(texts) > 3 else "")

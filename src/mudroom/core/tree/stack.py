"""A fork as a value: its stack of layers, its checkpoints, and what each command of the user makes of them.

Layers are named by ids of the vault. All but the ``upper`` are sealed: nothing is ever written to them again, so any
number of forks and checkpoints may share them. That is why checkpoint, rollback and a fork of a fork cost the same for
ten files and for a million: each only writes a new list of names.

The text form is one fact a line, so that a person can read it and no library has to be loaded for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

FORMAT = 2
LIVE = "live"
"""The base of a fork that stands on the project directory itself; else the id of a snapshot."""


class Checkpoint(NamedTuple):
    name: str
    time: int
    """Nanoseconds since 1970."""
    layers: tuple[str, ...]
    """Sealed layers, bottom first."""
    automatic: bool = False
    """Made by mudroom before something that drops changes, not by name."""


class ForkState(NamedTuple):
    upper: str
    layers: tuple[str, ...] = ()
    """Sealed layers, bottom first."""
    base: str = LIVE
    created: int = 0
    parent: str = ""
    """The fork that this one was made from."""
    named: bool = False
    """Somebody gave it its name: it outlives an apply of all it holds."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Oldest first."""

    @property
    def references(self) -> frozenset[str]:
        """Every layer that it needs."""
        return frozenset((self.upper, *self.layers, *(layer for point in self.checkpoints for layer in point.layers)))

    def checkpoint(self, name: str) -> Checkpoint | None:
        return next((point for point in self.checkpoints if point.name == name), None)


def seal(state: ForkState, upper: str) -> ForkState:
    """What was the upper is sealed; ``upper`` is a new, empty layer."""
    return state._replace(layers=(*state.layers, state.upper), upper=upper)


def with_checkpoint(state: ForkState, name: str, time: int, *, automatic: bool = False) -> ForkState:
    """Remember the sealed layers under a name. Seal first, if the upper holds anything."""
    point = Checkpoint(name, time, state.layers, automatic)
    return state._replace(checkpoints=(*state.checkpoints, point))


def without_checkpoint(state: ForkState, name: str) -> ForkState:
    return state._replace(checkpoints=tuple(point for point in state.checkpoints if point.name != name))


def rolled_back(state: ForkState, point: Checkpoint, upper: str) -> ForkState:
    """Stand on the layers of a checkpoint again, with a new, empty upper. No checkpoint is lost."""
    return state._replace(layers=point.layers, upper=upper)


def forked(state: ForkState, name: str, upper: str, time: int, layers: tuple[str, ...] | None = None) -> ForkState:
    """A new fork on the sealed layers of this one (or of a checkpoint: ``layers``)."""
    below = state.layers if layers is None else layers
    return ForkState(upper, below, state.base, time, name, named=True)


def flattened(state: ForkState, count: int, merged: str) -> ForkState:
    """The lowest ``count`` layers replaced by one that holds what they come to. Checkpoints keep theirs."""
    return state._replace(layers=(merged, *state.layers[count:]))


def free_name(state: ForkState, stem: str) -> str:
    """``stem-1``, ``stem-2`` …: the first that no checkpoint has."""
    taken = {point.name for point in state.checkpoints}
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def to_text(state: ForkState) -> str:
    return "".join(f"{line}\n" for line in _lines(state))


def _lines(state: ForkState) -> Iterator[str]:
    yield f"mudroom-fork {FORMAT}"
    yield f"upper {state.upper}"
    yield " ".join(("layers", *state.layers))
    yield f"base {state.base}"
    yield f"created {state.created}"
    if state.parent:
        yield f"parent {state.parent}"
    if state.named:
        yield "named"
    for point in state.checkpoints:
        kind = "automatic" if point.automatic else "checkpoint"
        yield " ".join((kind, point.name, str(point.time), *point.layers))
    yield "end"


def from_text(text: str) -> ForkState:
    """Raises ValueError, saying what is wrong: a newer format, a line that is not known, an end that is missing."""
    lines = text.splitlines()
    head = lines[0].split(" ") if lines else []
    if len(head) != 2 or head[0] != "mudroom-fork" or not head[1].isdigit():
        raise ValueError("does not begin as the state of a fork does")
    if int(head[1]) > FORMAT:
        raise ValueError(f"has format {head[1]}, this mudroom knows {FORMAT}")
    if lines[-1] != "end":
        raise ValueError("is cut off")
    facts: dict[str, tuple[str, ...]] = {}
    points: list[Checkpoint] = []
    for line in lines[1:-1]:
        word, *rest = line.split(" ")
        if word in ("checkpoint", "automatic") and len(rest) >= 2 and rest[1].isdigit():
            points.append(Checkpoint(rest[0], int(rest[1]), _ids(rest[2:]), word == "automatic"))
        elif word in ("upper", "layers", "base", "created", "parent", "named") and word not in facts:
            facts[word] = tuple(rest)
        else:
            raise ValueError(f"has a line that makes no sense: {line!r}")
    try:
        (upper,), (base,), (created,) = facts["upper"], facts["base"], facts["created"]
        (parent,) = facts.get("parent", ("",))
        state = ForkState(upper, facts["layers"], base, int(created), parent)
    except (KeyError, ValueError):
        raise ValueError("lacks upper, layers, base or created") from None
    _ids((state.upper, *state.layers, state.base))
    return state._replace(named="named" in facts, checkpoints=tuple(points))


def _ids(words: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Ids become names of directories, so they must be plain."""
    for word in words:
        if not word.isalnum() or not word.isascii():
            raise ValueError(f"has a layer with a name that makes no sense: {word!r}")
    return tuple(words)

"""A fork's state as a value: its layers and its checkpoints, and the operations on them.

Layers are named by vault ids. All layers except ``upper`` are sealed: they are never written again, so any number of
forks and checkpoints can share them. A checkpoint, a rollback or a fork from a fork therefore costs the same for ten
files and for a million: each only writes a new list of ids.

The text form has one fact per line. A person can read it, and no library has to be loaded to parse it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.typing import NamedTuple

FORMAT = 2
LIVE = "live"
"""The base if a fork stands on the live project directory. Other bases are snapshot ids."""


class Checkpoint(NamedTuple):
    name: str
    time: int
    """Nanoseconds since 1970."""
    layers: tuple[str, ...]
    """Sealed layers, bottom first."""
    automatic: bool = False
    """Created by mudroom before an operation that discards changes, not by the user."""


class PrivateRepository(NamedTuple):
    """The layer with a private ``.git``, between the base and a fork's layers."""

    layer: str
    stamp: str
    """Digest of the user's repository state from which it was made; ``0`` if it has to be made anew."""


class ForkState(NamedTuple):
    upper: str
    layers: tuple[str, ...] = ()
    """Sealed layers, bottom first."""
    base: str = LIVE
    created: int = 0
    parent: str = ""
    """Name of the fork from which this fork was created; otherwise empty."""
    named: bool = False
    """The user named this fork, so it is kept after all its changes are applied."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Oldest first."""
    repository: PrivateRepository | None = None
    """None: ``.git`` is as in the base."""

    @property
    def references(self) -> frozenset[str]:
        """Ids of all layers that this fork needs."""
        return self.own_layers | {self.repository.layer} if self.repository is not None else self.own_layers

    @property
    def own_layers(self) -> frozenset[str]:
        """Ids of the layers written by commands of this fork, or of a fork that it comes from."""
        return frozenset((self.upper, *self.layers, *(layer for point in self.checkpoints for layer in point.layers)))

    def checkpoint(self, name: str) -> Checkpoint | None:
        return next((point for point in self.checkpoints if point.name == name), None)


def seal(state: ForkState, upper: str) -> ForkState:
    """Seal the current upper and use ``upper``, a new and empty layer."""
    return state._replace(layers=(*state.layers, state.upper), upper=upper)


def with_checkpoint(state: ForkState, name: str, time: int, *, automatic: bool = False) -> ForkState:
    """Record the sealed layers as a checkpoint. If the upper contains changes, call ``seal`` first."""
    point = Checkpoint(name, time, state.layers, automatic)
    return state._replace(checkpoints=(*state.checkpoints, point))


def without_checkpoint(state: ForkState, name: str) -> ForkState:
    return state._replace(checkpoints=tuple(point for point in state.checkpoints if point.name != name))


def rolled_back(state: ForkState, point: Checkpoint, upper: str) -> ForkState:
    """Return to a checkpoint's layers, with a new and empty upper. All checkpoints are kept."""
    return state._replace(layers=point.layers, upper=upper)


def forked(
    state: ForkState, name: str, upper: str, time: int, layers: tuple[str, ...] | None = None, *, named: bool = True
) -> ForkState:
    """Return a new fork on this fork's sealed layers, or on ``layers``, those in a checkpoint."""
    below = state.layers if layers is None else layers
    return ForkState(upper, below, state.base, time, name, named=named, repository=state.repository)


def flattened(state: ForkState, count: int, merged: str) -> ForkState:
    """Replace the lowest ``count`` layers by the layer ``merged`` with the same contents. Checkpoints that include all
    the replaced layers now stand on ``merged``, too, so that the fork still equals its last checkpoint; the others keep
    their layers."""
    lowest = state.layers[:count]

    def on_merged(point: Checkpoint) -> Checkpoint:
        if point.layers[:count] != lowest:
            return point
        return point._replace(layers=(merged, *point.layers[count:]))

    points = tuple(map(on_merged, state.checkpoints))
    return state._replace(layers=(merged, *state.layers[count:]), checkpoints=points)


def free_name(state: ForkState, stem: str) -> str:
    """Return ``stem-1``, ``stem-2`` …: the first name that no checkpoint has."""
    taken = {point.name for point in state.checkpoints}
    number = 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


def to_text(state: ForkState) -> str:
    lines = (*_head(state), *map(checkpoint_line, state.checkpoints), "end")
    return "".join(f"{line}\n" for line in lines)


class NewerState(ValueError):
    """A newer mudroom has written the state."""


def head_text(state: ForkState) -> str:
    """Return the text before the checkpoint lines."""
    return "".join(f"{line}\n" for line in _head(state))


def checkpoint_line(point: Checkpoint) -> str:
    kind = "automatic" if point.automatic else "checkpoint"
    return " ".join((kind, point.name, str(point.time), *point.layers))


def _head(state: ForkState) -> Iterator[str]:
    yield f"mudroom-fork {FORMAT}"
    yield f"upper {state.upper}"
    yield " ".join(("layers", *state.layers))
    yield f"base {state.base}"
    yield f"created {state.created}"
    if state.parent:
        yield f"parent {state.parent}"
    if state.repository is not None:
        yield " ".join(("repository", *state.repository))
    if state.named:
        yield "named"


def from_text(text: str) -> ForkState:
    """Parse the text form. Raise ValueError with the reason: a newer format, an unknown line, a missing end."""
    lines = text.splitlines()
    head = lines[0].split(" ") if lines else []
    if len(head) != 2 or head[0] != "mudroom-fork" or not head[1].isdigit():
        raise ValueError("does not begin as the state of a fork does")
    if int(head[1]) > FORMAT:
        raise NewerState(f"has format {head[1]}, this mudroom knows {FORMAT}")
    if lines[-1] != "end":
        raise ValueError("is cut off")
    facts: dict[str, tuple[str, ...]] = {}
    points: list[Checkpoint] = []
    for line in lines[1:-1]:
        word, *rest = line.split(" ")
        if word in ("checkpoint", "automatic") and len(rest) >= 2 and rest[1].isdigit():
            points.append(Checkpoint(rest[0], int(rest[1]), _ids(rest[2:]), word == "automatic"))
        elif word in ("upper", "layers", "base", "created", "parent", "named", "repository") and word not in facts:
            facts[word] = tuple(rest)
        else:
            raise ValueError(f"has an invalid line: {line!r}")
    try:
        (upper,), (base,), (created,) = facts["upper"], facts["base"], facts["created"]
        (parent,) = facts.get("parent", ("",))
        state = ForkState(upper, facts["layers"], base, int(created), parent)
    except (KeyError, ValueError):
        raise ValueError("lacks upper, layers, base or created") from None
    _ids((state.upper, *state.layers, state.base))
    return state._replace(named="named" in facts, checkpoints=tuple(points), repository=_repository(facts))


def _repository(facts: dict[str, tuple[str, ...]]) -> PrivateRepository | None:
    if "repository" not in facts:
        return None
    try:
        layer, stamp = facts["repository"]
    except ValueError:
        raise ValueError("has an invalid line about its repository") from None
    _ids((layer, stamp))
    return PrivateRepository(layer, stamp)


def _ids(words: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Return the ids. Raise ValueError if an id is not ASCII letters and digits: ids become directory names."""
    together = "".join(words)
    if words and ("" in words or not together.isalnum() or not together.isascii()):
        wrong = next(word for word in words if not word.isalnum() or not word.isascii())
        raise ValueError(f"has an invalid layer name: {wrong!r}")
    return tuple(words)

"""Secrets that a fork holds because some of its commands were shown them, stored apart from the layers that all
commands get.

For each layer, in the vault (a container gets whole layers, and data beside their trees is not for its commands):

    shown/<id>/paths    the paths for this layer and those below it, separated by NUL; a path may have no entry yet
    shown/<id>/tree     the entries at these paths, whiteouts for deleted ones, and the directories above them
    shown/<id>.own      paths of secrets at which the layer has files written by commands that saw the secret empty;
                        same format as ``paths``

The tree is a layer itself: commands that may read these secrets have it above the sealed layers. When such a command
has ended, its secrets are moved from its writable layer to here (``take``), so that other commands may see that layer.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Collection, Iterable, Iterator, Mapping

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.closed_directory import entered, look_through
from mudroom.stage.layers.layer import LayerWriter, is_opaque, is_whiteout, read_directory, remove_at, remove_tree
from mudroom.stage.source import Source
from mudroom.typing import Literal

_FEW = 16
"""Up to this many paths are looked up one by one."""
PATHS, TREE = b"/paths", b"/tree"
HELD = b"/shown"
"""In a snapshot: the paths of secrets that it holds, because it was made for a command that was shown them."""

Hidden = Literal["hidden"]
"""A layer has no entry at a path, and hides the entry in the tree below."""


def shown_place(layer: bytes) -> bytes:
    """Return the directory for a layer's shown secrets. ``layer`` is the layer's directory."""
    vault, _layers, name = layer.rpartition(b"/layers/")
    return vault + b"/shown/" + name


def own_paths(layer: bytes) -> frozenset[bytes]:
    """Return the paths of secrets at which a layer has files written by commands that saw the secret empty."""
    return read_paths(shown_place(layer) + b".own")


def add_own_paths(layer: bytes, paths: frozenset[bytes]) -> None:
    before = own_paths(layer)
    if not paths <= before:
        place = shown_place(layer)
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        write_paths(place + b".own", paths | before)


def read_paths(path: bytes) -> frozenset[bytes]:
    """Return the paths in such a file; empty if it is missing."""
    try:
        with open(path, "rb") as stream:
            return frozenset(stream.read().split(b"\0")) - {b""}
    except FileNotFoundError:
        return frozenset()


def write_paths(path: bytes, paths: Iterable[bytes]) -> None:
    safe_open.replace(path, b"\0".join(sorted(paths)))


def find(root: int, path: bytes) -> Entry | Hidden | None:
    """Return an open layer's entry at ``path``, or None if the tree below the layer shows through there."""
    at, hidden = b"", False
    for part in path.split(b"/"):
        at = at + b"/" + part if at else part
        entry = look_through(root, at)
        if entry is None:
            return "hidden" if hidden else None
        if is_whiteout(root, at, entry) or (at != path and entry.kind != "directory"):
            return "hidden"
        if at == path:
            return entry
        hidden = hidden or is_opaque(root, at)
    return None


def find_in(layer: bytes, paths: Iterable[bytes]) -> dict[bytes, Entry | Hidden]:
    """Return the entries that the layer in this directory has at these paths, without paths at which the tree below
    shows through."""
    try:
        root = open_layer(layer + TREE)
    except FileNotFoundError:
        return {}
    with Descriptor(root):
        chosen = list(paths)
        chosen = _possible(root, chosen) if len(chosen) > _FEW else chosen
        return {path: found for path in chosen if (found := find(root, path)) is not None}


def _possible(root: int, paths: list[bytes]) -> list[bytes]:
    """Return the paths at which a layer may have an entry. The cost depends on the layer's size, not on the path
    count."""
    chosen: list[bytes] = []
    pending = [(b"", paths)]
    while pending:
        above, below = pending.pop()
        listing = read_directory(root, above)
        if listing is None or listing.opaque:
            chosen += below
            continue
        by_name: dict[bytes, list[bytes]] = {}
        for path in below:
            name = path[len(above) + 1 if above else 0 :].partition(b"/")[0]
            if name in listing.entries or name in listing.gone:
                by_name.setdefault(name, []).append(path)
        for name, inside in by_name.items():
            at = above + b"/" + name if above else name
            entry = listing.entries.get(name)
            if entry is None or entry.kind != "directory" or at in inside:
                chosen += inside
            else:
                pending.append((at, inside))
    return sorted(chosen)


def take(layer: bytes, paths: Collection[bytes], former: bytes, lower: Source) -> frozenset[bytes]:
    """Move the entries that the layer in this directory has at these paths to its shown secrets. Return the moved
    paths.

    ``former``: directory with the shown secrets for the layers below, or for this one; empty if there are none.
    ``lower``: the tree below the layer, as seen by the commands that wrote these paths. A path that they have removed
    gets a whiteout. The layer must not be mounted. After a crash, a path is in exactly one of both places.
    """
    found = find_in(layer, sorted(paths))
    below = {path: lower.look(path) for path, seen in found.items() if seen == "hidden"}
    moved = {path: seen for path, seen in found.items() if seen != "hidden" or below[path] is not None}
    if not moved:
        return frozenset()
    root = open_layer(layer + TREE)
    into = open_layer(_place(layer, former, moved, lower) + TREE)
    with Descriptor(root), Descriptor(into):
        writer = LayerWriter(into, _Above(root, lower, below))
        try:
            for path, seen in moved.items():
                _move(root, writer, path, seen)
        finally:
            writer.finish()
    return frozenset(moved)


def add_copy(layer: bytes, path: bytes, opened: int, former: bytes, lower: Source) -> None:
    """Add a copy of an open file to a layer's shown secrets. ``former``, ``lower``: as for ``take``."""
    info = os.fstat(opened)
    with Descriptor(open_layer(_place(layer, former, [path], lower) + TREE)) as into:
        writer = LayerWriter(into, lower)
        writer.file(path, opened, mode=info.st_mode & 0o7777, mtime=info.st_mtime_ns, xattrs=True)
        writer.finish()


class _Above:
    """A layer's directories over the tree below it, for the modes of directories that lead to a shown secret.
    ``known``: entries in that tree at the paths that are being replaced."""

    def __init__(self, root: int, lower: Source, known: Mapping[bytes, Entry | None]) -> None:
        self._root, self._lower, self._known = root, lower, known

    def look(self, path: bytes) -> Entry | None:
        if path in self._known:
            return self._known[path]
        entry = look_through(self._root, path)
        return entry if entry is not None and entry.kind == "directory" else self._lower.look(path)

    def names(self, path: bytes) -> dict[bytes, Entry]:
        return self._lower.names(path)

    def open(self, path: bytes) -> int:
        return self._lower.open(path)


def _move(root: int, writer: LayerWriter, path: bytes, seen: Entry | Hidden) -> None:
    above, _slash, name = path.rpartition(b"/")
    if seen != "hidden":
        writer.moved(path, root)
        return
    writer.whiteout(path)
    entry = look_through(root, path)
    if entry is not None and is_whiteout(root, path, entry):
        with entered(root, above) as opened:
            disk.unlink(opened, name)


def _place(layer: bytes, former: bytes, paths: Iterable[bytes], lower: Source) -> bytes:
    """Return the directory for a layer's shown secrets, after adding these paths to its list. A new directory starts
    with the ``former`` secrets."""
    place = shown_place(layer)
    if not os.path.isdir(place):
        os.makedirs(os.path.dirname(place), 0o700, exist_ok=True)
        before = read_paths(former + PATHS) if former else frozenset()
        make_part(former, before, place, lower)
    write_paths(place + PATHS, read_paths(place + PATHS) | {*paths})
    return place


def make_part(former: bytes, paths: Iterable[bytes], place: bytes, lower: Source | None) -> None:
    """Create the directory ``place`` with some of the shown secrets in ``former``, as links to its files."""
    from mudroom.stage.layers.flatten import flatten

    beside = place + b".new"
    if os.path.lexists(beside):
        remove_tree(beside)  # left by a crash
    os.mkdir(beside, 0o700)
    os.mkdir(beside + TREE, 0o700)
    chosen = frozenset(paths)
    if chosen:
        flatten([former + TREE], beside + TREE)
        for path in find_in(beside, read_paths(former + PATHS) - chosen):
            _remove(beside, path)
    else:
        top = lower.look(b"") if lower is not None else None
        os.chmod(beside + TREE, top.mode if top is not None else 0o755)
    write_paths(beside + PATHS, chosen)
    disk.rename_path(beside, place)


def _remove(place: bytes, path: bytes) -> None:
    above, _slash, name = path.rpartition(b"/")
    with Descriptor(open_layer(place + TREE)) as root, entered(root, above) as opened:
        remove_at(opened, name)


def part_of(place: bytes, allowed: frozenset[bytes], above: bytes, lower: Source) -> bytes:
    """Return a directory with only the allowed secrets from ``place``: ``place`` itself if it has no others, otherwise
    a directory below ``above``, created if it does not exist."""
    if read_paths(place + PATHS) <= allowed:
        return place
    entries = [(path, entry) for path, entry in entries_of(place) if path in allowed]
    name = blake2b(repr((place, entries)).encode(), digest_size=12).hexdigest().encode()
    part = above + b"/shown-" + name
    if not os.path.isdir(part):
        make_part(place, allowed, part, lower)
    return part


def entries_of(place: bytes) -> Iterator[tuple[bytes, Entry | None]]:
    """Yield each shown secret's path and entry, followed by everything below it if it is a directory. The entry is None
    if it is deleted."""
    for path, found in sorted(find_in(place, read_paths(place + PATHS)).items()):
        yield path, None if found == "hidden" else found
        if found != "hidden" and found.kind == "directory":
            yield from _below(place + TREE, path)


def _below(tree: bytes, path: bytes) -> Iterator[tuple[bytes, Entry]]:
    with Descriptor(open_layer(tree)) as root:
        pending = [path]
        while pending:
            at = pending.pop()
            listing = read_directory(root, at)
            for name, entry in listing.entries.items() if listing is not None else ():
                yield at + b"/" + name, entry
                if entry.kind == "directory":
                    pending.append(at + b"/" + name)


def with_shown(layers: tuple[bytes, ...], upper: bytes, shown: bytes, masked: Collection[bytes]) -> tuple[bytes, ...]:
    """Return the directories from which a fork's changes are read: its layers, topmost first, with the shown secrets
    inserted. They come above the files written by commands that saw the secrets empty, otherwise last, since the
    directories in them have no changes. ``masked``: secrets hidden from all commands that may be writing now."""
    paths = read_paths(shown + PATHS)
    for number, tree in enumerate(layers):
        found = find_in(tree.removesuffix(TREE), paths)
        if any(tree != upper or path in masked for path in found):
            return (*layers[:number], shown + TREE, *layers[number:])
    return (*layers, shown + TREE)


class WithSecrets:
    """A tree in which some paths, with everything below them, come from another tree, as do missing directories above
    them. Valid as long as both trees are."""

    def __init__(self, source: Source, other: Source, paths: Collection[bytes]) -> None:
        self._source, self._other = source, other
        self._names: dict[bytes, set[bytes]] = {}
        """Per directory above these paths: the names that lead to them."""
        for path in paths:
            while path:
                above, _slash, name = path.rpartition(b"/")
                self._names.setdefault(above, set()).add(name)
                path = above
        self._paths = frozenset(paths)

    def _of(self, path: bytes) -> Source:
        at = path
        while at:
            if at in self._paths:
                return self._other
            at = at.rpartition(b"/")[0]
        return self._source

    def look(self, path: bytes) -> Entry | None:
        source = self._of(path)
        entry = source.look(path)
        if source is self._source and path in self._names and not _is_directory(entry):
            above = self._other.look(path)
            return above if _is_directory(above) else entry
        return entry

    def names(self, path: bytes) -> dict[bytes, Entry]:
        source = self._of(path)
        if source is not self._source or path not in self._names:
            return source.names(path)
        entries = source.names(path) if not path or _is_directory(source.look(path)) else {}
        for name in self._names[path]:
            entry = self.look(path + b"/" + name if path else name)
            if entry is not None:
                entries[name] = entry
            else:
                entries.pop(name, None)
        return entries

    def open(self, path: bytes) -> int:
        return self._of(path).open(path)


def _is_directory(entry: Entry | None) -> bool:
    return entry is not None and entry.kind == "directory"


def carry(layers: list[bytes], target: bytes) -> None:
    """Give a merged layer the data that is stored beside its source layers' trees. ``layers`` are their directories,
    topmost first."""
    shown = next((place for place in map(shown_place, layers) if os.path.isdir(place)), b"")
    if shown:
        make_part(shown, read_paths(shown + PATHS), shown_place(target), None)
    own: Mapping[bytes, frozenset[bytes]] = {layer: own_paths(layer) for layer in layers}
    candidates = frozenset[bytes]().union(*own.values())
    kept = set[bytes]()
    for layer in layers:
        found = find_in(layer, candidates)
        kept |= found.keys() & own[layer]
        candidates -= found.keys()
    if kept:
        add_own_paths(target, frozenset(kept))

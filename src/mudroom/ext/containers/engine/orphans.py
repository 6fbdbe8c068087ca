"""Find and remove what crashes leave: containers without an owner, doors without a container, older versions' runtimes.

Most crashes leave none: a launcher ends with its owner, and its engine then removes the container. Orphans come from an
engine that was killed as well, or from an owner that was killed between creating a container and starting it.

A directory that mudroom owns is held by a lock (flock(2)) while it is in use. The lock ends with its holder, in any
namespace. A directory is made or removed only under its parent's lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import LABEL, Engine, list_argv, remove_argv
from mudroom.ext.containers.engine.engine import ask
from mudroom.ext.containers.engine.owner import Owner, is_gone, parse
from mudroom.typing import Any

OWNER = LABEL + ".owner"
_ENDED = ("exited", "dead", "stopped")
"""States in which a container has run, in the engines' words."""
_MADE = ("created", "configured", "initialized")
"""States in which a container has not run yet."""
OLD = 24 * 3600.0
"""Seconds for which another version's runtime is kept: the user may switch back and forth."""


def rows(listed: bytes) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield name or id, state and labels for each container in an engine's list; unreadable entries are left out."""
    for entry in _objects(listed.decode("utf-8", "replace")):
        name = entry.get("ID") or entry.get("Id")
        if isinstance(name, str) and name:
            yield name, str(entry.get("State", "")).lower(), _labels(entry.get("Labels"))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list: Docker prints an object per line, Podman one array over many lines."""
    for part in (text,) if text.lstrip().startswith("[") else text.splitlines():
        try:
            value = json.loads(part)
        except ValueError:
            continue
        yield from (entry for entry in (value if isinstance(value, list) else [value]) if isinstance(entry, dict))


def _labels(listed: object) -> dict[str, str]:
    """Parse labels: Docker prints them as one text, ``key=value,key=value``; Podman as an object."""
    if isinstance(listed, dict):
        return {str(key): str(value) for key, value in listed.items()}
    return dict(part.partition("=")[::2] for part in str(listed or "").split(","))


def orphans(listed: bytes, current: Owner, *, remote: bool = False) -> list[str]:
    """Return the containers in an engine's list that have no owner any more. With ``remote``, owners may be alive on
    other machines, which have another boot, too: a container that has not run yet may be about to. With an engine on
    this machine, another boot is an earlier one, and a container that was only created then will never be started."""
    names, ended = [], _ENDED if remote else (*_ENDED, *_MADE)
    for name, state, labels in rows(listed):
        owner = parse(labels.get(OWNER, ""))
        if LABEL in labels and owner is not None and is_gone(owner, current, ended=state in ended):
            names.append(name)
    return names


def sweep_containers(engine: Engine, environ: Mapping[bytes, bytes], current: Owner) -> int:
    """Remove orphaned containers, and return their number. Raise MudroomError if the engine does not answer."""
    names = orphans(ask(list_argv(engine), environ), current, remote=engine.remote)
    for name in names:
        with suppress(MudroomError):  # another process, or the engine itself, is removing it
            ask(remove_argv(engine, name), environ)
    return len(names)


@contextmanager
def _locked(path: bytes) -> Iterator[int]:
    with Descriptor(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor


def make_held(place: bytes, mode: int) -> int:
    """Make a directory and hold it. Return a descriptor; closing it ends the hold. Raise OSError."""
    with _locked(os.path.dirname(place)):
        os.mkdir(place)
        os.chmod(place, mode)
        return hold(place)


def hold(place: bytes) -> int:
    """Hold a directory, together with other holders. Raise OSError if it is gone."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ClosedOnError(descriptor):
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def hold_below(place: bytes) -> int:
    """Hold a directory that other processes remove when it is not held: take the parent's lock first. Raise OSError if
    it is gone."""
    with _locked(os.path.dirname(place)):
        return hold(place)


def sweep_directory(parent: bytes, *, older: float = 0.0) -> int:
    """Remove every directory that is not held and has not been changed for ``older`` seconds; return their number."""
    if not os.path.isdir(parent):
        return 0
    count = 0
    with _locked(parent):
        for name in os.listdir(parent):
            place = parent + b"/" + name
            if os.path.isdir(place) and not os.path.islink(place):
                count += _sweep(place, older)
    return count


def _sweep(place: bytes, older: float) -> bool:
    """Remove a directory if it is not held. Return whether it was removed."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(place).st_mtime < older:
            return False
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            # Under the directory's own lock, so no process can hold it half-removed.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return False

"""What crashes have left: containers without an owner, doors without a container, runtimes of older versions.

Most crashes leave nothing: a launcher ends with its owner, and its engine removes the container then. What is left is
of an engine that was killed as well, or of one who was killed between a container's making and its start.

What lies in our own directory is held by a lock (flock(2)) as long as somebody uses it: that ends with its holder in
whatever namespace he is. A directory is made, and one is taken away, only under the lock of the directory above.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from mudroom.core.confinement.container import LABEL, Engine, list_argv, remove_argv
from mudroom.errors import MudroomError
from mudroom.sandbox.container.engine import ask
from mudroom.sandbox.container.owner import Owner, is_gone, parse

OWNER = LABEL + ".owner"
_ENDED = ("exited", "dead", "stopped")
"""States of containers that have run, as the engines name them."""
_MADE = ("created", "configured", "initialized")
"""Of containers that have not run yet."""
OLD = 24 * 3600.0
"""Seconds for which a runtime is kept that is not this version's: somebody may be going back and forth."""


def rows(listed: bytes) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Name or id, state, labels of the containers in an engine's list; what cannot be read is left out."""
    for found in _objects(listed.decode("utf-8", "replace")):
        name = found.get("ID") or found.get("Id")
        if isinstance(name, str) and name:
            yield name, str(found.get("State", "")).lower(), _labels(found.get("Labels"))


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """Docker prints an object a line, Podman one array over many lines."""
    for part in (text,) if text.lstrip().startswith("[") else text.splitlines():
        try:
            found = json.loads(part)
        except ValueError:
            continue
        yield from (one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict))


def _labels(found: object) -> dict[str, str]:
    """Docker has them as one text, ``key=value,key=value``; Podman as an object."""
    if isinstance(found, dict):
        return {str(key): str(value) for key, value in found.items()}
    return dict(part.partition("=")[::2] for part in str(found or "").split(","))


def orphans(listed: bytes, here: Owner, *, remote: bool = False) -> list[str]:
    """Of an engine's list those that nobody owns any more. ``remote``: owners may be on other machines, which are of
    another boot, too, and live: what has not run yet may be about to. With an engine of this machine another boot is
    an earlier one, and what it has only made nobody starts any more."""
    found, over = [], _ENDED if remote else (*_ENDED, *_MADE)
    for name, state, labels in rows(listed):
        owner = parse(labels.get(OWNER, ""))
        if LABEL in labels and owner is not None and is_gone(owner, here, ended=state in over):
            found.append(name)
    return found


def sweep_containers(engine: Engine, environ: Mapping[bytes, bytes], here: Owner) -> int:
    """Remove them; how many there were. Raises MudroomError if the engine does not answer."""
    found = orphans(ask(list_argv(engine), environ), here, remote=engine.remote)
    for name in found:
        with suppress(MudroomError):  # somebody else, or the engine itself, is just removing it
            ask(remove_argv(engine, name), environ)
    return len(found)


@contextmanager
def _locked(path: bytes) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def make_held(place: bytes, mode: int) -> int:
    """Make a directory, and hold it: a descriptor, whose end lets it go. Raises OSError."""
    with _locked(os.path.dirname(place)):
        os.mkdir(place)
        os.chmod(place, mode)
        return hold(place)


def hold(place: bytes) -> int:
    """Hold a directory beside others who may. Raises OSError if it is gone."""
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def hold_below(place: bytes) -> int:
    """The same where others take away what nobody holds: not while it is looked for. Raises OSError if it is gone."""
    with _locked(os.path.dirname(place)):
        return hold(place)


def sweep_directory(parent: bytes, *, keep: bytes = b"", older: float = 0.0) -> int:
    """Remove every directory that nobody holds and that has not been changed for ``older`` seconds; how many."""
    if not os.path.isdir(parent):
        return 0
    count = 0
    with _locked(parent):
        for name in os.listdir(parent):
            place = parent + b"/" + name
            if name != keep and os.path.isdir(place) and not os.path.islink(place):
                count += _sweep(place, older)
    return count


def _sweep(place: bytes, older: float) -> bool:
    """Remove a directory if it is free, under its lock: nobody comes to hold what is half gone. Whether it was."""
    with suppress(FileNotFoundError):
        if time.time() - os.stat(place).st_mtime < older:
            return False
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(place, ignore_errors=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(descriptor)
    return False

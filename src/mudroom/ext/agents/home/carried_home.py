"""A fork's copies of its agents' stores, for a fork that is made of it: a conversation goes on in both.

Copies of the host's logins stay behind, since the next command is given the host's. Sandboxes have written in the
stores, and may be writing: every file is opened by descriptor, and no link is followed.
"""

from __future__ import annotations

import json
import os
from contextlib import closing

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.ext.agents.home.agent_home import STORE
from mudroom.ext.agents.home.login import copied_logins
from mudroom.stage import disk, safe_open
from mudroom.stage.copy import clone, listed
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.union import staged_source

MOST_CARRIED = 1 << 30
"""Bytes in a store."""


def carry_homes(above: bytes, below: bytes) -> list[str]:
    """Copy the stores of the fork at ``above`` to the new fork at ``below``. Return a note for each too large store."""
    homes, notes = above + b"/home", list[str]()
    for name in sorted(os.listdir(homes)) if os.path.isdir(homes) else ():
        if not os.path.exists(homes + b"/" + name + STORE):
            continue  # cut off before its first command
        if not _carry(homes + b"/" + name, below + b"/home/" + name):
            size = f"larger than {MOST_CARRIED >> 20} MiB"
            notes.append(f"{show(name)}'s store in {show(os.path.basename(above))} is {size}: the new fork has none")
            remove_tree(below + b"/home/" + name)
    return notes


def _carry(place: bytes, target: bytes) -> bool:
    """Copy a store, its record last. Return whether it was small enough."""
    places = [os.fsencode(path) for path, _source, _is_directory in json.loads(safe_open.read(place + STORE))["places"]]
    logins = copied_logins(place)
    numbers = [number for number in range(len(places)) if os.path.lexists(place + b"/%d" % number)]
    left = MOST_CARRIED
    os.makedirs(target, mode=0o700)
    for number in numbers:
        at, to = place + b"/%d" % number, target + b"/%d" % number
        if not os.path.isdir(at) or os.path.islink(at):
            _copy(at, to)
            continue
        with closing(staged_source((at,))) as source:
            left_out = {login[len(places[number]) + 1 :] for login in logins if is_below(login, places[number])}
            items = listed(source, lambda path, _entry, left_out=left_out: path in left_out)  # type: ignore[misc]
            left -= sum(entry.size for entry in items.values() if entry.kind == "file")
            if left < 0:
                return False
            os.mkdir(to, 0o700)
            with Descriptor(safe_open.open_directory(to)) as root:
                clone(source, root, items)
    for name in (b"/base", STORE):
        if os.path.exists(place + name):
            _copy(place + name, target + name)
    return True


def _copy(place: bytes, target: bytes) -> None:
    with open(disk.open_path(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600), "wb") as stream:
        stream.write(safe_open.read(place))

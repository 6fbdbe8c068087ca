"""The conversations of a fork that is being discarded: stored for a day, as files that commands wrote outside the
project (``ext/outside``)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from mudroom.core.registry import part_or_none
from mudroom.core.result import LeftFile
from mudroom.core.text.plural import counted
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.artifact import matcher
from mudroom.ext.agents.home.agent_home import STORE
from mudroom.ext.agents.home.staged_file import open_own, walk
from mudroom.stage import safe_open
from mudroom.stage.beneath import open_file
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault


def keep_conversations(vault: Vault, fork: Fork, time: int) -> Iterator[str]:
    """Store the conversations that agents have had in the fork, and yield a note for each agent. Hold the fork's lock.
    ``time``: as in ``ext/outside``."""
    outside, homes = part_or_none("outside", "store"), fork.path + b"/home"
    for agent in sorted(os.listdir(homes)) if os.path.isdir(homes) else ():
        if not os.path.exists(homes + b"/" + agent + STORE):
            continue  # no store, or cut off before its first command
        opened: list[tuple[bytes, int]] = []
        try:
            left = list(_conversation(homes + b"/" + agent, opened))
            kept = outside.keep(vault, fork.name, left, opened, None, time) if outside is not None else ()
        except (OSError, ValueError, LookupError, MudroomError) as error:  # the fork is discarded all the same
            yield f"the conversations with {show(agent)} in {fork.name} are gone, too: they cannot be stored: {error}"
            continue
        finally:
            for _path, root in opened:
                os.close(root)
        count = sum(file.kept for file in kept)
        end = f"{counted(count, 'file')} of {len(left)} can be had for a day: mudroom keep {fork.name}"
        if left:
            yield f"{fork.name} had a conversation with {show(agent)}; {end if count else 'it is gone, too'}"


def read_conversations(fork: Fork, most: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield the agent, the name and at most ``most`` bytes of each file of the fork's conversations. A store that
    cannot be read is left out."""
    homes = fork.path + b"/home"
    for agent in sorted(os.listdir(homes)) if os.path.isdir(homes) else ():
        opened: list[tuple[bytes, int]] = []
        try:
            for file in _conversation(homes + b"/" + agent, opened):
                place, root = opened[-1]
                with open(open_file(root, file.path[len(place) + 1 :]), "rb") as stream:
                    yield os.fsdecode(agent), show(file.path.rpartition(b"/")[2]), stream.read(most)
        except (OSError, ValueError, LookupError, MudroomError):
            continue
        finally:
            for _path, root in opened:
                os.close(root)


def _conversation(store: bytes, opened: list[tuple[bytes, int]]) -> Iterator[LeftFile]:
    """Yield a conversation's files by their paths on the host. The store's directories are added to ``opened``."""
    saved = json.loads(safe_open.read(store + STORE))
    is_spoken = matcher(tuple(saved["transcripts"]))
    for number, (name, _source, is_directory) in enumerate(saved["places"]):
        if not is_directory or not os.path.isdir(store + b"/%d" % number):
            continue
        root = open_own(store + b"/%d" % number)
        opened.append((os.fsencode(saved.get("home", "")) + b"/" + os.fsencode(name), root))
        for path, file, size in walk(root, lambda _path: False):
            if is_spoken(os.fsencode(name) + b"/" + path) and not file.digest.startswith("link:"):
                yield LeftFile(opened[-1][0] + b"/" + path, size)

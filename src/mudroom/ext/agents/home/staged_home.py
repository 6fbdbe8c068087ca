"""A fork's own parts of the home, for an agent's command: the copy of its store, and the user's git and shell settings.
Also host files that a command shares: logins, and single-file credential stores."""

from __future__ import annotations

import _thread
import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from mudroom.core.confinement.fallback import CONTAINERS, ELSEWHERE, Mode
from mudroom.core.confinement.spec import Bind
from mudroom.core.settings import Settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.ext.agents.core.login import LARGEST
from mudroom.ext.agents.home.agent_home import STORE, AgentHome
from mudroom.ext.agents.home.dotfiles import PLACE, SETTINGS, Dotfiles
from mudroom.ext.agents.home.login import FILES, IN_HOME, LoginKeeper, StagedLogin, copied_logins
from mudroom.session.confinement.confinement import Confinement, owner_inside
from mudroom.session.confinement.grant import Grant
from mudroom.stage import disk, safe_open
from mudroom.stage.copy import clone, listed
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.union import staged_source
from mudroom.vault.store.fork import Fork


class SharedHomeFiles:
    """Files that a command shares with the host, kept equal on both sides. Thread-safe: ``_lock``."""

    def __init__(self, logins: tuple[LoginKeeper, ...], files: LoginKeeper | None) -> None:
        """``files``: keeps the single-file stores."""
        self._logins, self._files = (*logins, *([files] if files is not None else [])), files
        self._lock = _thread.allocate_lock()
        self._is_closed = False

    def enter(self, home: int) -> None:
        """Keep the copies in the command's home from now on. ``home``: a descriptor, which this closes."""
        with self._lock:
            if self._files is None or self._is_closed:
                os.close(home)
            else:
                self._files.enter(home)

    def look(self, *, has_ended: bool = False) -> None:
        """Copy changes to the other side; to be called now and then while the command runs. ``has_ended``: one of the
        commands that share the files has ended."""
        with self._lock:
            if self._is_closed:
                return
            for login in self._logins:
                login.look(has_ended=has_ended)

    def close(self) -> list[str]:
        """Copy changes a last time: the commands have ended. Return notes, once."""
        with self._lock:
            if self._is_closed:
                return []
            self._is_closed = True
            for login in self._logins:
                login.close()
            return [note for login in self._logins for note in login.notes]


@contextmanager
def command_home(
    confinement: Confinement, fork: Fork, grant: Grant, mode: Mode, settings: Settings, note: Callable[..., None]
) -> Iterator[tuple[Grant, SharedHomeFiles | None]]:
    """Yield a command's grant with these parts at their places in the home, and the files that it shares with the host
    (None: it shares none), until it has ended. ``note`` is called with omitted files, and with logins that could not be
    kept. Hold the fork's lock; no process of the fork may live."""
    own, logins = _with_home(confinement, fork, grant, mode, note, is_staged=settings.home == "staged")
    copied = _login_paths(confinement, grant) if logins else frozenset()
    keeper: LoginKeeper | None = None
    if mode in ("overlay", "copy", "landlock") and grant.level == 1 and settings.home != "staged":
        own, keeper = _with_files(confinement, fork, own, mode, settings)
    placed = {path for path, _content in own.files}
    keeper = _with_mounted(confinement, fork, [bind for bind in grant.live if bind.path not in copied | placed], keeper)
    if not logins and keeper is None:
        yield own, None
        return
    files = SharedHomeFiles(logins, keeper)
    try:
        yield own, files
    finally:
        note(*files.close())


def _login_paths(confinement: Confinement, grant: Grant) -> frozenset[bytes]:
    return frozenset(confinement.home + b"/" + token for staged in grant.staged for token in staged.store.tokens)


def _with_files(
    confinement: Confinement, fork: Fork, grant: Grant, mode: Mode, settings: Settings
) -> tuple[Grant, LoginKeeper | None]:
    """Return the grant with the single-file stores as plain files in the command's home, so that programs can replace
    them, and their keeper; None if there are none. A file in a cache or in another mount stays a mount."""
    home = confinement.home + b"/"
    single = [bind for bind in grant.live if bind.writable and _is_single(bind, home)]
    if not single:
        return grant, None
    others = grant._replace(live=tuple(bind for bind in grant.live if bind not in single))
    caches = [os.path.realpath(place) for _name, place in confinement.cache_places(mode, settings, grant)]
    mounted = (*caches, *(bind.path for bind in others.live))
    plain = [
        bind
        for bind in single
        if not any(is_below(bind.path, place) for place in mounted)
        and confinement.is_writable(bind.path, settings, others)
    ]
    if not plain:
        return grant, None
    keeper = LoginKeeper(fork.path + b"/home/" + FILES)
    paths = {bind.path[len(home) :]: bind for bind in plain}
    files = {
        paths[file.path].path: content
        for file, content in keeper.contents(
            StagedLogin(path, bind.source, IN_HOME, path, "") for path, bind in paths.items()
        )
    }
    live = tuple(bind for bind in grant.live if bind.path not in files)
    return grant._replace(live=live, files=tuple(files.items())), keeper


def _is_plain(path: bytes) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) <= LARGEST


def _is_single(bind: Bind, home: bytes) -> bool:
    return bind.path.startswith(home) and os.path.isfile(bind.source)


def _with_mounted(
    confinement: Confinement, fork: Fork, opened: list[Bind], keeper: LoginKeeper | None
) -> LoginKeeper | None:
    """Return the keeper, or a new one, with the single-file stores that are mounts; None if there are none, or the
    command uses the host's file itself."""
    single = [bind for bind in opened if bind.writable and os.path.isfile(bind.source)]
    if not single or confinement.platform.first in ELSEWHERE:
        return keeper
    keeper = keeper or LoginKeeper(fork.path + b"/home/" + FILES)
    keeper.hold((bind.path.removeprefix(confinement.home + b"/"), bind.source) for bind in single)
    return keeper


def _with_home(
    confinement: Confinement, fork: Fork, grant: Grant, mode: Mode, note: Callable[..., None], *, is_staged: bool
) -> tuple[Grant, tuple[LoginKeeper, ...]]:
    """``is_staged``: the home is a part of the fork, with git's and the shells' settings in it."""
    if confinement.own_home != confinement.home:  # another user's, on this machine
        return grant._replace(staged=()), ()
    mounts, opened = mode not in ELSEWHERE, grant.live
    owner = owner_inside(grant.level)
    if grant.level and not is_staged and mode not in CONTAINERS and mode != "job":  # on Windows links need a privilege
        seen = Dotfiles(fork, confinement.home).prepare(mounts=mounts, owner=owner)
        grant = grant._replace(live=(*grant.live, seen.bind), links=seen.links)
    if not grant.staged:
        return grant, ()
    if not mounts and not grant.level:
        note(
            "the agent's store cannot be staged at level 0 without mounts: its settings are read-only, and its login "
            "can only be written in place"
        )
        return grant._replace(live=tuple(bind for bind in grant.live if bind.source == bind.path)), ()
    binds: list[Bind] = []
    keepers: list[LoginKeeper] = []
    for staged in grant.staged:
        home = AgentHome(fork, confinement.home, staged)
        binds += home.prepare(opened, owner=owner)
        note(*home.notes)
        keepers += [home.keeper] if home.keeper is not None else []
    logins = _login_paths(confinement, grant)
    grant = grant._replace(live=tuple(bind for bind in grant.live if bind.path not in logins))
    if mounts:
        return grant._replace(live=(*binds, *grant.live)), tuple(keepers)
    files = [bind for bind in binds if mode == "landlock" and _is_plain(bind.source)]  # for ``_with_files``
    linked = [bind for bind in binds if bind not in files]
    links = tuple((bind.source, bind.path) for bind in linked)
    own = [bind._replace(path=bind.source) for bind in (*linked, *grant.live)]
    return grant._replace(live=(*files, *own), links=(*grant.links, *links)), tuple(keepers)


def settings_places() -> tuple[bytes, ...]:
    """Return the places of the git and shell settings, relative to the home."""
    return (PLACE, *SETTINGS)


# --- a fork of a fork: a conversation goes on in both ---
# Copies of the host's logins stay behind, since the next command is given the host's. Sandboxes have written in the
# stores, and may be writing: every file is opened by descriptor, and no link is followed.

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

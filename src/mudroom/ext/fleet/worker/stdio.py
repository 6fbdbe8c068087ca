"""``mudroom worker --stdio``: descriptors 0 and 1 carry frames, and nothing else can reach them.

1. Our own descriptor 0 leads to /dev/null and 1 to stderr from then on, so neither a library nor a child writes into
   the link, or reads from it.
2. There is no listening socket. State is below one directory of this user, by the origin's unguessable name:

       worker/levels                    the levels that were tried here
       worker/ORIGIN/objects, grounds   objects and snapshots from this origin
       worker/ORIGIN/vaults/            the sessions' state
       worker/ORIGIN/NODE/              errands from one link after another, and the time of the last contact
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from mudroom import __version__
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire.frame import LinkError, encode
from mudroom.ext.fleet.wire.message import frame_of
from mudroom.ext.fleet.worker.base_cache import BaseCache
from mudroom.ext.fleet.worker.folder import ErrandFolders
from mudroom.ext.fleet.worker.frame_stream import FrameStream, OtherProtocol, origin_hello
from mudroom.ext.fleet.worker.gpu_pool import count_gpus
from mudroom.ext.fleet.worker.lease import Lease
from mudroom.ext.fleet.worker.link import WorkerFacts, WorkerLink
from mudroom.ext.fleet.worker.session_cache import WorkerEnvironment
from mudroom.ext.fleet.worker.tighten import own_policy
from mudroom.policy.config import places
from mudroom.session import Session
from mudroom.stage import safe_open
from mudroom.stage.private_directory import require_private
from mudroom.vault.record import FORMAT

# --- The isolation levels that errands can have on this machine. A command is run at each, at an origin's path ---
# The answer is kept while this machine runs this kernel and this mudroom, since a trial costs as much as a command, and
# a link should be up at once.


_BOOT = "/proc/sys/kernel/random/boot_id"
_ENGINES = ("docker", "podman")
_HOME, _ELSEWHERE = b"/home/mudroom-trial", b"/home/mudroom-trial/project"
"""An origin's paths, which this machine need not have. A level that cannot show them is none for errands."""


def tried_levels(place: bytes, environ: Mapping[bytes, bytes]) -> tuple[int, ...]:
    """Return the levels at which a shell has run. ``place``: a directory for the trial and its answer."""
    key = machine_key()
    answer = place + b"/levels"
    with suppress(FileNotFoundError):
        with open(answer, encoding="utf-8") as stream:
            known, _newline, levels = stream.read(4096).partition("\n")
        if known == key and all(word.isdigit() for word in levels.split()):
            return tuple(map(int, levels.split()))
    levels_here = tuple(level for level in LEVELS if _runs_at(level, place, environ))
    safe_open.replace(answer, f"{key}\n{' '.join(map(str, levels_here))}".encode(), answer + b".%d" % os.getpid())
    return levels_here


def machine_key() -> str:
    """Return a line that changes with what levels depend on."""
    engines = " ".join(str(shutil.which(engine)) for engine in _ENGINES)
    return f"{_boot()} {os.uname().release} {__version__} {os.geteuid()} {engines}"


def _runs_at(level: int, place: bytes, environ: Mapping[bytes, bytes]) -> bool:
    if level == 2 and not any(map(shutil.which, _ENGINES)):
        return False
    trial = place + b"/trial-%d" % os.getpid()
    project = trial + b"/project"
    os.makedirs(project, 0o700)
    os.mkdir(trial + b"/state", 0o700)
    settings = Settings(level=level, network="open" if level == 0 else "none")
    try:
        with Session.open(
            project,
            appears_at=_ELSEWHERE,
            state=trial + b"/state",
            home=_HOME,
            environ=environ,
            settings=settings,
        ) as session:
            result = session.run([b"/bin/sh", b"-c", b":"])
            return result.exit_code == 0 and result.level == level
    except (MudroomError, OSError):
        return False
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _boot() -> str:
    try:
        with open(_BOOT, encoding="ascii") as stream:
            return stream.read().strip()
    except OSError:
        return ""


SHORTEST_NAME, LONGEST_NAME = 16, 64


def serve(
    read: int,
    write: int,
    environ: Mapping[bytes, bytes],
    slots: int,
    memory: int | None = None,
    gpus: int | None = None,
) -> None:
    """Serve one link until its origin is gone and its commands have ended. ``memory`` (bytes) and ``gpus``: so much is
    for commands; None: all. Raise LinkError if the origin speaks another protocol, UsageError if the state directory or
    this user's policy cannot be used."""
    frames = FrameStream(read)
    with ExitStack() as closing:
        try:
            hello = origin_hello(frames.next())
            where = places(environ)
            origin = origin_directory(where.state, hello.origin)
            digest = hashlib.blake2b(hello.node.encode(), digest_size=12).hexdigest()
            node = private_directory(origin + b"/" + digest.encode())
            vaults = private_directory(origin + b"/vaults")
            own = own_policy(origin, environ)
            gpus = count_gpus() if gpus is None else gpus
            processors, all_memory = _machine()
            top = os.path.dirname(origin)
            facts = WorkerFacts(
                tried_levels(top, environ), processors, min(memory or all_memory, all_memory), origin, slots, gpus, top
            )
            bases = BaseCache(origin)
            closing.callback(bases.close)
            lease = Lease(hello.lease, node + b"/contact", frames.has_unread)
            link = WorkerLink(write, facts, ErrandFolders(node + b"/errands"), lease)
        except (MudroomError, OSError) as error:
            refuse(write, error)
            raise
        link.open(bases, WorkerEnvironment(vaults, environ, own))
        link.serve(frames)


def _machine() -> tuple[int, int]:
    """Return the number of processors and the bytes of memory."""
    return os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def refuse(write: int, error: Exception) -> None:
    """Tell the origin why there is no link."""
    frames_out = encode(frame_of(message.BYE, message.Bye(str(error))))
    if isinstance(error, OtherProtocol):  # a hello begins so in every protocol: an older origin can read it
        hello = (message.PROTOCOL, __version__, FORMAT, os.uname().machine, "", (), 0, 0, 0, "")
        frames_out = encode(frame_of(message.HELLO, hello)) + frames_out
    with suppress(OSError):  # it is gone; our own exit says the reason, too
        os.write(write, frames_out)


def checked_name(name: str) -> str:
    if not (SHORTEST_NAME <= len(name) <= LONGEST_NAME and set(name) <= set("0123456789abcdef")):
        raise LinkError(f"has a name that is not {SHORTEST_NAME} to {LONGEST_NAME} hexadecimal digits")
    return name


def origin_directory(state: bytes, name: str) -> bytes:
    """Return the directory of an origin, made if it is missing. Raise UsageError if others can enter it, or put another
    one in the place of the state directory."""
    require_private(state)
    return private_directory(private_directory(state + b"/worker") + b"/" + checked_name(name).encode())


def private_directory(path: bytes) -> bytes:
    """Make a directory for this user alone, if it is missing, and return it. Raise UsageError if others can enter
    it."""
    os.makedirs(path, 0o700, exist_ok=True)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(f"{os.fsdecode(path)} is not a directory of this user alone", f"chmod 700 {os.fsdecode(path)}")
    return path

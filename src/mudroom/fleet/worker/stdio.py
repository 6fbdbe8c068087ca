"""``mudroom worker --stdio``: descriptors 0 and 1 carry frames, and nothing else can reach them.

1. Our own descriptor 0 leads to /dev/null and 1 to stderr from then on, so neither a library nor a child writes into
   the link, or reads from it.
2. There is no listening socket. State is below one directory of this user, by the unguessable name of the origin:

       worker/levels                    the levels that were tried here
       worker/ORIGIN/objects, grounds   of this origin
       worker/ORIGIN/vaults/            state of the sessions on them
       worker/ORIGIN/NODE/              errands of one link after another, and the time of the last contact
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping

from mudroom.errors import UsageError
from mudroom.fleet.wire import message
from mudroom.fleet.wire.frame import LinkError, encode
from mudroom.fleet.wire.message import frame_of
from mudroom.fleet.worker.folder import ErrandFolders
from mudroom.fleet.worker.lease import Lease
from mudroom.fleet.worker.level import tried_levels
from mudroom.fleet.worker.link import FrameStream, WorkerFacts, WorkerLink, origin_hello
from mudroom.fleet.worker.supply import BaseSupply
from mudroom.fleet.worker.tighten import own_policy
from mudroom.fleet.worker.workplace import Place
from mudroom.policy.config import places

SHORTEST_NAME, LONGEST_NAME = 16, 64


def taken_streams() -> tuple[int, int]:
    """Return descriptors of stdin and stdout for frames alone."""
    read, write = os.dup(0), os.dup(1)  # close-on-exec (PEP 446)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return read, write


def serve(read: int, write: int, environ: Mapping[bytes, bytes], at_once: int) -> None:
    """Serve one link until its origin is gone and its commands have ended. Raise LinkError if the origin speaks another
    protocol, UsageError if the state directory or this user's policy cannot be used."""
    os.umask(0o077)  # of state; a command's umask is the base's
    frames = FrameStream(read)
    try:
        hello = origin_hello(frames.next())
        where = places(environ)
        top = private_directory(where.state + b"/worker")
        origin = private_directory(top + b"/" + _checked(hello.origin).encode())
    except LinkError as error:
        _refuse(write, error)
        raise
    node = private_directory(origin + b"/" + hashlib.blake2b(hello.node.encode(), digest_size=12).hexdigest().encode())
    vaults = private_directory(origin + b"/vaults")
    own = own_policy(origin, environ)
    facts = WorkerFacts(
        tried_levels(top, home=where.home, environ=environ),
        os.cpu_count() or 1,
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        origin,
        at_once,
    )
    lease = Lease(hello.lease, node + b"/contact", frames.has_unread)
    supply = BaseSupply(origin)
    try:
        link = WorkerLink(read, write, facts, ErrandFolders(node + b"/errands"), lease)
        link.open(supply, Place(vaults, environ, own))
        link.serve(frames)
    finally:
        supply.close()


def _refuse(write: int, error: LinkError) -> None:
    """Tell the origin why, in the worker's hello and a farewell, whatever protocol it speaks."""
    from mudroom import __version__

    hello = [message.PROTOCOL, __version__]
    try:
        os.write(write, encode(frame_of(message.HELLO, hello)) + encode(frame_of(message.BYE, [str(error)])))
    except OSError:
        pass  # it is gone; our own exit says the reason, too


def _checked(name: str) -> str:
    if not (SHORTEST_NAME <= len(name) <= LONGEST_NAME and set(name) <= set("0123456789abcdef")):
        raise LinkError(f"has a name that is not {SHORTEST_NAME} to {LONGEST_NAME} hexadecimal digits")
    return name


def private_directory(path: bytes) -> bytes:
    """Make a directory of this user alone, if it is missing, and return it. Raise UsageError if others can enter it."""
    os.makedirs(path, 0o700, exist_ok=True)
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise UsageError(f"{os.fsdecode(path)} is not a directory of this user alone", f"chmod 700 {os.fsdecode(path)}")
    return path

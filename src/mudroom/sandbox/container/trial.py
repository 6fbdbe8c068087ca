"""What a container engine can really do: one container that tries it, asked for as every other one will be.

What comes of it is kept beside the runtimes, under a name that changes whenever the engine, the kernel's boot or the
launcher does: so it costs half a second once, and nothing afterwards.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from mudroom.core.confinement.container import (
    LABEL,
    Container,
    ContainerMount,
    Engine,
    remove_argv,
    run_argv,
    user_of,
    variants,
)
from mudroom.errors import MudroomError, Unsupported
from mudroom.sandbox.container.engine import DECISIVE, LOOK, Unusable, ask
from mudroom.sandbox.container.orphans import OWNER
from mudroom.sandbox.container.owner import this_process
from mudroom.sandbox.container.runtime import PLACE, entry, provide
from mudroom.sandbox.container.runtime import key as runtime_key

PATIENCE = 30.0
"""Seconds that the container has for all of it."""
RUNTIMES = ("crun", "runc")
"""What starts containers for Podman. It takes the first that it finds, which may be one that this host is not for: crun
before 1.9 refuses control groups of both versions at once."""
_BOOT = "/proc/sys/kernel/random/boot_id"

_SCRIPT = """\
import os
from mudroom.sandbox.launcher import kernel
def word(path, text):
    with open(path, "w") as stream:
        stream.write(text)
def inner():
    if kernel.libc.mount(b"proc", b"/proc", b"proc", kernel.c_ulong(0), None):
        os._exit(1)
    os._exit(0)
def outer(uid, gid):
    kernel.unshare(0x10000000 | 0x00020000 | 0x20000000 | 0x40000000 | 0x08000000)
    word("/proc/self/setgroups", "deny")
    word("/proc/self/uid_map", "%d %d 1" % (uid, uid))
    word("/proc/self/gid_map", "%d %d 1" % (gid, gid))
    child = os.fork()
    if child == 0:
        inner()
    os._exit(1 if os.waitpid(child, 0)[1] else 0)
uid, gid = os.getuid(), os.getgid()
child = os.fork()
if child == 0:
    try:
        outer(uid, gid)
    except OSError:
        os._exit(1)
nested = os.waitpid(child, 0)[1] == 0
with open("/proc/sys/kernel/random/boot_id") as stream:
    boot = stream.read().strip()
with open("/proc/self/status") as stream:
    status = dict(line.rstrip().split(":\\t", 1) for line in stream if ":\\t" in line)
links = [line.split(":")[0].strip() for line in list(open("/proc/net/dev"))[2:]]
words = [boot, *(status[name] for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp"))]
print("mudroom-trial", uid, int(nested), *words, *links)
"""
"""Every namespace that a command gets, and a /proc in them. It says what it is in, too."""


class ContainerTrial(NamedTuple):
    """What a container of ours has said of itself."""

    user: int
    nested: bool
    """Every namespace of a command's, with a /proc of its own, could be made in it."""
    boot: str
    """boot_id of random(4): of the kernel that it runs on."""
    capabilities: int
    """Effective and bounding, together."""
    gains_none: bool
    """no_new_privs."""
    filtered: bool
    interfaces: tuple[str, ...]


def ready(engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes = b"") -> Engine:
    """The engine with what it takes to start containers by it, and what they can do. ``image``: one that is there.
    ``profile``: the file with the filter of nested containers. Raises Unsupported if no container can be started."""
    if engine.remote:
        return engine  # nothing of ours gets there but a command line
    known = _read(_path(engine, environ, state))
    if known is not None:
        return engine._replace(**known)
    found, _trial = attempt(engine, image, environ, state, profile)
    keep(engine, found, environ, state)
    return found


def recall(engine: Engine, environ: Mapping[bytes, bytes], state: bytes) -> Engine | None:
    """As ``ready`` has found it before; None if it has not been tried. Nothing is started."""
    known = _read(_path(engine, environ, state))
    return engine._replace(**known) if known is not None else None


def keep(engine: Engine, found: Engine, environ: Mapping[bytes, bytes], state: bytes) -> None:
    """Remember what came of a trial of ``engine``, for ``ready``."""
    path = _path(engine, environ, state)
    kept = {"options": found.options, "nested": found.nested, "runtime": found.runtime}
    os.makedirs(state + b"/engines", mode=0o700, exist_ok=True)
    new = path + b".%d" % os.getpid()
    with open(new, "w", encoding="utf-8") as stream:
        json.dump(kept, stream)
    os.replace(new, path)


def _path(engine: Engine, environ: Mapping[bytes, bytes], state: bytes) -> bytes:
    return state + b"/engines/" + _key(engine, environ).encode()


def attempt(
    engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes = b""
) -> tuple[Engine, ContainerTrial]:
    """Try it, in every way that there is, until one works. Raises Unsupported with what the usual way has met with."""
    runtimes = [name for name in RUNTIMES if shutil.which(name, path=_search(environ))] if engine.runtime else []
    first: MudroomError | None = None
    for way in variants(engine, runtimes):
        try:
            trial = _try(way, image, environ, state, profile)
        except Unusable as error:  # it hangs, and would in every other way
            first = error
            break
        except MudroomError as error:
            first = first or error
            continue
        if trial.boot != _boot():
            raise Unsupported(
                "level 2",
                "containers on this machine's own kernel",
                f"{engine.title} has them on another one",
                "use an engine of this machine, or level 1",
            )
        return way._replace(nested=way.nested and trial.nested), trial
    found = first.message if first is not None else "nothing"
    hint = "what it says, or mudroom doctor, tells why; level 1 needs no engine"
    raise Unsupported("level 2", f"{engine.title} to start a container", found, hint) from first


def _try(engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes) -> ContainerTrial:
    runtime = provide(state + b"/runtime")
    container = Container(
        f"mudroom-trial-{os.getpid()}-{time.monotonic_ns():x}",
        image,
        entry(runtime, _SCRIPT),
        user_of(os.geteuid(), os.getegid()),
        (ContainerMount(runtime, PLACE),),
        labels=((LABEL, "trial"), (OWNER, str(this_process()))),
        seccomp=profile if engine.nested else b"",
        nested=engine.nested,
    )
    try:
        out = ask(run_argv(engine, container, wait=True), environ, PATIENCE)
    except BaseException:
        with suppress(MudroomError):
            ask(remove_argv(engine, container.name), environ, LOOK)
        raise
    for line in out.splitlines():
        word, _space, value = line.partition(b" ")
        if word == b"mudroom-trial":
            return _read_trial(value.decode("ascii", "replace").split(), engine)
    raise MudroomError(f"{engine.title} started a container that said nothing")


def _read_trial(words: list[str], engine: Engine) -> ContainerTrial:
    try:
        user, nested, boot, effective, bounding, gains, filtered, *links = words
        capabilities = int(effective, 16) | int(bounding, 16)
        return ContainerTrial(int(user), nested == "1", boot, capabilities, gains == "1", filtered == "2", tuple(links))
    except ValueError as error:
        raise MudroomError(f"{engine.title} started a container that said what is no answer") from error


def _boot() -> str:
    with open(_BOOT, encoding="ascii") as stream:
        return stream.read().strip()


def _search(environ: Mapping[bytes, bytes]) -> str:
    return os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath)))


def _key(engine: Engine, environ: Mapping[bytes, bytes]) -> str:
    """Changes with whatever could change what comes of a trial."""
    where = [environ.get(name, b"") for name in DECISIVE]
    facts = (engine, where, _boot(), os.geteuid(), runtime_key())
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _read(path: bytes) -> dict[str, Any] | None:
    """What is known; None if that is nothing, or not what we write."""
    try:
        with open(path, encoding="utf-8") as stream:
            kept = json.load(stream)
        return {
            "options": tuple(str(word) for word in kept["options"]),
            "nested": kept["nested"] is True,
            "runtime": str(kept["runtime"]),
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None

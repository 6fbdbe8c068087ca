"""Find a container engine's capabilities, by a trial container that is started like every other one.

The result is kept beside the runtimes, under a name that changes whenever the engine, the kernel's boot or the launcher
does: the trial costs half a second, once.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress

from mudroom.core.confinement.container import user_of
from mudroom.errors import MudroomError, Unsupported
from mudroom.ext.containers.core.container import (
    LABEL,
    Container,
    ContainerMount,
    Engine,
    remove_argv,
    run_argv,
    variants,
)
from mudroom.ext.containers.engine.engine import DECISIVE, LOOK, Unusable, ask
from mudroom.ext.containers.engine.orphans import OWNER
from mudroom.ext.containers.engine.owner import this_process
from mudroom.ext.containers.engine.runtime import PLACE, PROGRAM, provide
from mudroom.ext.containers.engine.runtime import key as runtime_key
from mudroom.stage import safe_open
from mudroom.typing import Any, NamedTuple

PATIENCE = 30.0
"""Timeout for the whole trial in seconds."""
RUNTIMES = ("crun", "runc")
"""OCI runtimes for Podman. Podman takes the first that it finds, which may not work on this host: crun before 1.9
refuses control groups of both versions at once."""
_BOOT = "/proc/sys/kernel/random/boot_id"


class ContainerTrial(NamedTuple):
    """The report from a trial container (``src/native/launcher/trial.c``)."""

    user: int
    nested: bool
    """Every namespace that a command gets, with its own /proc, could be made in it."""
    boot: str
    """The boot_id (random(4)) of the kernel that it runs on."""
    capabilities: int
    """Effective and bounding set together."""
    gains_none: bool
    """no_new_privs."""
    filtered: bool
    interfaces: tuple[str, ...]


def ready(engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes = b"") -> Engine:
    """Return the engine with the options that start its containers here, and their capabilities. ``image`` is an
    existing image, ``profile`` the file with the filter for nested containers. Raise Unsupported if no container can be
    started."""
    if engine.remote:
        return engine  # a remote engine is reached only by its command line
    stored = _read(_path(engine, environ, state))
    if stored is not None:
        return engine._replace(**stored)
    tried, _trial = attempt(engine, image, environ, state, profile)
    keep(engine, tried, environ, state)
    return tried


def recall(engine: Engine, environ: Mapping[bytes, bytes], state: bytes) -> Engine | None:
    """Return an earlier trial's result, or None. No container is started."""
    stored = _read(_path(engine, environ, state))
    return engine._replace(**stored) if stored is not None else None


def keep(engine: Engine, tried: Engine, environ: Mapping[bytes, bytes], state: bytes) -> None:
    """Store a trial's result for ``engine``, for ``ready``."""
    path = _path(engine, environ, state)
    record = {"options": tried.options, "nested": tried.nested, "runtime": tried.runtime}
    os.makedirs(state + b"/engines", mode=0o700, exist_ok=True)
    safe_open.replace(path, json.dumps(record).encode(), path + b".%d" % os.getpid())


def _path(engine: Engine, environ: Mapping[bytes, bytes], state: bytes) -> bytes:
    return state + b"/engines/" + _key(engine, environ).encode()


def attempt(
    engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes = b""
) -> tuple[Engine, ContainerTrial]:
    """Try every variant until one works. Raise Unsupported with the usual variant's error."""
    runtimes = [name for name in RUNTIMES if shutil.which(name, path=_search(environ))] if engine.runtime else []
    first: MudroomError | None = None
    for variant in variants(engine, runtimes):
        try:
            trial = _try(variant, image, environ, state, profile)
        except Unusable as error:  # it hangs, and would hang in every variant
            first = error
            break
        except MudroomError as error:
            first = first or error
            continue
        if trial.boot != _boot():
            needs, hint = "containers on this machine's own kernel", "use an engine of this machine, or level 1"
            raise Unsupported("level 2", needs, f"{engine.title} runs them on another one", hint)
        return variant._replace(nested=variant.nested and trial.nested), trial
    reason = first.message if first is not None else "nothing"
    hint = "mudroom doctor looks for the cause; level 1 needs no engine"
    raise Unsupported("level 2", f"{engine.title} to start a container", reason, hint) from first


def _try(engine: Engine, image: str, environ: Mapping[bytes, bytes], state: bytes, profile: bytes) -> ContainerTrial:
    runtime = provide(state + b"/runtime")
    container = Container(
        f"mudroom-trial-{os.getpid()}-{time.monotonic_ns():x}",
        image,
        (PROGRAM, b"try"),
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
    raise MudroomError(f"{engine.title} started a container that printed nothing")


def _read_trial(words: list[str], engine: Engine) -> ContainerTrial:
    try:
        user, nested, boot, effective, bounding, gains, filtered, *links = words
        capabilities = int(effective, 16) | int(bounding, 16)
        return ContainerTrial(int(user), nested == "1", boot, capabilities, gains == "1", filtered == "2", tuple(links))
    except ValueError as error:
        raise MudroomError(f"{engine.title} started a container that printed an invalid report") from error


def _boot() -> str:
    with open(_BOOT, encoding="ascii") as stream:
        return stream.read().strip()


def _search(environ: Mapping[bytes, bytes]) -> str:
    return os.fsdecode(environ.get(b"PATH", os.fsencode(os.defpath)))


def _key(engine: Engine, environ: Mapping[bytes, bytes]) -> str:
    """Return a key that changes with everything that could change a trial's result."""
    where = [environ.get(name, b"") for name in DECISIVE]
    facts = (engine, where, _boot(), os.geteuid(), runtime_key())
    return hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()


def _read(path: bytes) -> dict[str, Any] | None:
    """Read a stored result; None if it is missing or invalid."""
    try:
        with open(path, encoding="utf-8") as stream:
            record = json.load(stream)
        return {
            "options": tuple(str(word) for word in record["options"]),
            "nested": record["nested"] is True,
            "runtime": str(record["runtime"]),
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None

"""Level 2: the containers in which command plans are performed.

The plan is the same as at level 1; the container is an additional boundary with its own user, limits and file system.
It sees only those host paths that the plan names.
"""

from __future__ import annotations

import _thread
import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress

from mudroom import __version__
from mudroom.core.confinement.container import user_of
from mudroom.core.confinement.fallback import CONTAINERS, Mode
from mudroom.core.confinement.limit import Limits, UnenforcedLimits, requested
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import SandboxSpec
from mudroom.core.settings import EngineChoice, Settings
from mudroom.core.tree.path import is_below, show
from mudroom.errors import ContainerEnded, MudroomError, Unsupported
from mudroom.ext.containers.core.container import (
    LABEL,
    NAMES,
    Container,
    ContainerMount,
    Engine,
    path_error,
    select_image_variables,
)
from mudroom.ext.containers.core.image import User, volumes_in_memory
from mudroom.ext.containers.engine.box import Box, mounts_of, name_of, start
from mudroom.ext.containers.engine.engine import current
from mudroom.ext.containers.engine.image import provide_host_image
from mudroom.ext.containers.engine.image_file import ProvidedImage, provide
from mudroom.ext.containers.engine.image_plan import compile_imaged
from mudroom.ext.containers.engine.orphans import OLD, OWNER, sweep_containers, sweep_directory
from mudroom.ext.containers.engine.owner import beside, this_process
from mudroom.ext.containers.engine.plain_plan import allow, compile_inside, compile_remote
from mudroom.ext.containers.engine.pool import Pool
from mudroom.ext.containers.engine.profile import profile
from mudroom.ext.containers.engine.remote import RemoteBox, start_remote
from mudroom.ext.containers.engine.trial import ready
from mudroom.sandbox.client.client import Client
from mudroom.sandbox.host.host import user_name
from mudroom.session.confinement.confinement import kept_file
from mudroom.stage import disk, safe_open
from mudroom.vault.store.store import Vault

_WHOLE = (b"layers", b"bases", b"masks")
"""Vault directories whose whole entry, ``layers/<id>``, a container gets if a plan names a path in it. From a fork it
gets ``forks/<name>/caches``. An overlay needs its upper and work directory on one mount, and an engine must not follow
a path that a process in a container could have replaced. The parent directory is never shown: if it were writable, an
entry that the next plan shows could be replaced by a link to any path."""
_RDONLY = 1
_NETWORK = "mudroom net allow HOST opens what is needed; or --level 1"


class Containers:
    """One session's containers. They have to be closed. ``_lock`` guards the engine, its image and the sweeper."""

    def __init__(self, vault: Vault, environ: Mapping[bytes, bytes], wanted: EngineChoice = "auto") -> None:
        self._vault, self._environ, self._wanted = vault, environ, wanted
        self._numbers = itertools.count(1)
        self._lock = _thread.allocate_lock()
        self._engine: Engine | None = None
        self._host_image = ""
        """Set when the engine is chosen."""
        self._pool = Pool(self._start)
        self._owner = this_process()
        self._sweeper: threading.Thread | None = None
        self._images: dict[tuple[str, User], ProvidedImage] = {}

    @property
    def engine(self) -> Engine:
        """The engine, chosen at first use. Raises Unsupported if none is usable."""
        with self._lock:
            if self._engine is None:
                self._engine = self._found()
            return self._engine

    def _found(self) -> Engine:
        engine, state = current(self._environ, self._wanted), self._state
        _require_speakable([state], engine)
        if engine.remote:
            return engine
        filtered = provide_profile(state, nested=True)
        self._host_image = provide_host_image(engine, self._environ)
        return ready(engine, self._host_image, self._environ, state, filtered)

    @property
    def _state(self) -> bytes:
        return os.path.dirname(os.path.dirname(self._vault.path))

    @contextmanager
    def lend(self, plan: Plan, settings: Settings, fork: str, local: Callable[[], Client]) -> Iterator[Client]:
        """Yield a container's client, for one command or for all commands in one sandbox. ``local`` returns the
        launcher that runs a remote engine's command line. Raise ContainerEnded if the container has ended before the
        command, Unsupported if the policy opens the host's network."""
        if settings.network_at(2) == "open":
            raise Unsupported("the host's network", "level 1", "level 2, whose containers have none", _NETWORK)
        if self.engine.remote:
            with self._made(plan, settings, local()) as remote:
                yield remote.client
            return
        self._pool.keep_warm(settings.warm)
        box = self._pool.acquire(self.container(plan, settings), fork)
        box.launcher.gauge.begin()
        try:
            yield box.client
        except MudroomError as error:
            if not box.is_healthy():
                self._pool.discard(box)
                raise ContainerEnded(box.why_ended()) from error
            self._pool.release(box)  # no command has run, or it has ended
            raise
        except BaseException:
            self._pool.discard(box)  # a command may still run in it
            raise
        use = box.launcher.gauge.reading()
        self._pool.release(box, fit=use is None or not use.memory_kills)

    @contextmanager
    def _made(self, plan: Plan, settings: Settings, local: Client) -> Iterator[RemoteBox]:
        """Yield a container that only its engine's command line reaches, for one command."""
        container = self._named(self.container(plan, settings))
        box = start_remote(self.engine, container, local, self._state, self._environ, plan.gate)
        self._sweep(self._state)
        with closing(box):
            yield box

    def forget(self, fork: str) -> None:
        """Drop the containers of a fork that is gone."""
        self._pool.forget(fork)

    def allowed(self, limits: Limits) -> UnenforcedLimits:
        """Return substitutes for the limits that no container enforces, and notes. Raise Unsupported for a required
        one."""
        _held, rlimits, notes = allow(limits, self.engine)
        return UnenforcedLimits(rlimits, notes)

    def variables(
        self, image: str, *, home: bytes, cwd: bytes, proxy: bytes, extra: tuple[bytes, ...]
    ) -> dict[bytes, bytes]:
        """Return the variables for a command in a named image. Raise as ``_provided``."""
        provided = self._provided(image, home)
        own, user = dict(provided.image.environment), os.fsencode(provided.user.name)
        return select_image_variables(own, self._environ, home=home, cwd=cwd, user=user, proxy=proxy, extra=extra)

    def _provided(self, name: str, home: bytes) -> ProvidedImage:
        """Return a named image as it was at its first use in this session. Raise UsageError if it does not exist,
        Unsupported if it cannot be used here."""
        user = User(user_name(), *user_of(disk.user(), disk.group()), home)
        image = self._images.get((name, user))
        if image is None:
            place = self._state + b"/images"
            image = self._images[name, user] = provide(self.engine, name, user, place, self._environ)
        return image

    def plan(self, spec: SandboxSpec, mode: Mode, machine: str, image: str) -> Plan:
        """Return the plan in a container that is made for the command's fork, or from a named image. Raise Unsupported,
        ValueError for an unknown machine."""
        if mode in CONTAINERS:
            files = (kept_file(self._vault.path, path, content) for path, content in spec.files)
            spec = spec._replace(binds=(*spec.binds, *files))
        if mode == "plain":
            plan = compile_inside(spec, machine)
        elif mode != "remote":
            hidden = (self._vault.path, *((self._vault.source,) if self._vault.is_elsewhere else ()))
            plan = compile_imaged(spec, machine, hidden)
        elif image:
            plan = compile_remote(spec)
        else:
            needs = "an engine whose containers run on this machine itself, and can be shown its programs"
            hint = "name an image: container.image in the policy, or --image"
            found = "one whose containers run in a virtual machine"
            raise Unsupported("level 2 without an image", needs, found, hint)
        if mode != "remote":  # the devices of this machine are not in a virtual one
            usual = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty")
            devices = tuple((device, device, True) for device in spec.devices if device not in usual)
            plan = plan._replace(mounts=(*plan.mounts, *devices))
        return self._in_its_image(plan, spec, image) if image else plan

    def _in_its_image(self, plan: Plan, spec: SandboxSpec, name: str) -> Plan:
        """Return the plan with the mounts and volumes that a container from the image needs."""
        provided = self._provided(name, spec.home)
        image, mounts = provided.image, (*provided.mounts, *plan.mounts)
        own = (spec.project, spec.home, self._vault.path)
        try:
            volumes = volumes_in_memory(image, own, [place for _source, place, _writable in mounts])
        except ValueError as error:
            needs, hint = "volumes that leave commands what is theirs", "an image without that volume"
            raise Unsupported(f"the image {image.name}", needs, f"it {error}", hint) from error
        emptied = tuple(dict.fromkeys(name for name, _value in image.environment))
        return plan._replace(image=image.identity, mounts=mounts, memory=(*plan.memory, *volumes), emptied=emptied)

    def container(self, plan: Plan, settings: Settings) -> Container:
        limits = allow(requested(settings.limits), self.engine).limits
        every = self._mounts(plan)
        devices = tuple(mount.source for mount in every if is_below(mount.target, b"/dev"))
        mounts = tuple(mount for mount in every if mount.source not in devices)
        _require_speakable((path for mount in mounts for path in (mount.source, mount.target)), self.engine)
        return Container(
            "",
            plan.image or self._host_image,
            (),
            user_of(disk.user(), disk.group()),
            mounts,
            devices=devices,
            private=tuple(dict.fromkeys((*Container._field_defaults["private"], *plan.memory))),
            emptied=plan.emptied,
            hostname=os.fsencode(os.uname().nodename),
            nested=bool(plan.namespaces),
            memory=limits.memory,
            processes=limits.processes,
            cpus=limits.cpus,
        )

    def _mounts(self, plan: Plan) -> tuple[ContainerMount, ...]:
        places = {one[1]: ContainerMount(*one) for one in plan.mounts}  # of two at one path the later counts
        if plan.namespaces:
            places = {mount.target: mount for mount in mounts_of(list(self._places(plan)))} | places
        return tuple(places[target] for target in sorted(places))

    def _places(self, plan: Plan) -> Iterator[tuple[bytes, bool]]:
        """Yield every host path that the plan names, and whether it is writable."""
        vault = self._vault.path + b"/"
        for path, writable in places(plan):
            names = path[len(vault) :].split(b"/") if path.startswith(vault) else [b""]
            if disk.user() and (whole := _whole(names)):  # root's are closed to the user of its containers
                yield vault + b"/".join(whole), writable
            elif not is_below(path, b"/dev") and not is_below(path, b"/proc"):
                yield path, writable

    def _start(self, container: Container) -> Box:
        box = start(self.engine, self._named(container), self._state, self._environ)
        self._sweep(self._state)
        return box

    def _named(self, container: Container) -> Container:
        name = name_of(self._vault.path, next(self._numbers))
        filtered = provide_profile(self._state, nested=container.nested)
        return container._replace(name=name, seccomp=filtered, labels=self._labels())

    def _labels(self) -> tuple[tuple[str, str], ...]:
        vault = os.fsdecode(self._vault.path.rpartition(b"-")[2])
        return ((LABEL, __version__), (LABEL + ".vault", vault), (OWNER, str(self._owner)))

    def _sweep(self, state: bytes) -> None:
        """Start removing what crashes have left, beside the first command."""
        with self._lock:
            if self._sweeper is not None:
                return
            self._sweeper = threading.Thread(target=self._look_for_orphans, args=(state,), daemon=True)
            self._sweeper.start()

    def _look_for_orphans(self, state: bytes) -> None:
        with suppress(MudroomError):  # the engine has just stopped: the command raises that
            sweep_containers(self.engine, self._environ, self._owner)
        sweep_directory(state + b"/doors")
        sweep_directory(state + b"/runtime", older=OLD)

    def close(self) -> None:
        """End all containers. When this returns, no process runs in any of them."""
        self._pool.close()
        if self._sweeper is not None:
            self._sweeper.join()


def _whole(names: list[bytes]) -> list[bytes]:
    """Return the vault entry that a container gets as a whole for a path in it; empty: the path itself."""
    if names[0] in _WHOLE and len(names) > 1:
        return names[:2]
    if names[0] == b"forks" and len(names) > 2 and names[2] == b"caches":
        return names[:3]
    return []


def _require_speakable(paths: Iterable[bytes], engine: Engine) -> None:
    """Raise Unsupported if a path cannot be shown to this engine's containers."""
    for path in paths:
        why = path_error(path, engine.kind)
        if why:
            name = NAMES[engine.kind]
            raise Unsupported(
                "level 2", f"paths that {name} can be told", f"{show(path)}: {why}", "rename it, or level 1"
            )


def provide_profile(state: bytes, *, nested: bool) -> bytes:
    """Return the path to the seccomp profile; rewrite the file if its content differs."""
    machine = os.uname().machine
    path = state + b"/runtime/seccomp-%s-%s.json" % (machine.encode(), b"nested" if nested else b"plain")
    content = profile(machine, nested=nested).encode()
    os.makedirs(state + b"/runtime", mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError), open(path, "rb") as stream:
        if stream.read() == content:
            return path
    safe_open.replace(path, content, beside(path))
    return path


def places(plan: Plan) -> Iterator[tuple[bytes, bool]]:
    """Yield the paths that a plan's steps need in the file system where they are performed, and whether each is
    writable."""
    for step in plan.steps:
        find = _PLACES.get(step[0])
        if find is not None:
            yield from find(*step[1:])


def _bind(source: bytes, _path: bytes, attributes: int, _optional: bool) -> Iterator[tuple[bytes, bool]]:
    if os.path.exists(source):
        yield source, not attributes & _RDONLY


def _overlay(
    _path: bytes, lowers: tuple[bytes, ...], upper: bytes, work: bytes, _volatile: bool
) -> Iterator[tuple[bytes, bool]]:
    yield from ((lower, False) for lower in lowers)
    yield from ((upper, True), (work, True))


def _root(path: bytes, _options: object) -> Iterator[tuple[bytes, bool]]:
    yield path, False


def _inside(source: bytes, path: bytes, attributes: int) -> Iterator[tuple[bytes, bool]]:
    yield from _bind(source, path, attributes, False)


_PLACES: dict[str, Callable[..., Iterator[tuple[bytes, bool]]]] = {
    "bind": _bind,
    "inside": _inside,
    "overlay": _overlay,
    "root": _root,
    "image": _root,
}

"""How a session's commands are confined on this machine: compile settings, host and view into a plan."""

from __future__ import annotations

import _thread
import os
from _blake2 import blake2b
from collections.abc import Callable, Iterable, Mapping

from mudroom.core.confinement.cache_place import CACHES, NO_CACHES, CacheShare, CacheView, places_apart
from mudroom.core.confinement.container import NOBODY
from mudroom.core.confinement.default_limit import NO_NAMESPACES, counters, session_rlimits, tmpfs_size
from mudroom.core.confinement.environment import CERTIFICATES, select_variables, unsigned
from mudroom.core.confinement.fallback import AFTER, AFTER_IN_A_CONTAINER, BARE_LOST, CONTAINERS, ELSEWHERE, Mode
from mudroom.core.confinement.limit import Limits, requested, rlimits
from mudroom.core.confinement.plan import Plan
from mudroom.core.confinement.spec import Bind, Copy, Network, Overlay, SandboxSpec, StagedRoot
from mudroom.core.settings import Settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import is_below, show
from mudroom.errors import Unsupported, UsageError
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.host.host import (
    Credentials,
    Host,
    certificates,
    identify,
    own_settings,
    settings_of,
    survey,
    umask,
    without,
)
from mudroom.sandbox.linux.plan import PROXY_PORT
from mudroom.sandbox.platform import LINUX, Platform
from mudroom.session.confinement.appearance import own_home, with_room
from mudroom.session.confinement.grant import PLAIN, Grant, free_links, graphics, in_the_way, is_socket
from mudroom.stage import disk
from mudroom.stage.layers.layer import private_directories
from mudroom.stage.source import read_own
from mudroom.stage.views.preflight import MountTable, filesystem, keeps_marks, no_overlay, spanned
from mudroom.typing import TYPE_CHECKING, NamedTuple
from mudroom.vault.caches.fork_cache import CacheUse
from mudroom.vault.store.store import Vault

if TYPE_CHECKING:
    from mudroom.session.confinement.level_two import SessionContainers

Rlimits = tuple[tuple[int, int, int], ...]
_GIT_SETTINGS = 1 << 20
"""Bytes that are read of a settings file of git."""
_SHARED = (b"/tmp", b"/var/tmp", b"/dev/shm", b"/dev/mqueue", b"/run", b"/var/run", b"/proc")
"""Paths where commands find files that other commands have written, and links to such paths."""


def _permitted(rlimit: tuple[int, int, int], platform: Platform = LINUX) -> tuple[int, int, int]:
    """Return the rlimit with its values capped at this process's own hard limit, which cannot be raised."""
    if platform.name in ("darwin", "win32"):
        # The numbers are Linux's. Some differ on macOS (its 7 is RLIMIT_NPROC), so the warden caps them by name there.
        return rlimit
    import resource

    number, soft, hard = rlimit
    ours = resource.getrlimit(number)[1]
    return rlimit if ours == resource.RLIM_INFINITY else (number, min(soft, ours), min(hard, ours))


USUAL_PORTS = (22, 80, 443, 853, 873, 989, 990, 993, 995)
"""The listeners' ports where the kernel cannot redirect all connections to the gate. Below 1024, where none of the
project's servers listen."""
_IN_A_COPY = "working in a copy, which copy.exclude in .mudroom/policy.yaml makes smaller"
_RESOLV_CONF = b"/etc/resolv.conf"
_NAMESERVER = b"nameserver 127.0.0.1\n"
_HOSTS, _MOST_HOSTS = b"/etc/hosts", 1 << 20
_LOCALHOST = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback"
_OWN_NAMES = b"\n127.0.0.1\tmudroom "
"""Beside the machine's name, which commands have, too: programs encrypt their logins with it."""


class Resolver(NamedTuple):
    binds: tuple[Bind, ...]
    files: tuple[tuple[bytes, bytes], ...]


_NO_RESOLVER = Resolver((), ())


def _within(network: Network, *, bare: bool, unheard: bool) -> Network:
    """Return the network inside the sandbox. At level 0 (``bare``) it is the host's network, and only programs that
    honour proxy variables use the gate. ``unheard``: the gate has no listener, and no network namespace to make one
    in."""
    if network != "gate":
        return network
    return "open" if bare else "none" if unheard else "gate"


def staged_home(spec: SandboxSpec) -> SandboxSpec:
    """Return a spec without the files and toolchains that a private home needs: they are in the staged home."""
    return spec._replace(
        binds=tuple(bind for bind in spec.binds if bind.source != bind.path or not is_below(bind.path, spec.home)),
        files=tuple(row for row in spec.files if not is_below(row[0], spec.home)),
        home_links=(),
    )


def owner_inside(level: int) -> tuple[int, int] | None:
    """Return the user and group for commands in root's containers; None for all others, which run as this process's
    user."""
    if level < 2 or disk.user():
        return None

    return NOBODY


def kept_file(vault: bytes, path: bytes, content: bytes) -> Bind:
    """Write a file's content to disk, once, and return its bind, for a sandbox that can only mount files. The content
    holds no secret."""
    directory = vault + b"/contained"
    place = directory + b"/" + blake2b(content, digest_size=12).hexdigest().encode()
    if not os.path.exists(place):
        os.makedirs(directory, mode=0o700, exist_ok=True)
        new = place + b".%d.%d" % (os.getpid(), _thread.get_ident())
        with open(new, "wb") as stream:
            stream.write(content)
        os.chmod(new, 0o644)
        os.rename(new, place)
    return Bind(place, path)


class Confinement:
    """A session's threads use it without a lock. Its state is caches, which every thread fills alike, and the strongest
    mode that has not failed, which another thread may at worst try once more."""

    def __init__(
        self,
        vault: Vault,
        home: bytes,
        environ: Mapping[bytes, bytes],
        platform: Platform,
        containers: Callable[[], SessionContainers],
        mask: int | None = None,
    ) -> None:
        """``containers``: returns the session's containers. ``mask``: the commands' umask; None: this process's."""
        self.platform = platform
        self._vault, self._home, self.variables = vault, home, environ
        self._containers = containers
        self.home = self.own_home = home
        if vault.is_elsewhere:
            self.own_home = own_home(home)
        self._host: Host | None = None
        self._umask = umask() if mask is None else mask
        self._mounts = MountTable()
        self._resolves: Resolver | None = None
        self._knows_itself: Resolver | None = None
        self._marks: bool | None = None
        self._no_overlay: str | None = None
        self._unsigned: dict[bytes, bytes] | None = None
        self.mode: Mode = platform.first
        """The strongest mode that has not failed in this session."""
        self.mode_contained: Mode = "overlay"
        """The strongest mode at level 2 that has not failed."""

    def close(self) -> None:
        self._mounts.close()

    @property
    def host(self) -> Host:
        if self._host is None or any(identify(path) != before for path, before in self._host.credentials.cleared):
            search = self.variables.get(b"PATH", b"/usr/bin:/bin").split(b":")
            survey_host = self.platform.survey or survey
            self._host = survey_host(self.own_home, [entry for entry in search if entry.startswith(b"/")])
        return self._host

    def first_mode(
        self, settings: Settings, *, is_copy: bool, level: int = 1, is_frozen: bool = False
    ) -> tuple[Mode, list[str]]:
        """Return the first attempt's mode, and notes. ``is_frozen``: the fork stands on a snapshot."""
        mode = self.mode_contained if level == 2 else self.mode
        if mode in CONTAINERS or mode in ELSEWHERE:
            return mode, []
        if is_copy or settings.view == "copy":
            return "copy", []
        why = self._unlaid() if settings.view == "auto" else ""
        inside = "" if is_frozen and level < 2 else self.spanned(settings)
        if why or (inside and level == 2):
            return "copy", [f"{inside}: {_IN_A_COPY}" if inside else f"{why}: working in a copy"]
        if mode == "overlay" and self.platform is LINUX and not self._keeps_marks():
            where = f"{show(self._vault.path)} (on {filesystem(self._vault.path, self._mounts.mounts())})"
            if settings.view == "overlay":
                hint = "set MUDROOM_STATE to a directory on another one"
                raise Unsupported("the overlay view", "a file system with xattrs for the state", where, hint)
            return "copy", [f"{where} has no xattrs, so that no overlay can be laid over it: working in a copy"]
        if owner := owner_inside(level):
            return "copy", [f"root is nobody in a container: working in a copy of the project, as user {owner[0]}"]
        return mode, [f"{inside}: {_IN_A_COPY}"] if inside else []

    def spanned(self, settings: Settings) -> str:
        """Return why an overlay needs a snapshot as its base, or an empty string. Only Linux has overlays."""
        is_asked = settings.view == "auto" and self.platform is LINUX
        return spanned(self._vault.source, self._mounts.mounts()) if is_asked else ""

    def _unlaid(self) -> str:
        """Return why this user cannot mount an overlay, looked up once in a session."""
        if self._no_overlay is None:
            self._no_overlay = no_overlay(self._vault.source)
        return self._no_overlay

    def _keeps_marks(self) -> bool:
        if self._marks is None:
            self._marks = keeps_marks(self._vault.path)
        return self._marks

    def weaker(self, mode: Mode, failure: StepFailed, settings: Settings, level: int = 1) -> tuple[Mode, str]:
        """Return the next weaker mode, and a note about the lost protection. Raise ``failure`` if no weaker mode
        exists, Unsupported if the policy or the machine rules it out."""
        following = (AFTER_IN_A_CONTAINER if level == 2 else AFTER).get((mode, failure.op))
        if mode == "seatbelt" and failure.op == "seatbelt":
            needs = "sandbox-exec, and to be in no other sandbox: one cannot be nested"
            raise Unsupported("a sandbox", needs, failure.message, "start mudroom outside of any sandbox")
        if following is None:
            raise failure
        if settings.engine_beside:
            raise Unsupported("--engine", "user namespaces and the overlay view", failure.message, "mudroom doctor")
        if settings.view == "overlay" and mode == "overlay":
            needs, hint = "a kernel overlay in a user namespace", "--view auto works in a copy then"
            raise Unsupported("the overlay view", needs, failure.message, hint)
        where = ""
        if following.mode == "copy":
            where = f" (on {filesystem(self._vault.source, self._mounts.mounts()) or 'this file system'})"
        if following.mode == "landlock" and not self.host.landlock_abi:
            raise Unsupported(
                "a sandbox",
                "user namespaces, or Landlock in the kernel",
                failure.message,
                "permit one of them; mudroom doctor says how",
            )
        if level == 2:
            self.mode_contained = following.mode
        else:
            self.mode = following.mode
        return following.mode, (BARE_LOST if level == 0 and following.mode == "landlock" else following.lost) + where

    def plan(
        self,
        view: Overlay | Copy,
        mode: Mode,
        cwd: bytes,
        private: bytes,
        settings: Settings,
        stand_ins: Rlimits = (),
        grant: Grant = PLAIN,
        gate: int = 0,
        trust: tuple[Bind, ...] = (),
        caches: CacheView = NO_CACHES,
        loopback: tuple[tuple[str, int, int], ...] = (),
        roots: tuple[StagedRoot, ...] = (),
    ) -> tuple[Plan, dict[bytes, bytes]]:
        """Return a command's plan and environment. ``private``: the directory for home and /tmp without a mount
        namespace. ``stand_ins``: rlimits instead of limits that no control group enforces. ``gate``: the gate's port on
        the host's loopback if it cannot listen in the command's own network namespace. ``trust``: TLS root certificates
        instead of the system's. ``caches``: mounted at ``cache_places``. ``loopback``: the host's loopback ports that
        are reached inside, as in ``SandboxSpec``. ``roots``: staged beside the project, in the overlay mode."""
        host, scratch = self._host_at(grant, settings), self._vault.scratch
        confined, bare = mode in ELSEWHERE, grant.level == 0
        home, tmp = self._private_home(grant), b"/tmp"
        if confined:
            assert isinstance(view, Copy)
            scratch = private
            private_home, tmp = private_directories(scratch)
            for target, path in grant.links:
                link = private_home + path[len(self._home) :]
                os.makedirs(os.path.dirname(link), mode=0o700, exist_ok=True)
                os.symlink(target, link)
            for path, content in grant.files:
                copy = private_home + path[len(self._home) :]
                os.makedirs(os.path.dirname(copy), mode=0o700, exist_ok=True)
                with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as stream:
                    stream.write(content)
            home = home if bare else private_home
            cwd = view.work + cwd[len(self._vault.project) :]
        network = settings.network_at(grant.level)
        within = network == "gate" and not confined and not bare
        port = PROXY_PORT if within else gate
        env = self._environment(home, tmp, cwd, port, settings, grant)
        resolver = _NO_RESOLVER
        if not (confined or bare or grant.image):
            resolver = self._resolver() if within else self._own_name()
        self._check_named(grant)
        gpu = graphics() if grant.gpu else None
        binds, files = self._binds(host, confined, settings), host.files
        if gpu is not None:
            env = dict(gpu.variables) | env
            binds = (*binds, *_not_there(gpu.binds, () if grant.image else host.system))
        if not (confined or bare):
            binds, files = own_settings(binds, files, [path for _target, path in grant.links], self._home)
        spec = SandboxSpec(
            project=self._vault.project,
            view=view,
            cwd=cwd,
            home=home,
            scratch=scratch,
            namespaces=mode not in CONTAINERS and mode not in ELSEWHERE,
            network=_within(network, bare=bare, unheard=confined and not port),
            proxy=gate,
            ports=USUAL_PORTS,
            loopback=loopback,
            links=host.links,
            binds=(*binds, *resolver.binds, *trust),
            caches=caches,
            roots=roots,
            masks=self._masks(host, settings),
            has_slots=os.path.isdir(slots := self._vault.source + b"/.mudroom/apply") and not os.path.islink(slots),
            files=(*files, *resolver.files, *grant.files),
            home_links=() if confined else free_links(grant.links, binds),
            devices=(*host.devices, *(gpu.devices if gpu is not None else ())),
            landlock_abi=host.landlock_abi,
            as_root=host.as_root,
            uid_map=host.uid_map,
            gid_map=host.gid_map,
            deny_setgroups=host.deny_setgroups,
            umask=self._umask,
            rlimits=tuple(
                _permitted(rlimit, self.platform) for rlimit in (*rlimits(requested(settings.limits)), *stand_ins)
            ),
            session_rlimits=self._session_rlimits(host, settings) if grant.level < 2 else (),
            tmpfs=tmpfs_size(settings.limits),
            counters=(*counters(settings.limits, host.watchers), *(() if bare else (NO_NAMESPACES,))),
            sockets=tuple(bind.path for bind in grant.live if not bind.writable),
            stores=(*grant.credentials, *(("display",) if grant.abstract else ())),
        )
        if any(root.path == home for root in roots):
            spec = staged_home(spec)
        spec = (
            self._with_surroundings(spec, settings, grant) if bare else spec._replace(binds=(*spec.binds, *grant.live))
        )
        plan = self._compiled(spec, mode, host, requested(settings.limits), grant)
        if settings.engine_beside:
            from mudroom.core.registry import part

            plan = part("engine", "plan", "--engine").with_engine(plan, spec, host.machine, os.path.dirname(private))
        return plan, env

    def _compiled(self, spec: SandboxSpec, mode: Mode, host: Host, limits: Limits, grant: Grant) -> Plan:
        """Return the plan for a spec. Raise Unsupported for a machine whose system calls are not known."""
        try:
            if mode in CONTAINERS or grant.image:
                return self._containers().plan(spec, mode, host.machine, grant.image)
            plan = (LINUX if grant.level == 2 else self.platform).compile(spec, host.machine)
        except ValueError as error:
            if host.machine in ("x86_64", "aarch64"):
                raise
            raise Unsupported("a system call filter", "x86_64 or aarch64", host.machine) from error
        if self.platform.hold is not None:
            plan = self.platform.hold(plan, limits)
        view = spec.view
        if isinstance(view, Copy) and view.identity is not None and plan.shared:
            look = ("mounted", view.work, b"", 0, view.identity)  # needs its own template, made since the mount
            plan = plan._replace(steps=(look, *plan.steps), shared=plan.shared + 1)
        return plan

    def _session_rlimits(self, host: Host, settings: Settings) -> Rlimits:
        usual = session_rlimits(settings.limits, counts_processes=host.counts_processes)
        return tuple(_permitted(rlimit, self.platform) for rlimit in usual)

    def is_writable(self, path: bytes, settings: Settings, grant: Grant) -> bool:
        """Return whether a command can write at an absolute path outside the project, or an earlier command could: in
        its /tmp, home or caches."""
        home = self._private_home(grant)
        caches = [home + b"/" + place for place, _name in CACHES]
        caches += [os.path.realpath(place) for place in caches]
        if any(is_below(path, place) for place in (*caches, *(bind.path for bind in grant.live))):
            return True
        host = self._host_at(grant, settings)
        shown = [bind.path for bind in (*host.system, *host.home)] + list(settings.read)
        shown += [self._home + name[1:] for name in settings.credentials]
        if any(is_below(path, place) for place in shown):
            return False
        private = (*_SHARED, home) if grant.level else (*_SHARED, b"/tmp/home")
        return any(is_below(path, place) for place in private)

    def _private_home(self, grant: Grant) -> bytes:
        """Return the home's path in a mount namespace. At level 0 the mount needs an existing directory on the host."""
        return b"/tmp/home" if grant.level == 0 and not os.path.isdir(self._home) else self._home

    def _environment(
        self, home: bytes, tmp: bytes, cwd: bytes, port: int, settings: Settings, grant: Grant
    ) -> dict[bytes, bytes]:
        network = settings.network_at(grant.level)
        proxy = b"http://127.0.0.1:%d" % port if port else b""
        extra = (*settings.environment, *grant.variables)
        if grant.image:
            env = self._containers().variables(grant.image, home=home, cwd=cwd, proxy=proxy, extra=extra)
        else:
            hosts = network == "open" or (grant.level == 0 and network == "gate" and not port)
            env = select_variables(self.variables, home=home, cwd=cwd, network=hosts, proxy=proxy, extra=extra)
        env[b"TMPDIR"] = tmp
        if settings.engine_beside:
            from mudroom.core.registry import part

            env |= part("engine", "plan", "--engine").VARIABLES
        if grant.level and not grant.image and b"GIT_CONFIG_COUNT" not in env:
            if self._unsigned is None:
                home, project = self._home, self._vault.source
                places = (home + b"/.gitconfig", home + b"/.config/git/config", project + b"/.git/config")
                self._unsigned = unsigned(read_own(path, _GIT_SETTINGS, cut=True) for path in places)
            env |= self._unsigned
        return env

    def beside(
        self, work: bytes, mode: Mode, cwd: bytes, private: bytes, settings: Settings, grant: Grant, gate: int
    ) -> tuple[dict[bytes, bytes], bytes]:
        """Return the environment and working directory for a command that joins an existing sandbox, as ``plan`` does
        for the first command. ``work``: a staged copy's directory."""
        home, tmp = self._private_home(grant), b"/tmp"
        if mode in ELSEWHERE:
            tmp, cwd = private + b"/tmp", work + cwd[len(self._vault.project) :]
            home = home if grant.level == 0 else private + b"/home"
        within = settings.network_at(grant.level) == "gate" and mode not in ELSEWHERE and grant.level != 0
        return self._environment(home, tmp, cwd, PROXY_PORT if within else gate, settings, grant), cwd

    def _with_surroundings(self, spec: SandboxSpec, settings: Settings, grant: Grant) -> SandboxSpec:
        """Return the spec for level 0: with the host's file system around the command instead of the parts that level 1
        shows."""
        from mudroom.sandbox.host.around import Home, look_around

        host, project = self.host, spec.project
        own = [bind for bind in spec.binds if bind.path in (project, project + b"/.mudroom") or bind.writable]
        places = [*(bind.path for bind in own), *(path for _name, path in spec.caches.places)]
        shown = tuple(self._home + path[1:] for path in settings.credentials)
        home = Home(
            spec.home,
            os.path.dirname(os.path.dirname(self._vault.path)),
            project,
            needed=tuple(path for path in places if is_below(path, spec.home)),
            shown=(*shown, *settings.read),
            replaced=tuple(path for path, _content in host.files),
        )
        toolchains = (*host.home, *(Bind(path, path) for path in settings.read))
        look = self.platform.look_around or look_around
        around, files = look(home, grant, self.variables, toolchains, spec.masks, namespaces=spec.namespaces)
        return spec._replace(around=around, binds=tuple(own), files=(*host.files, *files))

    def _check_named(self, grant: Grant) -> None:
        """Raise UsageError if a named store contains the project or mudroom's state, or lies in them."""
        state = os.path.dirname(os.path.dirname(self._vault.path))
        copies = {place for source, _path in grant.links for place in (source, os.path.dirname(source))}  # the fork's
        live = tuple(bind for bind in grant.live if bind.path not in copies)
        if reason := in_the_way(live, (self._vault.project, self._vault.source), state):
            raise UsageError(reason, "name what is needed of it")

    def _own_name(self) -> Resolver:
        if self._knows_itself is None:
            self._knows_itself = Resolver(self._hosts(known=None), ())
        return self._knows_itself

    def _hosts(self, known: bytes | None) -> tuple[Bind, ...]:
        """Return a replacement for /etc/hosts: ``known``, or the host's own lines, and the sandbox's own name, which
        many programs look up."""
        place = os.path.realpath(_HOSTS)
        if not os.path.isfile(place) or is_below(place, b"/run"):
            return ()
        if known is None:
            with open(place, "rb") as stream:
                known = stream.read(_MOST_HOSTS)
        return (kept_file(self._vault.path, place, known + _OWN_NAMES + os.fsencode(os.uname().nodename) + b"\n"),)

    def _resolver(self) -> Resolver:
        """Return a replacement for /etc/resolv.conf that names the gate's listener, and one for /etc/hosts without the
        host's names: the gate looks them up itself, and judges them as names. On many machines resolv.conf is a link
        into /run, which is the command's own. Without the file, programs ask a resolver on the local machine
        (resolv.conf(5))."""
        if self._resolves is None:
            hosts = self._hosts(_LOCALHOST)
            place, self._resolves = os.path.realpath(_RESOLV_CONF), Resolver(hosts, ())
            if is_below(place, b"/run"):
                self._resolves = Resolver(hosts, ((place, _NAMESERVER),))
            elif os.path.isfile(place):
                ours = self._vault.path + b"/resolv.conf"
                descriptor = os.open(ours, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
                with Descriptor(descriptor):
                    if os.read(descriptor, 64) != _NAMESERVER:  # unchanged, it can be mounted ahead of a command
                        os.ftruncate(descriptor, 0)
                        os.pwrite(descriptor, _NAMESERVER, 0)
                self._resolves = Resolver((*hosts, Bind(ours, place)), ())
        return self._resolves

    def _host_at(self, grant: Grant, settings: Settings) -> Host:
        """Return the host as a command with this grant sees it. With an image, only the user's settings in the home and
        the ``read`` paths are shown, and credentials in them stay hidden."""
        host = self.host
        if grant.image:
            home = settings_of(host, self._home)
            shown = (*settings.read, *(bind.path for bind in home))
            masks = tuple(mask for mask in host.masks if any(is_below(mask, path) for path in shown))
            host = host._replace(links=(), system=(), home=home, credentials=Credentials(masks))
        owner = owner_inside(grant.level)
        if owner is None:
            return host
        uid, gid = owner
        uid_map, gid_map = b"%d %d 1" % (uid, uid), b"%d %d 1" % (gid, gid)
        return host._replace(as_root=False, deny_setgroups=True, uid_map=uid_map, gid_map=gid_map)

    def cache_places(self, mode: Mode, settings: Settings, grant: Grant) -> tuple[tuple[bytes, bytes], ...]:
        """Return the caches that a command sees, as (name, path); none without a mount namespace. A cache inside a
        toolchain that is shown read-only is left out. So is a cache that contains the project: commands could move the
        directories above the project."""
        if mode in ELSEWHERE:
            return ()
        home, host = self._private_home(grant), self._host_at(grant, settings)
        shown = (*(bind.path for bind in host.home), *settings.read)
        places = tuple((name, home + b"/" + place) for place, name in CACHES)
        if not grant.level:
            places = tuple((name, os.path.realpath(path)) for name, path in places)
        return places_apart(places, self._vault.project, shown)

    def cache_use(self, grant: Grant, agent: str | None, share: CacheShare) -> CacheUse:
        """Return a command's use of caches. Root's caches are not shared with the user inside root's containers, nor
        one image's caches with another image."""
        owner = owner_inside(grant.level)
        variant = b"contained" if owner else b"host"
        if grant.image:
            variant += b"-image-" + blake2b(grant.image.encode(), digest_size=6).hexdigest().encode()
        return CacheUse(variant, agent, share, owner)

    def _masks(self, host: Host, settings: Settings) -> tuple[bytes, ...]:
        shown = [self._home + path[1:] for path in settings.credentials]
        return tuple(mask for mask in host.masks if mask not in shown)

    def missing_credentials(self, settings: Settings) -> list[str]:
        """Return notes about credentials and paths that the policy shows but the machine does not have."""
        hidden = [path for path in settings.credentials if not os.path.exists(self.own_home + path[1:])]
        absent = [path for path in settings.read if path not in self._read(settings)]
        notes = [f"credentials.show: {show(path)} is not there" for path in hidden]
        if unsearched := self.host.credentials.unsearched:
            many = "the toolchains have so many directories that not all were searched for credentials"
            notes.append(f"{many}: those below {show(unsearched)} were not")
        return [*notes, *(f"read: {show(path)} is not on this machine" for path in absent)]

    def _read(self, settings: Settings) -> tuple[bytes, ...]:
        """Return the ``read`` paths. Another machine's policy may name paths that this machine does not have."""
        return tuple(filter(os.path.exists, settings.read)) if self._vault.is_elsewhere else settings.read

    def _shown_credentials(self, settings: Settings) -> list[Bind]:
        binds = []
        for path in settings.credentials:
            place = self.own_home + path[1:]
            if os.path.exists(place) and not os.path.isfile(place):
                raise UsageError(f"credentials.show: {show(path)} is no file", "name the files one by one")
            if os.path.exists(place):
                binds.append(Bind(os.path.realpath(place), place))
        return binds

    def _binds(self, host: Host, confined: bool, settings: Settings) -> tuple[Bind, ...]:
        for path in settings.read:
            if is_below(self._vault.path, path):
                raise UsageError(
                    f"{show(path)} cannot be shown to commands: mudroom's own state lies in it",
                    "name what is needed of it, or set MUDROOM_STATE to another directory",
                )
            if is_socket(path):  # a read-only mount does not prevent connecting (unix(7))
                raise UsageError(
                    f"{show(path)} is a socket: a command that connects to it can do whatever its server can",
                    "show files and directories only; a card names the sockets that an agent needs",
                )
        shown = self._shown_credentials(settings)
        masks = self._masks(host, settings)
        system = without((*host.system, *host.home), masks) if confined else (*host.system, *host.home)
        # a program with the variable and without its file trusts no server
        named = dict.fromkeys(self.variables.get(name, b"") for name in CERTIFICATES)
        below = [os.path.normpath(path) for path in named if is_below(path, self.own_home)]
        roots = certificates(below, self.own_home) if below else []
        binds = [*system, *shown, *(Bind(path, path) for path in (*self._read(settings), *roots))]
        own = self._vault.source + b"/.mudroom"
        if os.path.isdir(own) and not os.path.islink(own):
            binds.append(Bind(own, self._vault.project + b"/.mudroom"))
        if self._vault.is_elsewhere:
            binds = with_room(self._home, with_room(self._vault.project, binds), "the private home")
        return tuple(bind for bind in binds if not is_below(self._vault.path, bind.path))


def _not_there(binds: Iterable[Bind], system: Iterable[Bind]) -> tuple[Bind, ...]:
    """Return the binds of files that ``system`` does not show already."""
    shown = [bind.path for bind in system]
    return tuple(
        bind for bind in binds if bind.source != bind.path or not any(is_below(bind.path, path) for path in shown)
    )

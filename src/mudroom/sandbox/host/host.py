"""What this host has that a sandbox shows: system directories, devices, toolchains, id maps.

Looked up once per session. It is told the home directory and the search path; it never reads the environment.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from mudroom.core.confinement.credential_file import git_identity, holds_secret, is_credential
from mudroom.core.confinement.spec import Bind
from mudroom.core.tree.path import is_below

_SYSTEM = (b"/usr", b"/etc", b"/opt", b"/bin", b"/sbin", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/nix", b"/gnu")
_SYSTEM_PARTS = (
    b"/sys/devices/system/cpu",
    b"/sys/devices/system/node",
    b"/var/lib/texmf",
    b"/var/lib/ca-certificates",
    b"/var/cache/fontconfig",
)
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty")

# Toolchains below the home directory: read-only inside. What else is in the home is not there.
_TOOLCHAINS = (
    b".pyenv .rbenv .nodenv .goenv .jenv .asdf .nvm .volta .fnm .rustup .cargo/bin .cargo/env .sdkman .deno .bun "
    b".local/bin .local/lib .local/pipx .local/share/uv .local/share/pnpm .local/share/mise .local/share/pipx .mise "
    b".local/share/fnm .ghcup .elan .opam .dotnet .nix-profile miniconda3 anaconda3 miniforge3 bin"
).split()
_SETTINGS = (b".config/git/ignore", b".config/git/attributes")
_GIT = (b".gitconfig", b".config/git/config")
"""Shown as they are if they hold settings only; else nothing of them but who the user is."""
_LEVELS = 2
"""So deep credentials are looked for in a toolchain; below that are packages."""

# Root could read these although the sandbox has no capability: the files are its own.
_ROOT_SECRETS = (
    b"/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/krb5.keytab /etc/ssh/ssh_host_rsa_key "
    b"/etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key"
).split()

# A sandbox has its own of these, and a PATH that names one of them is no reason to do without.
_NOT_SHOWN = (b"/", b"/tmp", b"/run", b"/dev", b"/dev/shm", b"/proc")

_SYS_landlock_create_ruleset = 444
_LANDLOCK_CREATE_RULESET_VERSION = 1


class Host(NamedTuple):
    links: tuple[tuple[bytes, bytes], ...]
    system: tuple[Bind, ...]
    home: tuple[Bind, ...]
    devices: tuple[bytes, ...]
    masks: tuple[bytes, ...]
    """Secrets that lie in what is shown: the system's, and credentials inside of toolchains."""
    files: tuple[tuple[bytes, bytes], ...]
    """(path, content): settings of git, reduced."""
    uid_map: bytes
    gid_map: bytes
    deny_setgroups: bool
    as_root: bool
    landlock_abi: int
    machine: str


def survey(home: bytes, search: Sequence[bytes]) -> Host:
    """Look at the host. ``home`` is the user's home directory, ``search`` the directories of PATH; both real paths."""
    uid, gid = os.geteuid(), os.getegid()
    system, links = _system_directories()
    toolchains, masks, files = survey_paths(home, search, [bind.path for bind in system])
    return Host(
        links=links,
        system=system,
        home=toolchains,
        devices=tuple(device for device in _DEVICES if os.path.exists(device)),
        masks=(*_root_secrets(uid), *masks),
        files=files,
        uid_map=_identity(b"/proc/self/uid_map") if uid == 0 else b"%d %d 1" % (uid, uid),
        gid_map=_identity(b"/proc/self/gid_map") if uid == 0 else b"%d %d 1" % (gid, gid),
        deny_setgroups=uid != 0,
        as_root=uid == 0,
        landlock_abi=landlock_abi(),
        machine=os.uname().machine,
    )


def survey_paths(
    home: bytes, search: Sequence[bytes], system: Sequence[bytes], more: Iterable[bytes] = ()
) -> tuple[tuple[Bind, ...], tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]]:
    """Toolchains in the home (``more``: beyond the usual places) and where PATH leads beside ``system``; credentials in
    them; settings of git, reduced."""
    git, files = _git_settings(home)
    below_home = [*(home + b"/" + part for part in (*_TOOLCHAINS, *more, *_SETTINGS)), *git]
    toolchains = _existing([*below_home, *_search_roots(search, home, system)])
    return toolchains, tuple(_credentials(bind.path for bind in toolchains)), files


def _root_secrets(uid: int) -> list[bytes]:
    return [path for path in _ROOT_SECRETS if os.path.exists(path)] if uid == 0 else []


def _git_settings(home: bytes) -> tuple[list[bytes], tuple[tuple[bytes, bytes], ...]]:
    """The files of git's settings that may be shown, and what takes the place of the others."""
    shown, files = [], []
    for path in (home + b"/" + name for name in _GIT):
        try:
            with open(path, "rb") as stream:
                settings = stream.read()
        except OSError:
            continue  # not there, or not for us
        if holds_secret(settings):
            files.append((path, git_identity(settings)))
        else:
            shown.append(path)
    return shown, tuple(files)


def _credentials(directories: Iterable[bytes], levels: int = _LEVELS) -> list[bytes]:
    """Files that are credentials by their names, in the upmost levels of ``directories``."""
    found: list[bytes] = []
    for directory in directories:
        try:
            with os.scandir(directory) as scan:
                items = sorted(scan, key=lambda item: item.name)
        except OSError:
            continue  # a file, gone, or not for us
        found += [item.path for item in items if is_credential(item.name) and item.is_file(follow_symlinks=False)]
        if levels > 1:
            below = [item.path for item in items if item.is_dir(follow_symlinks=False)]
            found += _credentials(below, levels - 1)
    return found


def _system_directories() -> tuple[tuple[Bind, ...], tuple[tuple[bytes, bytes], ...]]:
    binds, links = [], []
    for path in _SYSTEM:
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            binds.append(Bind(path, path))
    binds += [Bind(path, path) for path in _SYSTEM_PARTS if os.path.exists(path)]
    resolver = os.path.realpath(b"/etc/resolv.conf")  # often a link into /run, which is private inside
    if not is_below(resolver, b"/etc") and os.path.exists(resolver):
        binds.append(Bind(resolver, resolver))
    return tuple(binds), tuple(links)


def without(binds: Iterable[Bind], hidden: Sequence[bytes]) -> tuple[Bind, ...]:
    """The same binds with the ``hidden`` files left out, for where nothing can be covered: what lies around them is
    listed instead, name by name."""
    found: list[Bind] = []
    for bind in binds:
        if bind.path in hidden:
            continue
        if any(is_below(path, bind.path) for path in hidden):
            inside = (bind.path + b"/" + name for name in sorted(os.listdir(bind.path)))
            found += without((Bind(path, path) for path in inside), hidden)
        else:
            found.append(bind)
    return tuple(found)


def _search_roots(search: Iterable[bytes], home: bytes, shown: Sequence[bytes]) -> list[bytes]:
    """What must be shown so that the programs of PATH work: the directory, or the environment it belongs to."""
    roots = []
    prefixes = [os.fsencode(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    for directory in (*search, *(prefix + b"/bin" for prefix in prefixes)):
        real = os.path.realpath(directory)
        if any(is_below(real, path) for path in shown) or real == home or real in _NOT_SHOWN:
            continue
        above = os.path.dirname(real)
        if above not in (*_NOT_SHOWN, home) and (os.path.exists(above + b"/pyvenv.cfg") or above in prefixes):
            roots.append(above)
            interpreter = os.path.dirname(os.path.dirname(os.path.realpath(above + b"/bin/python3")))
            if not any(is_below(interpreter, path) for path in shown):
                roots.append(interpreter)
        else:
            roots.append(real)
    return roots


def _existing(paths: Iterable[bytes]) -> tuple[Bind, ...]:
    """Binds for the paths that exist, without those that another one shows already."""
    kept: list[bytes] = []
    for path in sorted(set(paths)):
        if path != b"/" and not any(is_below(path, above) for above in kept) and os.path.exists(path):
            kept.append(path)
    return tuple(Bind(os.path.realpath(path), path) for path in kept)


def _identity(map_file: bytes) -> bytes:
    """Every id that exists in our own user namespace, mapped to itself. Lines are: inside, outside, count."""
    with open(map_file, "rb") as lines:
        rows = [line.split() for line in lines]
    return b"\n".join(b"%s %s %s" % (inside, inside, count) for inside, _outside, count in rows)


def settings_of(host: Host, home: bytes) -> tuple[Bind, ...]:
    """Of what is shown of the home only what is no program: settings of git."""
    names = [home + b"/" + name for name in (*_GIT, *_SETTINGS)]
    return tuple(bind for bind in host.home if bind.path in names)


def user_name() -> str:
    """Of whoever runs us; root's commands at level 2 run as somebody else."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "mudroom"
    except KeyError:
        return "mudroom"


def landlock_abi() -> int:
    """The Landlock ABI of the kernel, 0 without Landlock: landlock_create_ruleset(2)."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(
        ctypes.c_long(_SYS_landlock_create_ruleset),
        None,
        ctypes.c_long(0),
        ctypes.c_long(_LANDLOCK_CREATE_RULESET_VERSION),
    )
    return max(0, int(version))


def umask() -> int:
    """The caller's umask. There is no way to ask but to set it (umask(2)); /proc has it since Linux 4.7."""
    try:
        with open("/proc/self/status", "rb") as stream:
            for line in stream:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except FileNotFoundError:
        found = os.umask(0o077)  # no /proc: macOS. What another thread makes in this moment is ours alone
        os.umask(found)
        return found
    return 0o022

"""Survey this host for a sandbox: system directories, devices, toolchains, id maps.

Done once per session. The home directory and the search path are arguments; the environment is never read.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from collections import Counter, deque
from collections.abc import Collection, Iterable, Sequence

from mudroom.core.confinement.credential_file import git_identity, holds_secret
from mudroom.core.confinement.plan import Step
from mudroom.core.confinement.spec import Bind
from mudroom.core.system.closing import Descriptor
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import is_below
from mudroom.core.tree.secret import LIMIT, Test, holds, secret_test, tests_in
from mudroom.errors import MaskedRights
from mudroom.typing import NamedTuple

_SYSTEM = (b"/usr", b"/etc", b"/opt", b"/bin", b"/sbin", b"/lib", b"/lib32", b"/lib64", b"/libx32", b"/nix", b"/gnu")
_SYSTEM_PARTS = (
    b"/sys/devices/system/cpu",
    b"/sys/devices/system/node",
    b"/var/lib/texmf",
    b"/var/lib/ca-certificates",
    b"/var/cache/fontconfig",
)
_DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty")

# Toolchains below the home directory: read-only inside. Everything else in the home is hidden.
TOOLCHAINS = (
    b".pyenv", b".rbenv", b".nodenv", b".goenv", b".jenv", b".asdf", b".nvm", b".volta", b".fnm", b".rustup",
    b".cargo/bin", b".cargo/env", b".sdkman", b".deno", b".bun", b".local/bin", b".local/lib", b".local/pipx",
    b".local/share/uv", b".local/share/pnpm", b".local/share/mise", b".local/share/pipx", b".mise",
    b".local/share/fnm", b".ghcup", b".elan", b".opam", b".dotnet", b".nix-profile", b"miniconda3", b"anaconda3",
    b"miniforge3", b"bin", b".npm-global", b".local/share/claude/versions", b".local/share/cursor-agent",
    b".opencode/bin",
)  # fmt: skip
_SETTINGS = (b".config/git/ignore", b".config/git/attributes")
_GIT = (b".gitconfig", b".config/git/config")
"""Shown unchanged if they hold only settings; otherwise reduced to the user's identity."""
_NAMES_FILES, _MOST_NAMED = regex(rb"(?i)\b(path|template|sslcainfo|\w+file)\s*="), 32
"""Settings that may name a file, and the most files of settings that are followed."""
_LEVELS, _DEEPEST, _MOST_DIRECTORIES = 2, 8, 2_000
"""Directory levels in a toolchain that are searched for credentials whatever they are called, levels that are searched
beside packages (``versions/node/v22.1.0/etc/npmrc``), and directories that are searched in all toolchains."""
_MOST_FOR_LINKS = 100_000
"""Directories that are searched for other names of a credential that has some."""
_PACKAGES = frozenset({
    b"lib", b"lib64", b"libexec", b"include", b"share", b"man", b"doc", b"docs", b"legal", b"src", b"test", b"tests",
    b"node_modules", b"site-packages", b"pkgs", b"cache", b"sdk", b"shared", b"packs", b"templates", b"repo", b"target",
    b"vendor", b".git",
})  # fmt: skip
"""Directories with packages and documents, which are not searched below the upper levels."""
_SETTINGS_OF_PREFIX = (b"etc", b"conf", b"config")
"""Where a directory with ``bin`` below the upper levels has its settings."""

# Root in the sandbox could read these even without a capability: root owns the files.
_ROOT_SECRETS = (
    b"/etc/shadow /etc/shadow- /etc/gshadow /etc/gshadow- /etc/sudoers /etc/krb5.keytab /etc/ssh/ssh_host_rsa_key "
    b"/etc/ssh/ssh_host_ecdsa_key /etc/ssh/ssh_host_ed25519_key"
).split()

# A sandbox has its own; a PATH that names one does not show the host's.
_NOT_SHOWN = (b"/", b"/tmp", b"/run", b"/dev", b"/dev/shm", b"/proc")

_SOURCES = {"bind": 1, "inside": 1, "root": 1}
"""Steps that use a host path, with that argument's index."""

FileIdentity = tuple[int, ...] | None

_SYS_landlock_create_ruleset = 444
_LANDLOCK_CREATE_RULESET_VERSION = 1


class Credentials(NamedTuple):
    """Secrets inside shown directories: the system's, and credentials in toolchains."""

    masks: tuple[bytes, ...] = ()
    cleared: tuple[tuple[bytes, FileIdentity], ...] = ()
    """Files that are shown because of their content. If one has changed, the survey is made anew."""
    unsearched: bytes = b""
    """The first directory of a toolchain that was not searched, for there are too many; empty: all were."""


class Host(NamedTuple):
    links: tuple[tuple[bytes, bytes], ...]
    system: tuple[Bind, ...]
    home: tuple[Bind, ...]
    devices: tuple[bytes, ...]
    credentials: Credentials
    files: tuple[tuple[bytes, bytes], ...]
    """(path, content): git settings, reduced."""
    uid_map: bytes
    gid_map: bytes
    deny_setgroups: bool
    as_root: bool
    landlock_abi: int
    machine: str
    watchers: tuple[int, int] = (0, 0)
    """The user's own inotify limits: instances and watches. 0: unknown."""
    counts_processes: bool = False
    """RLIMIT_NPROC counts a user's processes in each user namespace separately (Linux 5.14), and applies to this user.
    It never applies to root."""

    @property
    def masks(self) -> tuple[bytes, ...]:
        return self.credentials.masks


def survey(home: bytes, search: Sequence[bytes]) -> Host:
    """Survey the host. ``home``: the user's home directory; ``search``: the directories in PATH; both real paths."""
    uid, gid, kernel = os.geteuid(), os.getegid(), os.uname()
    system, links = _system_directories()
    toolchains, credentials, files = survey_paths(home, search, [bind.path for bind in system])
    return Host(
        links=links,
        system=system,
        home=toolchains,
        devices=tuple(device for device in _DEVICES if os.path.exists(device)),
        credentials=credentials._replace(masks=(*_root_secrets(uid), *credentials.masks)),
        files=files,
        uid_map=_identity_map(b"/proc/self/uid_map") if uid == 0 else b"%d %d 1" % (uid, uid),
        gid_map=_identity_map(b"/proc/self/gid_map") if uid == 0 else b"%d %d 1" % (gid, gid),
        deny_setgroups=uid != 0,
        as_root=uid == 0,
        landlock_abi=landlock_abi(),
        machine=kernel.machine,
        watchers=(_users_limit("max_inotify_instances"), _users_limit("max_inotify_watches")),
        counts_processes=uid != 0 and _version(kernel.release) >= (5, 14),
    )


def _users_limit(name: str) -> int:
    """Return a limit of this user namespace (namespaces(7)), or 0 if the kernel does not tell."""
    try:
        with Descriptor(os.open(f"/proc/sys/user/{name}", os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
            return int(os.read(descriptor, 64))
    except (OSError, ValueError):
        return 0


def _version(release: str) -> tuple[int, int]:
    """Return (major, minor) from a uname(2) release, or zeros if it does not begin with two numbers."""
    numbers = [part for part in release.split("-")[0].split(".")[:2] if part.isdecimal()]
    return (int(numbers[0]), int(numbers[1])) if len(numbers) == 2 else (0, 0)


def survey_paths(
    home: bytes, search: Sequence[bytes], system: Sequence[bytes], more: Iterable[bytes] = ()
) -> tuple[tuple[Bind, ...], Credentials, tuple[tuple[bytes, bytes], ...]]:
    """Return toolchains in the home (``more``: beyond the usual places) and in PATH outside ``system``; the credentials
    in them; and git's settings, reduced."""
    git, files = _git_settings(home)
    below_home = [*(home + b"/" + part for part in _in(home, (*TOOLCHAINS, *more, *_SETTINGS))), *git]
    toolchains = _existing([*below_home, *_search_roots(search, home, system)])
    return toolchains, _credentials([bind.path for bind in toolchains]), files


def _in(directory: bytes, paths: Sequence[bytes]) -> Sequence[bytes]:
    """Return the relative paths whose first name is in a directory: a listing, not a stat for each."""
    try:
        names = frozenset(os.listdir(directory))
    except OSError:
        return paths  # not readable, but the paths in it may be
    return [path for path in paths if path.partition(b"/")[0] in names]


def _root_secrets(uid: int) -> list[bytes]:
    return [path for path in _ROOT_SECRETS if os.path.exists(path)] if uid == 0 else []


def _git_settings(home: bytes) -> tuple[list[bytes], tuple[tuple[bytes, bytes], ...]]:
    """Return git's settings files that may be shown, the files that they name, and the others' reduced contents."""
    shown, files = list[bytes](), list[tuple[bytes, bytes]]()
    pending = [home + b"/" + name for name in _GIT]
    for path in pending:  # grows
        settings = _read(path)
        if settings is None or path in shown:
            continue
        if holds_secret(settings):
            files.append((path, git_identity(settings)))
            continue
        shown.append(path)
        if len(pending) < _MOST_NAMED and _NAMES_FILES.search(settings) is not None:
            included, others = _named(settings, path, home)
            pending += included
            shown += others
    return shown, tuple(files)


def _named(settings: bytes, path: bytes, home: bytes) -> tuple[list[bytes], list[bytes]]:
    """Return the files below the home that a settings file includes, and the other files that it names, without those
    with the name or place of a secret. git-config(1): an included path is relative to the file."""
    from mudroom.core.git.settings_file import included, named_files, parse_settings
    from mudroom.core.text.secret_content import holds_credential

    def places(values: Iterable[bytes]) -> list[bytes]:
        expanded = (home + value[1:] if value.startswith(b"~/") else value for value in values)
        joined = (os.path.normpath(os.path.join(os.path.dirname(path), value)) for value in expanded)
        return [place for place in joined if _is_open(place, home)]

    try:
        parsed = parse_settings(settings)
    except ValueError:
        return [], []
    others = [place for place in places(named_files(parsed)) if not holds_credential(_read(place) or b"\0")]
    return places(included(parsed)), others


def certificates(paths: Iterable[bytes], home: bytes) -> list[bytes]:
    """Return the files below the home that hold certificates and public keys alone."""
    from mudroom.core.text.secret_content import holds_credential, is_public_key

    opened = (path for path in paths if _is_open(path, home))
    return [path for path in opened if is_public_key(data := _read(path) or b"") and not holds_credential(data)]


def _is_open(path: bytes, home: bytes) -> bool:
    """Return whether a path is a file below the home, without the name or place of a secret."""
    from mudroom.core.tree.credential_stores import store_places

    for name in (path, os.path.realpath(path)):
        below = name[len(home) + 1 :]
        if (
            not is_below(name, home)
            or secret_test(below) == "name"
            or any(is_below(below, at) for at in store_places())
        ):
            return False
    return os.path.isfile(path) and os.path.getsize(path) <= LIMIT


def _credentials(roots: Sequence[bytes]) -> Credentials:
    masks: list[bytes] = []
    cleared: list[tuple[bytes, FileIdentity]] = []
    pending = deque((root, b"", 1, _LEVELS if os.path.basename(root) in _PACKAGES else _DEEPEST) for root in roots)
    for _directory in range(_MOST_DIRECTORIES):
        if not pending:
            break
        root, within, level, deepest = pending.popleft()
        try:
            with os.scandir(root + b"/" + within if within else root) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:
            continue  # a file, gone, or not readable
        test_of = tests_in(within)
        has_programs = level > _LEVELS and any(entry.name == b"bin" for entry in entries)
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                is_left = entry.name not in _SETTINGS_OF_PREFIX if has_programs else entry.name in _PACKAGES
                below = _LEVELS if is_left else deepest
                if level < below:
                    pending.append((root, within + b"/" + entry.name if within else entry.name, level + 1, below))
            elif test := test_of(entry.name):
                path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                if not any(is_below(path, root) for root in roots) or not os.path.isfile(path):
                    continue
                identity = identify(path)  # before it is read
                if is_secret_file(path, test):
                    masks.append(path)
                else:
                    cleared.append((path, identity))
    unsearched = os.path.join(*pending[0][:2]).rstrip(b"/") if pending else b""
    others, beyond = other_names(masks, roots)
    return Credentials(tuple(dict.fromkeys((*masks, *others))), tuple(cleared), unsearched or beyond)


def other_names(masks: Sequence[bytes], roots: Sequence[bytes]) -> tuple[list[bytes], bytes]:
    """Return the other names that the inodes of credentials have in toolchains, and the first directory that was not
    searched for them; empty: all were."""
    known = Counter(identity for path in {*masks} if (identity := _linked(path)))
    inodes = {inode[1] for inode, names in known.items() if inode[2] > names}
    found: list[bytes] = []
    pending = deque(roots if inodes else ())
    for _directory in range(_MOST_FOR_LINKS):
        if not pending:
            break
        try:
            with os.scandir(pending.popleft()) as scan:
                for entry in scan:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    elif entry.inode() in inodes and _linked(entry.path) in known:
                        found.append(entry.path)
        except OSError:
            continue  # a file, gone, or not readable
    return found, pending[0] if pending else b""


def _linked(path: bytes) -> tuple[int, int, int] | None:
    """Return device, inode and link count of a file with several names; None for another, or if it is gone."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return None
    return (info.st_dev, info.st_ino, info.st_nlink) if info.st_nlink > 1 else None


def is_secret_file(path: bytes, test: Test) -> bool:
    """Return whether the file is a secret by this test. It is if it cannot be read."""
    if test not in ("key", "content"):
        return holds(test, None)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            data = stream.read(LIMIT + 1) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None
    except OSError:
        return True
    return holds(test, data if data is not None and len(data) <= LIMIT else None)


def _system_directories() -> tuple[tuple[Bind, ...], tuple[tuple[bytes, bytes], ...]]:
    binds, links = [], []
    for path in _SYSTEM:
        if os.path.islink(path):
            links.append((os.readlink(path), path))
        elif os.path.isdir(path):
            binds.append(Bind(path, path))
    binds += [Bind(path, path) for path in _SYSTEM_PARTS if os.path.exists(path)]
    resolver = os.path.realpath(b"/etc/resolv.conf")  # often a symlink into /run, which is private inside
    if not is_below(resolver, b"/etc") and os.path.exists(resolver):
        binds.append(Bind(resolver, resolver))
    return tuple(binds), tuple(links)


def without(binds: Iterable[Bind], hidden: Sequence[bytes]) -> tuple[Bind, ...]:
    """Return the binds without the ``hidden`` files, for hosts where files cannot be covered: the entries around a
    hidden file are bound by name. A symlink to a directory above a hidden file is left out: a right granted at a
    symlink applies to its target."""
    binds_left: list[Bind] = []
    for bind in binds:
        if bind.path in hidden:
            continue
        if any(is_below(path, bind.path) for path in hidden):
            inside = (bind.path + b"/" + name for name in sorted(os.listdir(bind.path)))
            binds_left += without((Bind(path, path) for path in inside if not _leads_above(path, hidden)), hidden)
        else:
            binds_left.append(bind)
    return tuple(binds_left)


def _leads_above(path: bytes, hidden: Sequence[bytes]) -> bool:
    """Return whether a symlink leads to a hidden file, or to a directory above one."""
    if not os.path.islink(path):
        return False
    real = os.path.realpath(path)
    return any(is_below(name, real) for name in hidden)


def _search_roots(search: Iterable[bytes], home: bytes, shown: Sequence[bytes]) -> list[bytes]:
    """Return the directories to show so that programs in PATH work: each directory, or the environment it belongs
    to."""
    roots = []
    prefixes = [os.fsencode(prefix) for prefix in (sys.prefix, sys.base_prefix)]
    for directory in (*search, *(prefix + b"/bin" for prefix in prefixes)):
        real = os.path.realpath(directory)
        if any(is_below(real, path) for path in shown) or real == home or real in _NOT_SHOWN:
            continue
        named = os.path.normpath(directory)  # a PATH with a symlink (/opt/node/bin) is the same PATH inside
        is_link = named != real and os.path.realpath(named) == real
        for place in (real, named) if is_link and not any(is_below(named, path) for path in shown) else (real,):
            above = os.path.dirname(place)
            if above not in (*_NOT_SHOWN, home) and (os.path.exists(above + b"/pyvenv.cfg") or above in prefixes):
                roots.append(above)
                interpreter = os.path.dirname(os.path.dirname(os.path.realpath(above + b"/bin/python3")))
                if not any(is_below(interpreter, path) for path in shown):
                    roots.append(interpreter)
            else:
                roots.append(place)
                modules = above + b"/lib/node_modules"  # npm's prefix: its programs are links into this
                if os.path.basename(place) == b"bin" and os.path.isdir(modules):
                    roots.append(modules)
    return roots


def _existing(paths: Iterable[bytes]) -> tuple[Bind, ...]:
    """Return binds for the paths that exist, except those below another one."""
    kept: list[bytes] = []
    for path in sorted(set(paths)):
        if path != b"/" and not any(is_below(path, above) for above in kept) and os.path.exists(path):
            kept.append(path)
    return tuple(Bind(os.path.realpath(path), path) for path in kept)


def _identity_map(map_file: bytes) -> bytes:
    """Return a map of every id in this user namespace to itself. Lines are: inside, outside, count."""
    with open(map_file, "rb") as lines:
        rows = [line.split() for line in lines]
    return b"\n".join(b"%s %s %s" % (inside, inside, count) for inside, _outside, count in rows)


def settings_of(host: Host, home: bytes) -> tuple[Bind, ...]:
    """Return the home's binds that hold no program: git's settings."""
    names = [home + b"/" + name for name in (*_GIT, *_SETTINGS)]
    return tuple(bind for bind in host.home if bind.path in names)


def own_settings(
    binds: tuple[Bind, ...], files: tuple[tuple[bytes, bytes], ...], links: Collection[bytes], home: bytes
) -> tuple[tuple[Bind, ...], tuple[tuple[bytes, bytes], ...]]:
    """Return a command's binds and files, with git's settings as its own files: git replaces them by a rename, which
    fails at a mount. Files at the paths in ``links`` are left out."""
    replaced = {home + b"/" + name for name in _GIT}
    own = [(bind.path, _read(bind.source) or b"") for bind in binds if bind.path in replaced]  # gone since the survey
    left = tuple(bind for bind in binds if bind.path not in replaced)
    return left, tuple((path, content) for path, content in (*files, *own) if path not in links)


def _read(path: bytes) -> bytes | None:
    """Return a file's content, or None if it is missing or not readable."""
    try:
        with open(path, "rb") as stream:
            return stream.read()
    except OSError:
        return None


def user_name() -> str:
    """Return this process's user name; for root "mudroom", since root's commands at level 2 run as another user."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name if os.geteuid() else "mudroom"
    except KeyError:
        return "mudroom"


def landlock_abi() -> int:
    """Return the kernel's Landlock ABI, or 0 without Landlock: landlock_create_ruleset(2)."""
    libc = ctypes.CDLL(None)
    version = libc.syscall(
        ctypes.c_long(_SYS_landlock_create_ruleset),
        None,
        ctypes.c_long(0),
        ctypes.c_long(_LANDLOCK_CREATE_RULESET_VERSION),
    )
    return max(0, int(version))


def umask() -> int:
    """Return the caller's umask. Raise MaskedRights if it removes the owner's own rights."""
    mask = _umask()
    if mask & 0o700:
        raise MaskedRights(mask)
    return mask


def _umask() -> int:
    """umask(2) can only read the mask by setting it; /proc shows it since Linux 4.7."""
    try:
        with open("/proc/self/status", "rb") as stream:
            for line in stream:
                if line.startswith(b"Umask:"):
                    return int(line.split()[1], 8)
    except FileNotFoundError:
        mask = os.umask(0o077)  # no /proc: macOS. Files that another thread makes meanwhile are private
        os.umask(mask)
        return mask
    return 0o022


# --- whether a path still leads to the same file ---


def shown_paths(steps: Iterable[Step]) -> list[bytes]:
    """Return the host paths that steps show, mount over or cover, except those in /proc. A cover disappears for every
    command as soon as the host replaces the file below it (vfs_rename in fs/namei.c)."""
    paths: list[bytes] = []
    for step in steps:
        if step[0] in _SOURCES:
            paths.append(step[_SOURCES[step[0]]])
        elif step[0] == "cover":
            paths.append(b"/" + step[1])
    return [path for path in paths if not path.startswith(b"/proc/")]


def identify(path: bytes) -> FileIdentity:
    """Return a value that differs for another file at the same path; None if there is none.

    A mount holds the file that had its path when the mount was made. A directory keeps its inode number as long as it
    is mounted. A file that is replaced twice may get its first inode number again, so the ctime counts, too.
    """
    try:
        info = os.stat(path, follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISDIR(info.st_mode):
        return info.st_dev, info.st_ino
    return info.st_dev, info.st_ino, info.st_ctime_ns

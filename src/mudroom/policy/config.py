"""Locations and settings. Besides ``cli/`` this is the only module that reads the environment.

The host reads ``.mudroom/policy.yaml`` in the project; a sandbox may read it too but cannot change it. Every mistake in
it is an error that names file, line and key: a setting that is silently ignored is a missing protection.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from errno import ENOENT, ENOTDIR

from mudroom.core.settings import Loaded, Settings
from mudroom.core.tree.path import show
from mudroom.core.tree.secret import UNKNOWN
from mudroom.errors import UsageError
from mudroom.stage import disk
from mudroom.stage.private_directory import answer_files, answers_directory
from mudroom.stage.views.preflight import policy_above
from mudroom.typing import NamedTuple

POLICY = b".mudroom/policy.yaml"
MACHINE = b"" if sys.platform == "win32" else b"/etc/mudroom"
"""Directory of the machine's policy, which is root's; empty: a system on which every user could make it."""
LOOPBACK_WORDS = (b"localhost", b"127.", b"::1", b"@ollama", b"@lmstudio", b"@vllm", b"@litellm", b"hold:")
_SEARCHED = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_MOST_SEARCHED = 1 << 20
"""Bytes."""


class Places(NamedTuple):
    home: bytes
    state: bytes


def environment() -> Mapping[bytes, bytes]:
    """Return this process's environment, for a library call without one."""
    if sys.platform == "win32":
        from mudroom.core.registry import twin

        translated: Mapping[bytes, bytes] = twin("environment").translate(os.environ)
        return translated
    return os.environb


def places(environ: Mapping[bytes, bytes]) -> Places:
    """Return the home directory and mudroom's state directory (MUDROOM_STATE, else XDG_STATE_HOME/mudroom)."""
    home = environ.get(b"HOME") or _home_of_user()
    if not disk.is_absolute(home):
        raise UsageError(f"HOME is not an absolute path: {show(home)}")
    home = disk.real_path(home)
    if home == b"/":
        raise UsageError("the home directory is /, which no sandbox can make private", "set HOME to another directory")
    xdg = environ.get(b"XDG_STATE_HOME", b"")
    if not disk.is_absolute(xdg):  # the XDG Base Directory Specification: ignore a relative path
        xdg = home + b"/.local/state"
    return Places(home, disk.absolute_path(environ.get(b"MUDROOM_STATE") or xdg + b"/mudroom"))


def _home_of_user() -> bytes:
    import pwd

    try:
        return os.fsencode(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        raise UsageError(f"HOME is not set, and user {os.getuid()} has no entry in /etc/passwd", "set HOME") from None


def load_policy(project: bytes, environ: Mapping[bytes, bytes], *, items: bool = False) -> Loaded:
    """Return the project's settings: its policy as far as this user trusts it, the user's own policy, that for this
    project on this machine, and the machine's (``policy/combine.py``). Without any such file this costs four failed
    lstat(2) calls, with unchanged files a few more (``policy/cache.py``). ``items``: also return all given items. Raise
    UsageError naming file and line."""
    config = user_config(environ)
    state, trusts_all = places(environ).state, trusts_any(environ)
    policies = (project + b"/.mudroom", config + b"/policy.yaml", MACHINE)
    if not any(map(_may_exist, (*policies, answers_directory(project, state) + b"/rules.yaml"))):
        return Loaded()
    from mudroom.policy import cache

    cache_file, key = cache.cache_path(state, project), cache.key_of(project, config, MACHINE, trusts_all=trusts_all)
    cached = None if items else cache.load(cache_file, key)
    if cached is not None:
        return cached
    from mudroom.policy.combine import load, watched_files

    began = time.time_ns()
    before = {path: cache.stamp(path) for path in watched_files(project, config, state, MACHINE)}
    loaded = load(project, config, state, MACHINE, trusts_all=trusts_all)
    included = {path: cache.stamp(path) for path in loaded.files if path not in before}  # names learnt by loading
    if all(isinstance(stamp, tuple) for stamp in included.values()):  # else a file has been deleted since it was read
        cache.store(cache_file, key, loaded, (before | included).items(), began)
    return loaded if items else loaded._replace(given=())


def _may_exist(path: bytes) -> bool:
    """Return whether a file exists, or is hidden by its directory's permissions."""
    try:
        return bool(os.lstat(path))
    except OSError as error:
        return error.errno not in (ENOENT, ENOTDIR)


def answers_name(words: Sequence[bytes], project: bytes, state: bytes) -> bool:
    """Return whether this machine's answers about hosts may have one of these words. The files are searched, not
    parsed: for a command without such an answer, parsing would cost more than all other work that mudroom does for
    it."""
    return any(_has_word(words, path) for path in answer_files(project, state, b"permissions.yaml"))


def _has_word(words: Sequence[bytes], path: bytes) -> bool:
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | _SEARCHED)
    except OSError:
        return False
    try:
        data = os.read(descriptor, _MOST_SEARCHED)
    except OSError:  # a directory
        return False
    finally:
        os.close(descriptor)
    return any(word in data for word in words)


def trusts_any(environ: Mapping[bytes, bytes]) -> bool:
    """Return whether the caller trusts any policy, as in CI, where the project was chosen on purpose."""
    return environ.get(b"MUDROOM_TRUST_POLICY") == b"1"


def user_config(environ: Mapping[bytes, bytes]) -> bytes:
    """Return the directory with the user's own policy."""
    xdg = environ.get(b"XDG_CONFIG_HOME", b"")
    if not disk.is_absolute(xdg):  # as for XDG_STATE_HOME
        xdg = (environ.get(b"HOME") or _home_of_user()) + b"/.config"
    return xdg + b"/mudroom"


def parse_settings(data: bytes, name: str) -> Settings:
    """Parse a single file. ``name`` is shown in error messages."""
    from mudroom.policy.parse import parse, settings_from

    return settings_from(parse(data, name))


# --- a project's settings, with notes ---

MOST_LEFT_OUT = 3
"""Maximum items that a note names."""
_FOREVER = 1 << 62
KEEPS_ALL = Settings()._replace(
    keep_age=float(_FOREVER),
    keep_applies=_FOREVER,
    keep_bytes=_FOREVER,
    keep_journal=_FOREVER,
    keep_journal_age=float(_FOREVER),
    secrets_mask=UNKNOWN,
)
"""Settings in place of a policy that cannot be read. Its retention limits are unknown, so nothing is removed; so are
its secrets, so nothing is collected (``session/secrets.py``)."""


def project_settings(project: bytes, environ: Mapping[bytes, bytes], note: Callable[[str], None]) -> Settings:
    """Return the combined settings, the project's as far as it is trusted. Call ``note`` about the rest."""
    loaded = load_policy(project, environ)
    if loaded.left_out:
        note(left_out(loaded))
    above = policy_above(project, places(environ).home)
    if above is not None:
        note(not_above(project, above))
    return loaded.settings


def not_above(project: bytes, above: bytes) -> str:
    """Return one line that says whose policy does not apply here."""
    return f"{show(project)} is a project of its own: the policy of {show(above)}, in which it lies, does not hold here"


def left_out(loaded: Loaded) -> str:
    """Return one line that says which part of the project's policy is not trusted, and what to do."""
    items = list(dict.fromkeys(item.text for item in loaded.left_out))
    names = [("/" + item.at).rpartition(":")[0].rpartition("/.mudroom/") for item in loaded.left_out]
    files = dict.fromkeys(f".mudroom/{name}" if inside else name[1:] for _project, inside, name in names)
    more = f" and {len(items) - MOST_LEFT_OUT} more" if len(items) > MOST_LEFT_OUT else ""
    shown = "; ".join(item if len(item) < 80 else item[:79] + "…" for item in items[:MOST_LEFT_OUT])
    where = ", ".join(list(files)[:MOST_LEFT_OUT])
    return f"not taken from {where}, {loaded.why}: {shown}{more} (mudroom policy trust shows all and asks)"

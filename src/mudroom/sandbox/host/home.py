"""The user's home as commands see it that work on a staged copy of it: what is left out.

Left out are credential stores, mudroom's own directories, other projects, files with a credential's name or content,
histories, and, at the top, everything that is no dot file and no directory of programs: documents belong to no
installer. What is left out is there by name and appears empty, so that no command can make it anew.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from mudroom.core.confinement.cache_place import CACHES
from mudroom.core.tree.path import is_below
from mudroom.core.tree.secret import secret_test
from mudroom.sandbox.host.around import hidden_places
from mudroom.sandbox.host.host import TOOLCHAINS, is_secret_file, other_names
from mudroom.typing import NamedTuple

_PROGRAMS = frozenset(
    b"bin go opt n sdk perl5 R lib libexec share node_modules flutter snap miniconda3 anaconda3 miniforge3 mambaforge "
    b"micromamba package.json package-lock.json".split()
)
"""Names at the top of a home that installers make."""
_PRIVATE = (
    b".thunderbird", b".config/Signal", b".config/Slack", b".config/discord", b".config/Bitwarden", b".config/op",
    b".config/rclone", b".config/sops", b".config/age", b".config/hub", b".config/doctl", b".config/vivaldi",
    b".config/opera", b".config/evolution", b".local/share/evolution", b".local/share/TelegramDesktop",
    b".local/share/Trash", b".local/share/recently-used.xbel", b".pki", b".electrum", b".bitcoin", b".ethereum",
    b".minikube", b".vault-token", b".lesshst", b".viminfo", b".wget-hsts", b".sqlite_history", b".local/state/bash",
    b".local/share/fish/fish_history", b".var", b".dbus", b".config/pulse", b".config/Code", b".vscode-server",
)  # fmt: skip
"""Private data that is in no credential store of the table."""


_SETTINGS = (
    b".npmrc", b".yarnrc.yml", b".config/pip", b".pip", b".terraformrc", b".m2/settings.xml",
    b".gradle/gradle.properties",
)  # fmt: skip
"""Stores of credentials that are mostly settings: left out only if there is a credential in them."""
_MOST_DIRECTORIES = 5_000
"""Directories that are searched for credentials. The others appear empty."""


class HiddenHome(NamedTuple):
    emptied: tuple[bytes, ...]
    """Directories that appear empty, absolute paths."""
    covered: tuple[bytes, ...]
    """Files that cannot be read."""


def hidden_in_home(
    home: bytes, own: Collection[bytes], projects: Iterable[bytes], shown: Collection[bytes], needed: Collection[bytes]
) -> HiddenHome:
    """Return what a command does not see of the home. ``own``: mudroom's directories. ``projects``: other projects.
    ``shown``: credentials that the policy shows. ``needed``: places in the home at which something else is mounted."""
    names = sorted(os.listdir(home))
    plain = [home + b"/" + name for name in _SETTINGS if _is_plain(home + b"/" + name)]
    hidden = [path for state in own for path in hidden_places(home, state, (*shown, *plain))]
    own_names = (name for name in names if name.endswith(b"history") or not (name[:1] == b"." or name in _PROGRAMS))
    hidden += [home + b"/" + name for name in (*own_names, *_PRIVATE)]
    hidden += projects
    caches = [home + b"/" + place for place, _name in CACHES]
    spared = {home, *shown, *caches}
    there = [path for path in dict.fromkeys(hidden) if is_below(path, home) and path not in spared]
    there = [path for path in there if not any(is_below(path, place) for place in needed if place != home)]
    emptied = [path for path in there if os.path.isdir(path) and not os.path.islink(path)]
    toolchains = [home + b"/" + name for name in TOOLCHAINS]  # searched by the survey of the host
    secrets, unsearched = _secrets(home, {*emptied, *toolchains, *caches, *needed})
    tops = _topmost((*emptied, *unsearched))
    secrets += other_names(secrets, [home + b"/" + name for name in names])[0]
    files = dict.fromkeys(path for path in (*there, *secrets) if not os.path.isdir(path) or os.path.islink(path))
    real = (path for path in files if os.path.isfile(path) and not os.path.islink(path) and path not in shown)
    return HiddenHome(tops, tuple(path for path in real if not any(is_below(path, top) for top in tops)))


def _is_plain(path: bytes) -> bool:
    """Return whether a file, or each entry of a directory, can be read and holds no credential."""
    try:
        files = [entry.path for entry in os.scandir(path)] if os.path.isdir(path) else [path]
    except OSError:
        return False
    return not any(os.path.islink(file) or is_secret_file(file, "content") for file in files)


def _secrets(home: bytes, left_out: Collection[bytes]) -> tuple[list[bytes], list[bytes]]:
    """Return the files with a credential's name or place, and the directories that were not searched."""
    found, closed, pending = list[bytes](), list[bytes](), [home]
    for _directory in range(_MOST_DIRECTORIES):
        if not pending:
            break
        above = pending.pop(0)
        try:
            with os.scandir(above) as scan:
                entries = sorted(scan, key=lambda entry: entry.name)
        except OSError:  # if it is closed to its owner, a command can still open its copy of it
            closed += [above] if os.path.isdir(above) else []
            continue
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                pending += [entry.path] if entry.path not in left_out else []
            elif (test := secret_test(entry.path[len(home) + 1 :])) and entry.is_file(follow_symlinks=False):
                found += [entry.path] if is_secret_file(entry.path, test) else []
    return found, pending + closed


def _topmost(paths: Iterable[bytes]) -> tuple[bytes, ...]:
    kept: list[bytes] = []
    for path in sorted(set(paths)):
        if not any(is_below(path, above) for above in kept):
            kept.append(path)
    return tuple(kept)

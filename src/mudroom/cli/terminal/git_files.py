"""Where git's settings of the user are."""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.ext.commits.git.user_settings import UserFiles


def user_git_files(environ: Mapping[bytes, bytes]) -> UserFiles:
    """Return git's settings files of the user: git-config(1), "Files"."""
    from mudroom.ext.commits.git.user_settings import UserFiles

    home = environ.get(b"HOME", b"/")
    own = environ.get(b"XDG_CONFIG_HOME") or home + b"/.config"
    system = () if environ.get(b"GIT_CONFIG_NOSYSTEM") else (environ.get(b"GIT_CONFIG_SYSTEM") or b"/etc/gitconfig",)
    instead = environ.get(b"GIT_CONFIG_GLOBAL")
    personal = (instead,) if instead is not None else (own + b"/git/config", home + b"/.gitconfig")
    return UserFiles(home, tuple(path for path in (*system, *personal) if path))

"""Where git's settings of the user are."""

from __future__ import annotations

from mudroom.ext.commits.git.user_settings import user_git_files


def test_where_the_settings_are() -> None:
    found = user_git_files({b"HOME": b"/h"})
    assert found[:2] == (b"/h", (b"/etc/gitconfig", b"/h/.config/git/config", b"/h/.gitconfig"))
    assert user_git_files({b"HOME": b"/h", b"XDG_CONFIG_HOME": b"/x", b"GIT_CONFIG_NOSYSTEM": b"1"}).paths == (
        b"/x/git/config",
        b"/h/.gitconfig",
    )
    assert user_git_files({b"HOME": b"/h", b"GIT_CONFIG_GLOBAL": b"", b"GIT_CONFIG_SYSTEM": b"/s"}).paths == (b"/s",)

"""Places of settings and state: the file of a policy, the state directory and the home of a user."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.policy.config import Places, load_policy, places
from policy_files import own_settings
from policy_text import loader
from tiers import each

__all__ = ["loader"]  # fixture


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / ".mudroom").mkdir()
    return tmp_path / ".mudroom/policy.yaml"


def test_a_policy_file(policy: Path) -> None:
    policy.write_text("run: {view: copy}")
    assert own_settings(os.fsencode(policy.parent.parent)) == Settings(view="copy")


def test_an_error_names_the_file(policy: Path) -> None:
    policy.write_text("run: {view: none}")
    with pytest.raises(UsageError) as caught:
        own_settings(os.fsencode(policy.parent.parent))
    assert str(caught.value) == f"{policy}:1: run.view is 'none' (allowed: auto, overlay, copy)"


def test_without_a_policy_file_the_defaults_hold(tmp_path: Path) -> None:
    environ = {b"HOME": os.fsencode(tmp_path / "home")}
    assert load_policy(os.fsencode(tmp_path), environ).settings == Settings()
    (tmp_path / ".mudroom").write_text("not a directory")
    assert load_policy(os.fsencode(tmp_path), environ).settings == Settings()


def test_a_policy_that_cannot_be_read_is_not_ignored(policy: Path) -> None:
    policy.mkdir()
    with pytest.raises(UsageError) as caught:
        own_settings(os.fsencode(policy.parent.parent))
    assert str(caught.value) == f"{policy}: Is a directory"


@each(
    ("environ", "state"),
    [
        ({}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"/var/state"}, b"/var/state/mudroom"),
        ({b"XDG_STATE_HOME": b""}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"relative"}, b"/home/u/.local/state/mudroom"),
        ({b"XDG_STATE_HOME": b"/var/state", b"MUDROOM_STATE": b"/own//state/"}, b"/own/state"),
        ({b"MUDROOM_STATE": b""}, b"/home/u/.local/state/mudroom"),
    ],
)
def test_places(environ: dict[bytes, bytes], state: bytes) -> None:
    assert places({b"HOME": b"/home/u/", **environ}) == Places(b"/home/u", state)


def test_the_home_is_a_real_path(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "link").symlink_to("home")
    assert places({b"HOME": os.fsencode(tmp_path / "link")}).home == os.fsencode(tmp_path / "home")


@pytest.mark.parametrize(
    ("home", "message"),
    [
        (b"relative\n", r"HOME is not an absolute path: relative\n"),
        (b"/", "the home directory is /, which no sandbox can make private (set HOME to another directory)"),
    ],
)
def test_a_home_that_cannot_be(home: bytes, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        places({b"HOME": home})
    assert str(caught.value) == message


def test_without_home_the_password_database_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = pwd.struct_passwd(("u", "x", 1000, 1000, "", "/home/from/passwd", "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: entry)
    assert places({}).home == b"/home/from/passwd"
    assert places({b"HOME": b""}).home == b"/home/from/passwd"


def test_a_user_without_home_and_entry_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", missing)
    with pytest.raises(UsageError, match=r"HOME is not set, and user [0-9]+ has no entry in /etc/passwd"):
        places({})

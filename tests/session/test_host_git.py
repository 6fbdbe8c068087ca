"""Settings of the user's git that need what no sandbox has."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from conftest import Place
from mudroom.core.confinement.environment import unsigned

pytestmark = pytest.mark.both_users
OFF = {
    b"GIT_CONFIG_COUNT": b"3",
    b"GIT_CONFIG_KEY_0": b"commit.gpgsign",
    b"GIT_CONFIG_VALUE_0": b"false",
    b"GIT_CONFIG_KEY_1": b"tag.gpgsign",
    b"GIT_CONFIG_VALUE_1": b"false",
    b"GIT_CONFIG_KEY_2": b"push.gpgsign",
    b"GIT_CONFIG_VALUE_2": b"false",
}


def test_nothing_is_signed_inside_if_a_file_wants_signatures() -> None:
    me = b"[user]\n\tname = me\n"
    assert unsigned([b"", me]) == {}
    assert unsigned([me, b"[commit]\n\tgpgSign = true\n"]) == OFF


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_inside_is_made_and_not_signed(place: Place) -> None:
    place.write("file", "one\n")
    user = "[user]\n\tname = me\n\temail = me@example.org\n\tsigningkey = /absent/key.pub\n"
    place.home.mkdir(exist_ok=True)
    (place.home / ".gitconfig").write_text(user + "[commit]\n\tgpgsign = true\n[gpg]\n\tformat = ssh\n")
    subprocess.run(["git", "init", "-q"], cwd=place.project, check=True)
    with place.session() as session:
        script = b"git add file && git commit -qm one && git cat-file commit HEAD"
        result = session.run([b"sh", b"-c", script])
        assert result.exit_code == 0, result.stderr
        assert b"gpgsig" not in result.stdout and result.stdout.endswith(b"\none\n")
        asked = session.run([b"sh", b"-c", b"git commit --allow-empty -qm two -S"])
        assert asked.exit_code, "who asks for a signature gets git's own error"

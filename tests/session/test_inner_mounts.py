"""A project with mounts inside: by root, and by an ordinary user, in a user namespace whose mounts no namespace of a
command may take away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from inner_mount_story import STORIES

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("unshare") is None, reason="mount namespaces of Linux"),
]
ROOT = os.name == "posix" and os.geteuid() == 0
OF_ROOT = {"of_another_user"}
"""Stories with files of a second user, whom a namespace of one user does not have."""


def play(story: str, place: Path) -> None:
    inside = ["unshare", "--mount"] if ROOT else ["unshare", "--map-root-user", "--mount"]
    tests = Path(__file__).parent.parent
    argv = [*inside, sys.executable, str(tests / "session/inner_mount_story.py"), story, str(place)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False, cwd=tests)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("story", sorted(STORIES.keys() - OF_ROOT))
def test_mounts_inside_the_project(story: str, tmp_path: Path) -> None:
    play(story, tmp_path)


@pytest.mark.skipif(not ROOT, reason="only root can make what is another user's")
@pytest.mark.parametrize("story", sorted(OF_ROOT))
def test_mounts_of_another_user(story: str, tmp_path: Path) -> None:
    play(story, tmp_path)

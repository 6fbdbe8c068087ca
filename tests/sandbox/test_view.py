"""The view of a running command in the hands of the host: one truth, from both sides."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from box import KINDS, Box, Conversation, fresh
from mudroom.errors import MudroomError
from mudroom.sandbox.client.capture import CapturedOutput
from mudroom.sandbox.client.report import StepFailed
from mudroom.stage.beneath import directory, entries, open_beneath

__all__ = ["fresh"]  # a fixture

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def write(root: int, path: bytes, content: bytes) -> None:
    with open(open_beneath(root, path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as stream:
        stream.write(content)


def read(root: int, path: bytes) -> bytes:
    with open(open_beneath(root, path, os.O_RDONLY), "rb") as stream:
        return stream.read()


def fill(box: Box) -> None:
    for root in (box.project, box.copy):
        (root / "old").write_text("old\n")
        (root / "doomed").write_text("doomed\n")
        (root / "sub/deep").mkdir(parents=True)
        (root / "sub/deep/file").write_text("deep\n")


@pytest.mark.parametrize("kind", KINDS)
def test_both_sides_see_what_the_other_does(fresh: Box, kind: str) -> None:
    fill(fresh)
    script = (
        "echo mine > inside; mkdir d; echo; read go; "
        "echo $(cat outside sub/moved old; ls -d doomed sub/deep/file 2>/dev/null; ls d); "
        "rm outside; echo changed > old; read go"
    )
    talk = Conversation(fresh, kind, script, view=True)
    view = talk.running.view()
    talk.hear()
    assert read(view, b"inside") == b"mine\n"
    assert read(view, b"sub/deep/file") == b"deep\n"
    write(view, b"outside", b"yours\n")
    write(view, b"d/new", b"")
    with directory(view, b"sub") as sub, directory(view, b"sub/deep") as deep:
        os.rename(b"file", b"moved", src_dir_fd=deep, dst_dir_fd=sub)
    os.unlink(b"doomed", dir_fd=view)
    with open(open_beneath(view, b"old", os.O_WRONLY | os.O_APPEND), "wb") as stream:
        stream.write(b"and new\n")
    talk.say()
    assert talk.hear() == "yours deep old and new new"
    write(view, b"last", b"at the end\n")
    os.mkdir(b"made", 0o700, dir_fd=view)
    assert talk.end() == 0
    with directory(view, b"") as root:  # an O_PATH descriptor itself cannot be listed (open(2))
        assert sorted(entries(root)) == [b"d", b"inside", b"last", b"made", b"old", b"sub"]
    write(view, b"later", b"after the end\n")
    os.close(view)
    staged = fresh.staged(kind)
    assert (staged / "last").read_text() == "at the end\n"
    assert (staged / "later").read_text() == "after the end\n"
    assert (staged / "sub/moved").read_text() == "deep\n"
    assert (staged / "old").read_text() == "changed\n"
    assert sorted(path.name for path in fresh.project.iterdir()) == ["doomed", "old", "sub"]
    assert (fresh.project / "old").read_text() == "old\n"


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_gains_nothing_from_it(fresh: Box, kind: str) -> None:
    """Neither a descriptor, nor a mount, nor a way to ours."""
    fill(fresh)
    secret = fresh.root / "secret"
    secret.write_text("secret\n")
    script = (
        "ls /proc/self/fd; cut -d' ' -f5,6 /proc/self/mountinfo | sort | md5sum;"
        f"rm -f link up; ln -s {secret} link; ln -s .. up; echo; read number;"
        f"readlink /proc/{os.getpid()}/fd/$number; cat /proc/{os.getpid()}/fd/$number/old; echo said; read go"
    )
    heard, mounts = [], Path("/proc/self/mountinfo").read_text()
    for want_view in (False, True):
        talk = Conversation(fresh, kind, script, view=want_view)
        view = talk.running.view() if want_view else -1
        heard.append([talk.hear() for _line in range(6)])
        if want_view:
            for path in (b"link", b"up", b"up/secret", b"sub/../../secret", b"/etc/passwd", b".."):
                with pytest.raises(OSError, match=r"symbolic links|cross-device") as caught:
                    open_beneath(view, path, os.O_RDONLY)
                assert caught.value.errno in (errno.ELOOP, errno.EXDEV), path
        talk.say(str(view))
        assert talk.hear() == "said"
        talk.end()
    os.close(view)
    if kind == "bare" and Path("/proc/self/mountinfo").read_text() != mounts:
        heard = [lines[:4] for lines in heard]  # it sees the host's, and another test has mounted meanwhile
    assert heard[0] == heard[1]
    assert heard[0][:4] == ["0", "1", "2", "3"], "what it was given, and the directory that ls reads"


@pytest.mark.parametrize("kind", ["overlay", "overlay prepared"])
def test_a_sandbox_that_fails_has_no_view(fresh: Box, kind: str) -> None:
    plan = fresh.prepared(kind)
    broken = plan._replace(steps=tuple(("cwd", b"/nowhere") if step[0] == "overlay" else step for step in plan.steps))
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("true", output, broken, view=True)
        with pytest.raises(MudroomError, match="before it had a view"):
            running.view()
        with pytest.raises(StepFailed):
            running.wait()


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_that_nobody_takes_is_no_trouble(fresh: Box, kind: str) -> None:
    plan = fresh.prepared(kind)
    before = set(os.listdir("/proc/self/fd"))
    with CapturedOutput(None, None, None, 100) as output:
        running = fresh.start("true", output, plan, view=True)
        assert running.wait().status == 0
        running.wait_gone()
        with pytest.raises(MudroomError):
            running.view()
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_view_is_not_inherited(fresh: Box) -> None:
    talk = Conversation(fresh, "overlay", "read go", view=True)
    view = talk.running.view()
    program = f"import os; os.fstat({view})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, close_fds=False, check=False)
    assert b"Bad file descriptor" in done.stderr
    os.close(view)
    talk.end()

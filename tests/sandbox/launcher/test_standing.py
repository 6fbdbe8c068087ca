"""A standing sandbox: the overlay of a fork stays mounted, and each command has a sandbox of its own around it."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from box import Box, Conversation, if_namespaces
from mudroom.errors import MudroomError
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.client.report import StepFailed

pytestmark = [pytest.mark.both_users, if_namespaces]


@pytest.fixture
def box(tmp_path: Path, client: LauncherClient) -> Box:
    return Box(tmp_path, client)


def dissolve(door: Path) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.connect(os.fsencode(door))
        return asking.recv(1)


def test_commands_follow_each_other_on_one_mount(box: Box) -> None:
    plan = box.plan()
    box.stand(plan)
    for number in range(5):
        ended, said = box.run(f"echo {number} >> f; wc -l < f; pwd; cat /proc/self/mounts | grep -c overlay", plan)
        assert (ended.status, said.split()) == (0, [str(number + 1), str(box.project), "1"]), said
    assert (box.upper / "f").read_text() == "0\n1\n2\n3\n4\n"


def test_the_project_is_seen_as_it_is_now(box: Box) -> None:
    (box.project / "saved").write_text("old")
    (box.project / "gone").write_text("old")
    plan = box.plan()
    box.stand(plan)
    assert box.run("cat saved gone; cat new", plan)[1].startswith("oldold")
    (box.project / "saved.tmp").write_text("new")
    (box.project / "saved.tmp").rename(box.project / "saved")
    (box.project / "gone").unlink()
    (box.project / "new").write_text("!")
    assert box.run("cat saved new; ls", plan)[1] == "new!new\nsaved\n"


def test_the_door_ends_the_mount(box: Box) -> None:
    plan = box.plan()
    door = box.stand(plan)
    box.run("echo a > f", plan)
    assert dissolve(door) == b"g"
    assert not box.standing.is_open, "no request is taken after the answer, though the process may take a while to go"
    box.standing.wait_gone()
    assert str(box.root) not in Path("/proc/self/mounts").read_text()


def test_the_door_ends_every_process(box: Box) -> None:
    """Also one that goes on in a sandbox whose command has not ended."""
    plan = box.plan()
    door = box.stand(plan)
    talk = Conversation(box, plan, "echo up; sleep 1000 & read word; sleep 1000")
    assert talk.hear() == "up"
    assert dissolve(door) == b"g"
    assert os.read(talk.stream.read, 1) == b"", "nobody is left who could write"
    with pytest.raises(MudroomError, match="launcher died"):
        talk.end()


def test_an_overlay_that_cannot_be_mounted_is_told(box: Box) -> None:
    plan = box.plan()
    box.upper.rmdir()
    with pytest.raises(StepFailed) as caught:
        box.stand(plan)
    assert caught.value.op == "overlay"
